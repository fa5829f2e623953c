"""Relations that need no oracle (TESTING 7, R1 and R2): what must hold, what is refused, and what is found by them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import lmerge.temporal as lt
from lmerge.core.elements import INF, Adjust, Element, Insert, Stable
from lmerge.errors import UsageError
from lmerge.testing import FunctionSystem, check_relations
from lmerge.testing.checking.relations import RELATIONS
from lmerge.testing.streams.batches import InputBatch

FLIGHTS = lt.source("flights", {"origin": "string", "delay": "int?"})
BY_AIRPORT = FLIGHTS.group_by("origin").hopping(6, 4).agg(n=lt.count(), form="eager")
SAME = FLIGHTS.shift(0)


def test_every_relation_holds_for_a_query_by_key() -> None:
    """R1, R2 (6.3): relations need no oracle."""
    names = [name for name in RELATIONS.names() if name != "disjoint-unions"]  # it has no union
    for verdict in check_relations(BY_AIRPORT, names, key="origin", rounds=4):
        assert not verdict.is_bad, str(verdict)
        assert not verdict.refused, str(verdict)


def test_a_split_that_does_not_hold_is_found() -> None:
    (verdict,) = check_relations(FLIGHTS.tumbling(5).agg(n=lt.count()), ["split-by-key"], key="origin")
    assert verdict.is_bad
    assert verdict.differences
    assert "events differ" in str(verdict)


@pytest.mark.parametrize(
    ("query", "relation", "data", "reason"),
    [
        (BY_AIRPORT, "other-disorder", {"duration": "infinite", "contact": "free"}, "have windows on a grid for ever"),
        (BY_AIRPORT, "split-by-key", {}, "needs the column that is the key"),
        (FLIGHTS.hopping(5, 2**41 + 1).agg(n=lt.count()), "time-shift", {}, "have no common multiple"),
        (FLIGHTS.select(f=lt.col.delay.is_null()), "ternary", {}, "has no column of numbers or texts"),
    ],
)
def test_a_relation_that_cannot_hold_is_refused_with_the_reason(
    query: lt.Stream, relation: str, data: dict[str, object], reason: str
) -> None:
    """R1 (6.3): such as a shift by no multiple of the hop."""
    (verdict,) = check_relations(query, [relation], data=data)
    assert not verdict.is_bad
    assert reason in verdict.refused
    assert "refused" in str(verdict)


def test_an_unknown_relation_names_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="there is no relation 'symmetry'; there are other-disorder"):
        check_relations(SAME, ["symmetry"])


class LatestOnly:
    """A query of a user's own with a defect: it forgets an event that comes behind a later one."""

    def __init__(self) -> None:
        self._latest = -(2**62)

    def __call__(self, batch: InputBatch) -> Iterable[Element]:
        for one in batch.elements:
            if isinstance(one, Insert) and one.vs < self._latest:
                continue
            if isinstance(one, Insert):
                self._latest = one.vs
            if not isinstance(one, Adjust):
                yield one


def test_a_query_without_sql_that_depends_on_the_order_is_found() -> None:
    system = FunctionSystem(LatestOnly, "latest only")
    other, none = check_relations(SAME, ["other-disorder", "time-shift"], system=system)
    assert other.is_bad
    assert not none.is_bad


class Endless:
    """A query that never ends."""

    def __call__(self, batch: InputBatch) -> Iterable[Element]:
        return [one for one in batch.elements if one != Stable(INF)]


def test_a_system_that_does_not_end_is_found_and_the_other_relations_go_on() -> None:
    found = check_relations(SAME, ["time-shift", "other-batching"], system=FunctionSystem(Endless, "endless"))
    assert all("its sources have ended, and it is at stable" in verdict.problem for verdict in found)
