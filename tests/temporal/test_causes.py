"""Root causes: the events behind a result are enough for it, and no other group or window is among them (S16)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from plan_generator import ended, random_history, random_plan
from run_world import sources_of

from lmerge.core.elements import INF
from lmerge.errors import UsageError
from lmerge.temporal.changes import NOTHING_CHANGES, Change, Lifetime
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.stream import Stream, aggregate, count, source
from lmerge.temporal.running import QueryRun, ResultTable
from lmerge.temporal.runs import causes
from lmerge.temporal.runs.causes import why
from lmerge.temporal.runs.recording import SourceRecord, SourceRecorder


def computed(node: PlanNode, records: dict[str, SourceRecord]) -> ResultTable:
    """Compute a plan over records as a run does, with its span operators in one pass."""
    plan, table = compile_plan([node]), ResultTable()
    graph = plan.graph()
    batches = [records[one.label].batches() for one in plan.sources]
    for at in range(2):
        (delta,) = graph.step([of_source[at] if at < len(of_source) else NOTHING_CHANGES for of_source in batches])
        table.apply(delta)
    return table


@pytest.mark.parametrize("first", range(0, 240, 60))
def test_the_events_behind_a_result_are_enough_for_it(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = completed = 0

    def counted(*arguments: object) -> object:
        nonlocal completed
        completed += 1
        return complete(*arguments)  # type: ignore[arg-type]  # as they are given

    complete = causes._completed
    monkeypatch.setattr(causes, "_completed", counted)
    for seed in range(first, first + 60):
        random_ = Random(seed)
        plan = random_plan(random_)
        names = sources_of(plan.nodes)
        run, tables = QueryRun(plan.nodes, recorded=1000), {name: ResultTable() for name in plan.outputs}
        history = random_history(random_, names)
        for name, item in history if random_.random() < 0.5 else ended(history, names):
            for step in run.take(name, [item]):
                for output, delta in step.items():
                    tables[output].apply(delta)
        records = {name: kept.record() for name, kept in run.recorders.items()}
        for output, node in plan.nodes.items():
            events = sorted(tables[output].events, key=lambda event: (event.vs, event.ve, repr(event.row)))
            for event in random_.sample(events, min(3, len(events))):
                asked += 1
                found = run.why(output, event)
                alone = {name: records[name]._replace(events=tuple(chosen)) for name, chosen in found.items()}
                assert event in computed(node, alone).events
                assert all(set(chosen) <= set(records[name].events) for name, chosen in found.items())
    assert asked > 100
    assert completed <= asked * 0.05


def numbers() -> Stream:
    return source("numbers", {"a": "int", "b": "int"})


ROWS = [
    Lifetime((1, 1), 0, 4),
    Lifetime((1, 2), 3, 8),
    Lifetime((2, 3), 0, 20),
    Lifetime((1, 4), 6, 7),
    Lifetime((1, 5), 12, 13),
    Lifetime((1, 2), 3, 8),
    Lifetime((3, 0), 0, 5),
    Lifetime((3, 1), 6, 7),
]


def in_groups(sub_plan: Callable[[Stream], Stream], *, keys: bool = True) -> Stream:
    return numbers().group_by("a").apply(lambda group: sub_plan(group.select("b")), keys=keys)


@pytest.mark.parametrize(
    ("stream", "event", "expected"),
    [
        (numbers().where(col.b > 1), Lifetime((1, 2), 3, 8), [1, 5]),
        (numbers().select("a", c=col.b * 2).shift(2), Lifetime((1, 4), 5, 10), [1, 5]),
        (numbers().group_by("a").tumbling(5).agg(n=count()), Lifetime((1, 3), 0, 5), [0, 1, 5]),
        (numbers().group_by("a").tumbling(5).agg(n=count()), Lifetime((1, 3), 5, 10), [1, 5, 3]),
        (numbers().group_by("a").tumbling(5).agg(n=count()), Lifetime((3, 1), 5, 10), [7]),
        (numbers().group_by("a").snapshot().agg(n=count()), Lifetime((1, 3), 3, 4), [0, 1, 5]),
        (numbers().group_by("a").snapshot().agg(n=count()), Lifetime((1, 2), 4, 6), [0, 1, 5, 3]),
        (numbers().group_by("a").count_windows(2).agg(n=count()), Lifetime((1, 3), 3, 7), [1, 5, 3]),
        (numbers().group_by("a").sessions(3).agg(n=count()), Lifetime((1, 4), 0, 8), [0, 1, 5, 3]),
        (numbers().select("a").coalesce(), Lifetime((1,), 0, 8), [0, 1, 5, 3]),
        (numbers().edges("a"), Lifetime((1, 4), 6, 12), [3, 4]),
        (numbers().without(numbers().where(col.b > 3).select("a"), "a"), Lifetime((1, 2), 3, 6), [1, 5, 3]),
        (
            numbers().as_of(numbers().where(col.b < 3).select("a", c=col.b), "a"),
            Lifetime((1, 5, 1, 2), 12, 13),
            [1, 5, 4],
        ),
        (numbers().group_by("a").tumbling(5).top(1, by=col.b.desc()), Lifetime((1, 2, 1), 0, 5), [0, 1, 5]),
        (
            numbers().group_by("a").tumbling(5).agg(s=aggregate("sum", col.b)).where(col.s > 4),
            Lifetime((1, 8), 5, 10),
            [1, 5, 3],
        ),
        (in_groups(lambda group: group.tumbling(5).agg(n=count())), Lifetime((1, 3), 0, 5), [0, 1, 5]),
        (in_groups(lambda group: group.tumbling(5).agg(n=count())), Lifetime((3, 1), 5, 10), [7]),
        (in_groups(lambda group: group.where(col.b > 2)), Lifetime((1, 4), 6, 7), [3]),
        (in_groups(lambda group: group), Lifetime((1, 5), 12, 13), [4]),
        (in_groups(lambda group: group.tumbling(5).agg(n=count()), keys=False), Lifetime((1,), 5, 10), [2, 7]),
        (
            in_groups(lambda group: group.group_by("b").apply(lambda one: one.select(c=col.b).coalesce())),
            Lifetime((1, 2, 2), 3, 8),
            [1, 5],
        ),
        (
            in_groups(lambda group: group.join(group.select(c=col.b), where=col.b < col.c).snapshot().agg(n=count())),
            Lifetime((1, 2), 6, 7),
            [1, 5, 3],
        ),
        (
            numbers()
            .group_by("a")
            .tumbling(5)
            .agg(n=count())
            .group_by(m=col.a % 2)
            .apply(lambda group: group.where(col.n > 1)),
            Lifetime((1, 1, 3), 5, 10),
            [1, 5, 3],
        ),
    ],
)
def test_no_event_of_another_group_or_window_is_among_them(
    stream: Stream, event: Lifetime, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causes, "TRIES_MAX", 0)  # the rules alone, without trying what else is needed
    records = {"numbers": SourceRecord(tuple(ROWS), has_ended=True)}
    assert event in computed(stream.node, records).events
    found = why(stream.node, records, event)["numbers"]
    assert found == sorted((ROWS[at] for at in expected), key=lambda one: (one.vs, one.ve, one.row))


def test_windows_of_a_group_begin_with_events_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "TRIES_MAX", 0)
    stream = in_groups(lambda group: group.tumbling(5).agg(n=count(), form="eager"))
    records = {"numbers": SourceRecord((Lifetime((1, 1), 0, 20), Lifetime((2, 2), 12, 13)), mark=12)}
    assert why(stream.node, records, Lifetime((1, 1), 10, 15)) == {"numbers": [Lifetime((1, 1), 0, 20)]}


def test_an_event_that_is_not_there_is_named() -> None:
    run = QueryRun({"n": numbers().tumbling(5).agg(n=count(), form="eager").node}, recorded=100)
    run.take("numbers", [Change((1, 1), 1, 1, 4)])
    assert run.why("n", Lifetime((1,), 0, 5)) == {"numbers": [Lifetime((1, 1), 1, 4)]}
    run.take("numbers", [Change((1, 1), 2, 2, 4)])
    with pytest.raises(UsageError, match=r"aggregate does not have \(1\) \[0, 5\) now"):
        run.why("n", Lifetime((1,), 0, 5))
    with pytest.raises(UsageError, match="no result 'm' in the run; there are n"):
        run.why("m", Lifetime((1,), 0, 5))
    with pytest.raises(UsageError, match="does not record"):
        QueryRun({"n": numbers().node}).why("n", Lifetime((1, 1), 0, 5))


def test_causes_go_back_to_every_source() -> None:
    joined = numbers().join(source("others", {"c": "int"}), where=col.c > col.b)
    records = {
        "numbers": SourceRecord((Lifetime((1, 1), 0, 9), Lifetime((1, 2), 0, 9))),
        "others": SourceRecord((Lifetime((2,), 4, 6), Lifetime((9,), 4, 6))),
    }
    assert why(joined.node, records, Lifetime((1, 1, 2), 4, 6)) == {
        "numbers": [Lifetime((1, 1), 0, 9)],
        "others": [Lifetime((2,), 4, 6)],
    }


def test_a_record_is_bounded_by_what_is_live_and_a_number_of_final_events() -> None:
    recorder = SourceRecorder(10)
    run = QueryRun({"all": numbers().node})
    changes = [Change((at, 0), at, at, INF if at % 4 == 0 else at + 1) for at in range(100)]
    for at, change in enumerate(changes):
        for delta in run.entrances["numbers"].take([change, at]):
            recorder.apply(delta)
    events = recorder.record().events
    assert len(events) <= 25 + 21
    assert recorder.dropped == 100 - len(events)
    assert {event for event in events if event.ve == INF} == {Lifetime((at, 0), at, INF) for at in range(0, 100, 4)}


def test_causes_are_found_after_a_snapshot_among_what_is_recorded_since() -> None:
    outputs = {"n": numbers().tumbling(5).agg(n=count(), form="eager").node}
    run = QueryRun(outputs, recorded=100)
    run.take("numbers", [Change((1, 1), 1, 1, 20), Change((2, 2), 2, 2, 3), 6])
    again = QueryRun(outputs, recorded=100, resume=run.snapshot())
    again.take("numbers", [Change((3, 3), 8, 8, 9)])
    assert len(again.why("n", Lifetime((2,), 5, 10))["numbers"]) == 2
    with pytest.raises(UsageError, match="are not kept any more"):
        again.why("n", Lifetime((2,), 0, 5))
