"""What users give to a run: what does not fit is one clear error, before anything is taken, and the same everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from typed_rows import EVERY_TYPE, TYPED_ROWS

from lmerge.core.elements import INF
from lmerge.core.engines.selection import NATIVE, PYTHON
from lmerge.errors import InputViolation, InvalidRow, LmergeError, UsageError
from lmerge.temporal.changes import Change
from lmerge.temporal.entrance import ProgressRule
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.stream import count, source
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.running import QueryRun, SourceSettings
from lmerge.temporal.runs.checked import ItemCheck
from lmerge.temporal.values import NAN
from lmerge.wire.schema import parse_schema

SCHEMA = {"k": "int", "o": "string?", "f": "float"}
GOOD = Change((1, "a", 1.5), 1, 1, 5)


@pytest.fixture(params=[PYTHON, NATIVE])
def implementation(request: pytest.FixtureRequest, demand: Callable[[str], None]) -> str:
    """Return each implementation in turn; the native core is left out where it is not built."""
    name: str = request.param
    if name == NATIVE:
        demand(name)
    return name


def run_of(implementation: str) -> QueryRun:
    stream = source("s", SCHEMA)
    return QueryRun(
        {"n": stream.group_by("f").tumbling(10).agg(n=count(), form="eager").node}, implementation=implementation
    )


BAD: dict[str, tuple[Any, type[LmergeError], str]] = {
    "a short row": (Change((1, "a"), 1, 1, 5), InvalidRow, "its row has 2 values; the columns are k: int, o: string"),
    "text for an int": (Change(("x", "a", 1.0), 1, 1, 5), InvalidRow, "column 'k' (int): 'x' is not a whole number"),
    "a missing value": (Change((None, "a", 1.0), 1, 1, 5), InvalidRow, "column 'k' (int): None is not a whole number"),
    "a truth value": (Change((True, "a", 1.0), 1, 1, 5), InvalidRow, "column 'k' (int): True is not a whole number"),
    "a large int": (Change((2**63, "a", 1.0), 1, 1, 5), InvalidRow, "column 'k' (int): 9223372036854775808 is out of"),
    "half of a pair": (Change((1, "\ud800", 1.0), 1, 1, 5), InvalidRow, "column 'o' (string?): '\\ud800' holds half"),
    "a row of text": (Change("abc", 1, 1, 5), InvalidRow, "its row is 'abc', which is no tuple"),  # type: ignore[arg-type]  # no row
    "a broken start": (Change((1, "a", 1.0), 1.5, 1.5, 5), UsageError, "Vs is 1.5, which is no whole number"),  # type: ignore[arg-type]  # no row
    "a start as text": (Change((1, "a", 1.0), "1", 1, 5), UsageError, "Vs is '1', which is no whole number"),  # type: ignore[arg-type]  # no row
    "a late end": (Change((1, "a", 1.0), 1, 1, 2**63), UsageError, "the end is 9223372036854775808, which is out of"),
    "a mapping": ({"k": 1}, UsageError, "{'k': 1} is no change and no stable point; rows as mappings are for Arrow"),
    "nothing": (None, UsageError, "None is no change and no stable point"),
    "text": ("x", UsageError, "'x' is no change and no stable point"),
    "a truth value alone": (True, UsageError, "True is no change and no stable point"),
    "a late stable point": (2**63, UsageError, "stable(9223372036854775808) is out of the 64-bit range"),
}


@pytest.mark.parametrize("what", list(BAD))
def test_an_item_that_does_not_fit_is_named_and_nothing_is_taken(what: str, implementation: str) -> None:
    item, kind, problem = BAD[what]
    run = run_of(implementation)
    before = run.snapshot()
    with pytest.raises(kind) as raised:
        run.take("s", [GOOD, item, 20])
    assert str(raised.value).startswith("source 's', item 1")
    assert problem in str(raised.value)
    assert run.snapshot() == before
    assert run.take("s", [GOOD, 20])


def test_items_are_given_as_a_list(implementation: str) -> None:
    for given in (GOOD, 5, "abc"):
        with pytest.raises(UsageError, match=r"source 's': .* is given as its items; they are a list of changes"):
            run_of(implementation).take("s", given)  # type: ignore[arg-type]  # no row


def test_a_history_of_items_is_checked_as_well() -> None:
    stream = source("s", SCHEMA)
    with pytest.raises(InvalidRow, match=r"source 's', item 0, .*column 'k' \(int\): 'x' is not a whole number"):
        stream.collect({"s": [Change(("x", "a", 1.0), 1, 1, 5)]})
    with pytest.raises(UsageError, match=r"source 's', item 0: \{'k': 1\} is no change"):
        stream.collect({"s": [{"k": 1}]})


def test_floats_have_one_form_behind_the_entrance(implementation: str) -> None:
    items = [Change((1, "a", value), 1, 1, 2) for value in (float("nan"), -math.nan, -0.0, 0.0, 1.0)]
    (step,) = run_of(implementation).take("s", [*items, INF])
    found = {str(change.row[0]): change.row[1] for change in step["n"].changes}
    assert found == {"0.0": 2, "1.0": 1, "nan": 2}


def test_values_of_python_become_those_of_a_plan() -> None:
    schema = parse_schema(EVERY_TYPE)
    forms, check = RowForms(schema), ItemCheck("s", schema)
    names = schema.names
    for row in TYPED_ROWS:
        as_python = tuple(row.get(name) for name in names)
        inside = forms.values(row)
        for values in (as_python, inside):
            assert check.checked([Change(values, 1, 1, 5)]) == [Change(inside, 1, 1, 5)]
    moment = ItemCheck("s", parse_schema({"t": "timestamp", "d": "date", "m": "decimal(2)"}))
    given = (datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc), date(1970, 1, 3), Decimal("1.5"))
    assert moment.checked([Change(given, 1, 1, 5)]) == [Change((1_000_000, 2, Decimal("1.50")), 1, 1, 5)]
    with pytest.raises(InvalidRow, match=r"column 'd' \(date\): 4294967296 days since 1970 are out of the range"):
        moment.checked([Change((0, 2**32, Decimal(1)), 1, 1, 5)])


def test_items_that_are_right_are_taken_as_they_are() -> None:
    check = ItemCheck("s", parse_schema(SCHEMA))
    items = [GOOD, 3, Change((2, None, 2.5), 4, 4, 9)]
    assert all(left is right for left, right in zip(check.checked(items), items, strict=True))
    (nan,) = check.checked([Change((1, None, float("nan")), 1, 1, 5)])
    assert isinstance(nan, Change)
    assert nan.row[2] is NAN


def test_no_query_goes_on_behind_an_error_of_an_entrance(implementation: str) -> None:
    """Timeline: an insert is taken, and an adjust of no event ends the batch. Nothing of it may be adjusted later."""
    run = QueryRun({"n": source("s", {"k": "int"}).where(col.k > 0).node}, implementation=implementation)
    assert run.take("s", [Change((1,), 0, 0, 9)])
    with pytest.raises(InputViolation, match="unknown-event"):
        run.take("s", [Change((1,), 1, 1, 5), Change((1,), 2, 5, 7)])
    for go_on in (lambda: run.take("s", [Change((1,), 1, 5, 9)]), run.end, run.dump, lambda: run.advance("s", 50)):
        with pytest.raises(UsageError, match=r"the run cannot go on behind an error .* \(unknown-event\)"):
            go_on()


def test_a_stable_point_beside_a_rule_ends_the_run_as_well(implementation: str) -> None:
    settings = {"s": SourceSettings(ProgressRule())}
    run = QueryRun({"n": source("s", {"k": "int"}).where(col.k > 0).node}, settings, implementation=implementation)
    with pytest.raises(UsageError, match="declares stable"):
        run.take("s", [Change((1,), 1, 1, 5), 4])
    with pytest.raises(UsageError, match="the run cannot go on"):
        run.take("s", [Change((1,), 1, 5, 9)])
