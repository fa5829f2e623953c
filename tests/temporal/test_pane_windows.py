"""Hopping windows that share the states of panes (M5): what windows with states of their own give, for fewer calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pytest
from window_batches import READINGS, outcomes, random_deltas

import lmerge.temporal as lt
from lmerge.core.elements import INF, NEG_INF
from lmerge.core.engines import selection
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.columns import AnyDelta
from lmerge.temporal.modules.kinds import IncrementalAggregate, IncrementalOperator, Mergeable
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.windows.pane_group import PaneGroup

FORMS = ("final", "settled")


class PaneSum(IncrementalAggregate[int, list[int], int], Mergeable[int, list[int]]):
    """The sum of the rows. ``calls``: how many rows were added and removed, and how many states were merged."""

    name = "pane_sum"
    inputs: ClassVar = {"n": "int"}
    result = "int"
    calls: ClassVar[dict[str, int]] = {}

    def begin(self) -> list[int]:
        return [0]

    def add(self, state: list[int], rows: Sequence[int]) -> list[int]:
        self.calls["add"] = self.calls.get("add", 0) + len(rows)
        state[0] += sum(rows)
        return state

    def remove(self, state: list[int], rows: Sequence[int]) -> list[int]:
        state[0] -= sum(rows)
        return state

    def merge(self, state: list[int], other: list[int]) -> list[int]:
        self.calls["merge"] = self.calls.get("merge", 0) + 1
        state[0] += other[0]
        return state

    def compute(self, state: list[int]) -> int:
        return state[0]


class PaneRows(IncrementalOperator[int, list[int]], Mergeable[int, list[int]]):
    """Each row of the window."""

    name = "pane_rows"
    inputs: ClassVar = {"n": "int"}
    results: ClassVar = {"n": "int"}

    def begin(self) -> list[int]:
        return []

    def add(self, state: list[int], rows: Sequence[int]) -> list[int]:
        return sorted([*state, *rows])

    def remove(self, state: list[int], rows: Sequence[int]) -> list[int]:
        for row in rows:
            state.remove(row)
        return state

    def merge(self, state: list[int], other: list[int]) -> list[int]:
        return sorted([*state, *other])

    def compute(self, state: list[int]) -> list[tuple[int]]:
        return [(row,) for row in state]


def pane_queries(form: str) -> Iterator[lt.Stream]:
    total = lt.method_of(PaneSum)(of=[lt.col.n])
    for stream in (READINGS, READINGS.group_by("key")):
        yield stream.hopping(8, 2).agg(total=total, n=lt.count(), form=form)
        yield stream.hopping(20, 4, offset=-3, since=3).agg(total=total, form=form)
        yield stream.hopping(8, 1).apply(lt.method_of(PaneRows)(of=[lt.col.n]), form=form)


def as_columns(delta: Delta) -> AnyDelta:
    from lmerge.temporal.native.step import column_form

    return column_form(READINGS.node.schema).batch(delta.changes, delta.stable, delta.mark)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(8))
def test_panes_give_what_windows_of_their_own_give(form: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    deltas = random_deltas(seed)
    for query in pane_queries(form):
        of_panes = [repr(step) for step in steps(query, deltas)]
        with monkeypatch.context() as patched:
            patched.setattr(PaneGroup, "suits", staticmethod(lambda rules: False))
            assert [repr(step) for step in steps(query, deltas)] == of_panes


def steps(query: lt.Stream, deltas: Sequence[AnyDelta]) -> list[list[Delta]]:
    graph = compile_plan([query.node]).graph("python")
    found = []
    for delta in deltas:
        found.append(graph.step([delta]))
        graph.check()
    return found


@pytest.mark.skipif(selection.native_problem() is not None, reason="the native core is not built")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(8))
def test_columns_give_what_rows_give_with_panes(form: str, seed: int) -> None:
    deltas = random_deltas(seed)
    for query in pane_queries(form):
        assert outcomes(query, [*map(as_columns, deltas)]) == outcomes(query, deltas)


@pytest.mark.parametrize("form", FORMS)
def test_panes_go_on_after_a_restore(form: str) -> None:
    deltas = random_deltas(3)
    for query in pane_queries(form):
        plan = compile_plan([query.node])
        graph, expected = plan.graph("python"), [repr(step) for step in steps(query, deltas)]
        found = []
        for delta in deltas:
            found.append(repr(graph.step([delta])))
            state = graph.state()
            graph = plan.graph("python")
            graph.restore(state)
            graph.check()
            assert graph.state() == state
        assert found == expected


def test_an_event_is_added_once_where_many_windows_overlap() -> None:
    PaneSum.calls.clear()
    query = READINGS.hopping(60, 1).agg(total=lt.method_of(PaneSum)(of=[lt.col.n]))
    changes = [Change(("a", 1, 0.5), at, at, at + 1) for at in range(100)]
    (found,) = compile_plan([query.node]).graph("python").step([Delta(changes, INF, 99)])
    assert len(found.changes) == 159
    assert PaneSum.calls["add"] == 100
    assert PaneSum.calls["merge"] == 60 * 100


def test_an_event_over_several_panes_counts_once_in_a_window() -> None:
    query = READINGS.hopping(8, 2).agg(n=lt.method_of(PaneSum)(of=[lt.col.n]))
    (found,) = compile_plan([query.node]).graph("python").step([Delta([Change(("a", 1, 0.5), 1, 1, 7)], INF, 1)])
    assert {change.row for change in found.changes} == {(1,)}
    assert [(change.vs, change.new) for change in found.changes] == [(at, at + 8) for at in range(-6, 8, 2)]


NEAR_THE_BEGINNING = Change(("a", 1, 0.5), NEG_INF + 1, NEG_INF + 1, NEG_INF + 3)
NEAR_THE_END = Change(("a", 1, 0.5), INF - 3, INF - 3, INF - 1)


@pytest.mark.parametrize("implementation", ["python", "native"])
@pytest.mark.parametrize("form", ["final", "settled", "watermark", "eager"])
def test_windows_at_the_ends_of_time_have_ends_within_it(implementation: str, form: str) -> None:
    if implementation == "native" and selection.native_problem() is not None:
        pytest.skip("the native core is not built")
    for size, spans in ((5, [(INF - 5 - (INF - 5) % 5 + at, 5) for at in (0, 5)]), (2**62, None)):
        query = READINGS.tumbling(size).agg(n=lt.count(), form=form)
        graph = compile_plan([query.node]).graph(implementation)
        (found,) = graph.step([Delta([NEAR_THE_END], INF, INF - 3)])
        assert all(change.new <= INF for change in found.changes)
        if spans is not None:
            assert [(one.vs, one.new) for one in found.changes] == [(vs, min(INF, vs + 5)) for vs, _ in spans]


@pytest.mark.parametrize("implementation", ["python", "native"])
def test_an_event_before_the_first_window_of_a_grid_is_refused(implementation: str) -> None:
    if implementation == "native" and selection.native_problem() is not None:
        pytest.skip("the native core is not built")
    for query in (READINGS.tumbling(5), READINGS.hopping(20, 2)):
        graph = compile_plan([query.agg(n=lt.count()).node]).graph(implementation)
        with pytest.raises(LmergeError, match=r"starts at -9223372036854775807, where .* has no first window"):
            graph.step([Delta([NEAR_THE_BEGINNING], None, None)])


@pytest.mark.parametrize("form", FORMS)
def test_an_event_that_begins_behind_its_streams_time_is_in_the_windows_that_have_begun(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As what a window of an operator before emits when its input ends: its starts are behind the watermark."""
    row = ("a", 1, 0.5)
    deltas = [
        Delta([Change(row, start, start, start + 10) for start in range(0, 60, 2)], 60, 0),
        Delta([Change(row, start, start, start + 10) for start in (60, 62, 81)], 61, 60),
        Delta([Change(row, 200, 200, 204)], 63, 62),
        Delta([Change(row, start, start, start + 3) for start in (63, 64, 90)], 150, 90),
        Delta([], 160, 155),
        Delta([Change(row, 170, 170, 171)], INF, None),
    ]
    forms: list[Sequence[AnyDelta]] = (
        [deltas] if selection.native_problem() is not None else [deltas, [*map(as_columns, deltas)]]
    )
    for query in pane_queries(form):
        found = [[repr(step) for step in steps(query, given)] for given in forms]
        with monkeypatch.context() as patched:
            patched.setattr(PaneGroup, "suits", staticmethod(lambda rules: False))
            expected = [repr(step) for step in steps(query, deltas)]
        assert all(one == expected for one in found)
