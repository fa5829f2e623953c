r"""Scalar expressions over rows: ``(col.delay > 15) & col.origin.is_in(["JFK"])``.

Filters, projections, join predicates and the mappings of modules are made of them. Called by the operators of a plan,
which bind them to a schema. Imports the schema, the form of rows and the errors of plans.

``surface`` builds a tree (``tree``), ``binding`` gives it types by the rules of the families (``rules``) and makes a
Python function of it (``generating``), ``json_format`` writes it, ``printing`` shows it, ``functions`` has those that
users declare.

The semantics, for every implementation; docs/temporal-expressions.md gives the reasons:

| rule | of | is |
|---|---|---|
| E1 | NULL | An operation of NULL gives NULL, but for E2 to E6 and E21. |
| E2 | `&`, `\|`, `~` | False & NULL is False, True \| NULL is True, all else of NULL is NULL. A filter drops NULL. |
| E3 | what is evaluated | `&`, `\|`, `case`, `coalesce`: from left to right, and only what decides. |
| E4 | `is_null`, `coalesce` | `is_null` is never NULL. `coalesce` is its first value that is not NULL. |
| E5 | `case` | The value of the first condition that is true; NULL is not. Without `otherwise` it can be NULL. |
| E6 | `least`, `greatest` | They ignore NULL, and are NULL if all values are. |
| E7 | order of floats | NaN equals NaN and is greater than all else. There is no -0.0. |
| E8 | order | False before True; text by its bytes in UTF-8, bytes, moments and days by value. |
| E9 | lists, structs | Only `==` and `!=`. Within them NULL equals NULL. |
| E10 | `is_in`, `between` | `is_in` takes constants, not NULL. `between` includes both ends. |
| E11 | ints | 64 bits. A result beyond them is an error at run. |
| E12 | decimals | Exact. `+ - %` keep the more digits behind the point, `*` the sum. Beyond 38 in all: an error. |
| E13 | `/` | Numbers become floats first, decimals too; the result is a float. |
| E14 | `//`, `%` | Rounded down, so `%` has the sign of the divisor. `//` of decimals is decimal(0). |
| E15 | division by zero | `/`, `//` and `%` give NULL, for every type, unless the divisor is another constant. |
| E16 | floats | IEEE 754: infinities and NaN, also of `sqrt(-1)`, `ln(0)`, `ln(-1)`. No errors. `//`, `%` as Python. |
| E17 | types that meet | int becomes float or decimal, a decimal more digits. No other cast is implied. |
| E18 | `cast` | A value that the type lacks: an error at run, or NULL with `strict=False`. |
| E19 | `cast` of numbers | To int: cut at the point. To fewer digits: half to even. Text: no blanks, all of it. |
| E20 | `round`, `floor`, `ceil` | `round` half to even, by the exact value. All keep int and float; see E12. |
| E21 | user functions | `nulls="skip"`: NULL in, NULL out, without a call. `"pass"`: they get None. |
| E22 | once a row | Equal parts of the expressions of one operator are evaluated once a row, calls too. |
| E23 | text | Counted in characters from 0, or from the end if negative. Unicode's full case mapping. |
| E24 | `replace`, `trim` | Replacing empty text changes nothing. `trim` removes blanks, tabs, CR, LF, VT and FF. |
| E25 | time | UTC; rounded down, also before 1970. Monday is 1. Moments differ by microseconds, days by days. |
| E26 | `element`, `field` | From 0, or from the end if negative; NULL if it is not there. A field of NULL is NULL. |
| E27 | lifetimes | No expression reads the start or the end of an event. |
"""
