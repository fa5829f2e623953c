"""Defects of expressions on columns: ``native/temporal/src/expressions``, and of what Python hands over to them."""

from seeded import Defect

SOURCE = "native/temporal/src/expressions/"
SUITE = "expressions::"

DEFECTS = (
    Defect(
        "native expressions: what is below a NULL can be an error",
        SOURCE + "values.rs",
        "Some(nulls) => within(errors, nulls.inner()),",
        "Some(_) => errors,",
        SUITE + "what_is_below_a_null_is_no_error",
    ),
    Defect(
        "native expressions: a condition does not guard",
        SOURCE + "evaluating.rs",
        "errors = union(errors, within(next.spread_errors(self.len), &open));\n            truths",
        "errors = union(errors, next.spread_errors(self.len));\n            truths",
        SUITE + "a_condition_guards_what_stands_behind_it",
    ),
    Defect(
        "native expressions: a branch that is not taken can fail",
        SOURCE + "evaluating.rs",
        "errors = union(errors, within(value.spread_errors(self.len), &taken));",
        "errors = union(errors, value.spread_errors(self.len));",
        SUITE + "a_case_takes_the_first_condition_that_is_true",
    ),
    Defect(
        "native expressions: the last condition that is true decides a case",
        SOURCE + "evaluating.rs",
        "let taken = &open & &are_true(&condition.truths(self.len));",
        "let taken = are_true(&condition.truths(self.len));",
        SUITE + "a_case_takes_the_first_condition_that_is_true",
    ),
    Defect(
        "native expressions: coalesce evaluates all operands",
        SOURCE + "evaluating.rs",
        "errors = union(errors, within(value.spread_errors(self.len), &open));\n            let present",
        "errors = union(errors, value.spread_errors(self.len));\n            let present",
        SUITE + "coalesce_evaluates_only_until_there_is_a_value",
    ),
    Defect(
        "native expressions: NULL and false are NULL",
        SOURCE + "evaluating.rs",
        "let nulls = has_nulls.then(|| NullBuffer::new(&true_ | &false_));",
        "let nulls = NullBuffer::union(one.nulls(), other.nulls()).filter(|_| has_nulls);",
        SUITE + "logic_has_three_values",
    ),
    Defect(
        "native expressions: a sum that wraps is no error",
        SOURCE + "arithmetic.rs",
        "(sum, (a ^ sum) & (b ^ sum) < 0)",
        "(sum, (a ^ sum) & (b ^ sum) > 0)",
        SUITE + "an_int_beyond_64_bits_is_an_error_of_its_row",
    ),
    Defect(
        "native expressions: a remainder has the sign of the dividend",
        SOURCE + "arithmetic.rs",
        "if (rest ^ b) < 0 && rest != 0 { rest + b } else { rest }",
        "rest",
        SUITE + "division_rounds_down_and_is_null_by_zero",
    ),
    Defect(
        "native expressions: NaN keeps its sign",
        SOURCE + "arithmetic.rs",
        "if value.is_nan() { f64::NAN } else { value }",
        "value",
        SUITE + "floats_have_one_nan_and_no_negative_zero",
    ),
    Defect(
        "native expressions: a decimal of 39 digits is none too many",
        SOURCE + "decimals.rs",
        "(-BOUND < value && value < BOUND).then_some(value)",
        "(-BOUND <= value && value <= BOUND).then_some(value)",
        SUITE + "decimals_are_exact_up_to_38_digits",
    ),
    Defect(
        "native expressions: halves of decimals are rounded up",
        SOURCE + "decimals.rs",
        "rest > unit - rest || (rest == unit - rest && whole & 1 != 0)",
        "rest >= unit - rest",
        SUITE + "halves_are_rounded_to_even_by_the_exact_value",
    ),
    Defect(
        "native expressions: halves of floats are rounded up",
        SOURCE + "decimals.rs",
        "rest > other || (rest == other && is_odd)",
        "rest >= other",
        SUITE + "halves_are_rounded_to_even_by_the_exact_value",
    ),
    Defect(
        "native expressions: decimals are compared by their digits",
        SOURCE + "decimals.rs",
        "if one_scale == other_scale {\n        return one.cmp(&other);",
        "if one_scale <= other_scale {\n        return one.cmp(&other);",
        SUITE + "decimals_of_different_scales_are_compared_by_value",
    ),
    Defect(
        "native expressions: least of NULL and a value is NULL",
        SOURCE + "comparing.rs",
        "better = &better | &!nulls.inner();",
        "better = &better & nulls.inner();",
        SUITE + "least_and_greatest_ignore_null",
    ),
    Defect(
        "native expressions: every fourth year has a leap day",
        SOURCE + "times.rs",
        "year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)",
        "year % 4 == 0",
        SUITE + "the_calendar_knows_leap_years",
    ),
    Defect(
        "native expressions: an offset is added",
        SOURCE + "casting.rs",
        "(hour * 60 + minute - offset)",
        "(hour * 60 + minute + offset)",
        SUITE + "moments_are_read_with_their_offset_and_rounded_down",
    ),
    Defect(
        "native expressions: an int of a float beyond 64 bits is the last one",
        SOURCE + "casting.rs",
        "(-END..END).contains(&value).then_some(value as i64)",
        "value.is_finite().then_some(value as i64)",
        SUITE + "a_cast_of_what_the_type_lacks_is_an_error_or_null",
    ),
    Defect(
        "native expressions: a field of a NULL is what is below it",
        SOURCE + "nested.rs",
        "&BooleanArray::new(!nulls.inner(), None)",
        "&BooleanArray::new(BooleanBuffer::new_unset(nulls.len()), None)",
        SUITE + "parts_of_what_is_not_there_are_null",
    ),
    Defect(
        "native expressions: other letters than those of ASCII keep their case",
        SOURCE + "texts.rs",
        'out.append_value(others.next().expect("as many texts as were given"))',
        "out.append_value(text)",
        SUITE + "text_is_counted_in_characters",
    ),
    Defect(
        "native expressions: what a place takes without its digits is not rounded",
        "lmerge/temporal/expressions/lowering.py",
        'column = with_null(dict(code.bindings).get("target", column), column.nullable)',
        "column = with_null(column, column.nullable)",
        "tests/temporal/native/test_expressions.py::test_any_tree_gives_the_same_values_and_errors",
    ),
)
