"""Defects of ``lmerge/temporal/expressions``."""

from seeded import Defect

PLACE = "lmerge/temporal/expressions/"
TESTS = "tests/temporal/expressions/"
SEMANTICS = TESTS + "test_semantics.py::"
BINDING = TESTS + "test_binding.py::"
FUNCTIONS = TESTS + "test_functions.py::"
FORMS = TESTS + "test_forms.py::"

DEFECTS = (
    Defect(
        "expressions: NULL and false are NULL",
        PLACE + "generating.py",
        'settled, neutral = ("False", "True") if code.is_all else ("True", "False")',
        'settled, neutral = ("None", "True") if code.is_all else ("True", "False")',
        SEMANTICS + "test_e2_logic_has_three_values",
    ),
    Defect(
        "expressions: NULL or true is NULL",
        PLACE + "generating.py",
        'then, _ = block.choice(f"{value} is not {neutral}")',
        'then, _ = block.choice(f"{value} is None")',
        SEMANTICS + "test_e2_logic_has_three_values",
    ),
    Defect(
        "expressions: what is computed in a branch counts as computed behind it",
        PLACE + "generating.py",
        "        del self._scopes[depth:]\n",
        "",
        BINDING + "test_a_part_is_not_evaluated_where_nothing_needs_it",
    ),
    Defect(
        "expressions: an equal part behind two conditions is evaluated twice",
        PLACE + "generating.py",
        "        repeated = {number for number, places in generator.definitions.items() if places > 1} - shared\n",
        "        repeated: set[int] = set()\n",
        BINDING + "test_a_part_is_not_evaluated_where_nothing_needs_it",
    ),
    Defect(
        "expressions: true and 1 are one constant",
        PLACE + "generating.py",
        "key = (typed.code, typed.column.type, typed.column.scale, operands)",
        "key = (typed.code, typed.column.scale, operands)",
        BINDING + "test_parts_of_different_types_are_different",
    ),
    Defect(
        "expressions: NaN is not equal to itself",
        PLACE + "comparing.py",
        '"{0} == {1} or ({0} != {0} and {1} != {1})"',
        '"{0} == {1}"',
        SEMANTICS + "test_e7_nan_is_equal_to_itself_and_the_greatest",
    ),
    Defect(
        "expressions: NaN is not above a constant",
        PLACE + "comparing.py",
        '_LEFT_CAN_BE_NAN: Final = {"greater": "not {0} <= {1}", ',
        "_LEFT_CAN_BE_NAN: Final = {",
        SEMANTICS + "test_e7_nan_is_equal_to_itself_and_the_greatest",
    ),
    Defect(
        "expressions: a product can be -0.0",
        PLACE + "arithmetic.py",
        '"{0} * {1} + 0.0"',
        '"{0} * {1}"',
        SEMANTICS + "test_e7_there_is_no_negative_zero",
    ),
    Defect(
        "expressions: ints do not overflow",
        PLACE + "arithmetic.py",
        'raise site.failure("the result is beyond 64 bits")',
        'site.failure("the result is beyond 64 bits")',
        SEMANTICS + "test_e11_an_int_beyond_64_bits_is_an_error",
    ),
    Defect(
        "expressions: the smallest int has a quotient by -1",
        PLACE + "arithmetic.py",
        "if {t} == 9223372036854775808",
        "if {t} == 9223372036854775809",
        SEMANTICS + "test_e11_an_int_beyond_64_bits_is_an_error",
    ),
    Defect(
        "expressions: decimals are divided towards zero",
        PLACE + "arithmetic.py",
        "quotient = unscaled(left, scale) // unscaled(right, scale)",
        "quotient = int(unscaled(left, scale) / unscaled(right, scale))",
        SEMANTICS + "test_e14_division_rounds_down",
    ),
    Defect(
        "expressions: the type of a division cannot be NULL",
        PLACE + "arithmetic.py",
        "return request.strict(result, text, can_be_null=can_be_zero, **more)",
        "return request.strict(result, text, **more)",
        SEMANTICS + "test_e15_a_division_by_zero_is_null",
    ),
    Defect(
        "expressions: decimals are rounded to 28 digits",
        "lmerge/temporal/python_values.py",
        "Context(prec=4 * DECIMAL_DIGITS_MAX, traps=[])",
        "Context(prec=28, traps=[])",
        SEMANTICS + "test_e12_decimals_are_exact",
    ),
    Defect(
        "expressions: a float and a decimal meet without a cast",
        PLACE + "arithmetic.py",
        'if {left.type, right.type} == {"float", "decimal"}:',
        "if False:",
        BINDING + "test_an_error_names_the_expression_its_columns_and_types",
    ),
    Defect(
        "expressions: text is cast as Python reads it",
        PLACE + "conversions.py",
        "if len(value) > 64 or _INT.fullmatch(value) is None:",
        "if len(value) > 64:",
        SEMANTICS + "test_e19_casts",
    ),
    Defect(
        "expressions: an offset of a moment is added",
        PLACE + "conversions.py",
        "- offset // MICROSECOND",
        "+ offset // MICROSECOND",
        SEMANTICS + "test_e19_casts",
    ),
    Defect(
        "expressions: a week begins on Sunday",
        PLACE + "times.py",
        "({day} + 3) % 7 + 1",
        "({day} + 4) % 7 + 1",
        SEMANTICS + "test_e25_times_are_rounded_down",
    ),
    Defect(
        "expressions: least of a NULL is NULL",
        PLACE + "comparing.py",
        "is_missing = all(operand.nullable for operand in operands)",
        "is_missing = any(operand.nullable for operand in operands)",
        SEMANTICS + "test_e6_least_and_greatest_ignore_null",
    ),
    Defect(
        "expressions: an element before the first is one from the end",
        PLACE + "nested.py",
        "if -len({0}) <= {1} < len({0}) else None",
        "if {1} < len({0}) else None",
        SEMANTICS + "test_e26_elements_and_fields",
    ),
    Defect(
        "expressions: a function is called with NULL",
        PLACE + "generating.py",
        'if missing and function.nulls == "skip":',
        'if missing and function.nulls == "pass":',
        SEMANTICS + "test_e21_functions_get_null_if_they_pass_it",
    ),
    Defect(
        "expressions: a vectorised function is called for each row",
        PLACE + "batches.py",
        "        stopped = waiting.get(caller)\n",
        "        caller = __import__('copy').copy(caller)\n        stopped = None\n",
        FUNCTIONS + "test_a_vectorised_function_is_called_once_for_a_batch",
    ),
    Defect(
        "expressions: the row of a failed batch is the first",
        PLACE + "batches.py",
        "rows[failure.index or 0]",
        "rows[0]",
        FUNCTIONS + "test_a_vectorised_function_that_raises_is_named_with_its_row",
    ),
    Defect(
        "expressions: a result of another type is taken",
        PLACE + "calling.py",
        "call, result = function.function, canonical_form(function.result)",
        "call, result = function.function, lambda value: value",
        FUNCTIONS + "test_a_result_that_is_not_of_its_type_is_named",
    ),
    Defect(
        "expressions: JSON takes any version of a function",
        PLACE + "functions.py",
        "found = self._functions.get((name, version))",
        "found = next((one for (other, _), one in self._functions.items() if other == name), None)",
        FORMS + "test_functions_are_named_with_their_version",
    ),
    Defect(
        "expressions: a literal before a comparison is turned around when it is read back",
        PLACE + "printing.py",
        "is_bare = isinstance(first, LiteralValue) and not is_comparison and",
        "is_bare = isinstance(first, LiteralValue) and",
        FORMS + "test_an_expression_is_shown_as_it_is_written",
    ),
    Defect(
        "expressions: a sum of floats keeps the key",
        PLACE + "injectivity.py",
        '_EXACT: Final = frozenset(("int", ',
        '_EXACT: Final = frozenset(("float", "int", ',
        FORMS + "test_a_column_that_can_be_computed_back_is_kept",
    ),
    Defect(
        "expressions: an expression has a truth value",
        PLACE + "surface.py",
        "    def __bool__(self) -> NoReturn:",
        "    def is_true(self) -> NoReturn:",
        BINDING + "test_an_expression_has_no_truth_value",
    ),
)
