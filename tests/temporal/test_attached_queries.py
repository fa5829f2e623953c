"""Queries that come to a run and leave it: what they share, when they begin, and that each one fails alone (S15)."""

from __future__ import annotations

import plan_modules  # noqa: F401  (it registers its modules)
import pytest

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import UsageError
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.functions import scalar_function
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.beginnings import FROM_THE_START, Opening, StreamBeginning, opening
from lmerge.temporal.plan.stream import Stream, count, module, source
from lmerge.temporal.running import QueryRun

CALLS: list[int] = []


@scalar_function(["int"], "int")
def traced(value: int) -> int:
    """Return the value, and note the call."""
    CALLS.append(value)
    return value


@scalar_function(["int"], "int")
def of_positive(value: int) -> int:
    """Return the value, if it is positive."""
    if value <= 0:
        raise ValueError(f"{value} is not positive")
    return value


def numbers(name: str = "numbers") -> Stream:
    return source(name, {"a": "int", "b": "int"})


def begun(**streams: Stream) -> QueryRun:
    """Return a run with events [1, 20) and [2, 4), stable at 6."""
    run = QueryRun({name: stream.node for name, stream in streams.items()}, attachable=True)
    run.take("numbers", [Change((1, 1), 1, 1, 20), Change((2, 2), 2, 2, 4), 6])
    return run


def events(delta: Delta) -> list[tuple[int, ...]]:
    return [(*change.row, change.vs, change.new) for change in delta.changes]


# What is shared, and when a query begins.


def test_a_common_part_is_computed_once_and_its_live_events_are_the_beginning() -> None:
    CALLS.clear()
    shared = numbers().select("a", c=traced(col.b))
    run = begun(all=shared)
    attached = run.attach("more", {"some": shared.where(col.c > 0).node, "same": shared.node})
    assert len(CALLS) == 2
    assert events(attached.first["some"]) == events(attached.first["same"]) == [(1, 1, 1, 20)]
    assert attached.begins == {"some": StreamBeginning(6), "same": StreamBeginning(6)}
    (step,) = run.take("numbers", [Change((3, 3), 7, 7, 9)])
    assert len(CALLS) == 3
    assert {name: events(delta) for name, delta in step.items()} == {name: [(3, 3, 7, 9)] for name in step}
    assert [part.name for part in run.parts] == ["select", "filter"]


def test_windows_begin_where_all_their_members_are_there() -> None:
    """The example of ``plan.beginnings``."""
    run = begun(all=numbers())
    grid = run.attach("grid", {"grid": numbers().tumbling(5).agg(n=count(), form="eager").node})
    assert grid.begins == {"grid": StreamBeginning(10)}
    assert events(grid.first["grid"]) == [(1, 5, 10)]
    snapshots = run.attach("snapshots", {"snapshots": numbers().snapshot().agg(n=count(), form="eager").node})
    assert snapshots.begins == {"snapshots": StreamBeginning(6, by_end=False)}
    assert events(snapshots.first["snapshots"]) == []
    (step,) = run.take("numbers", [Change((5, 5), 8, 8, 30)])
    assert events(step["snapshots"]) == [(2, 8, 20)]


def test_parts_without_a_partner_begin_where_one_can_have_gone() -> None:
    """The event [2, 4) has gone, and without it all of [1, 20) would be without a partner, not [4, 20)."""
    run = begun(all=numbers())
    left, right = numbers().select(x=1, a=col.a).where(col.a == 1), numbers().select(x=1, a=col.a).where(col.a == 2)
    lone = run.attach("lone", {"lone": left.join(right, on="x", how="anti").node})
    assert lone.begins == {"lone": StreamBeginning(6, by_end=False)}
    assert events(lone.first["lone"]) == []
    (step,) = run.take("numbers", [Change((2, 2), 7, 7, 9)])
    assert events(step["lone"]) == [(1, 1, 9, 20)]


def test_windows_that_have_begun_are_there_at_once() -> None:
    """The window [10, 15) has begun by an event that was removed; only the watermark shows it."""
    run = QueryRun({"all": numbers().node}, attachable=True)
    run.take("numbers", [Change((1, 1), 1, 1, 30), Change((2, 2), 12, 12, 14), Change((2, 2), 12, 14, 12), 6])
    attached = run.attach("grid", {"grid": numbers().tumbling(5).agg(n=count(), form="eager").node})
    assert events(attached.first["grid"]) == [(1, 5, 10), (1, 10, 15)]


@pytest.mark.parametrize(
    ("make", "inputs", "expected"),
    [
        (lambda s: s.where(col.a > 0), StreamBeginning(6), Opening(StreamBeginning(6))),
        (lambda s: s.shift(3), StreamBeginning(6), Opening(StreamBeginning(9))),
        (lambda s: s.shift(3), StreamBeginning(6, by_end=False), Opening(StreamBeginning(9, by_end=False))),
        (lambda s: s.extend(3), StreamBeginning(6), Opening(StreamBeginning(9))),
        (lambda s: s.clip_duration(3), StreamBeginning(6), Opening(StreamBeginning(6))),
        (lambda s: s.set_duration(3), StreamBeginning(6), Opening(StreamBeginning(8))),
        (lambda s: s.at_end(3), StreamBeginning(6), Opening(StreamBeginning(9))),
        (lambda s: s.hopping(10, 4).agg(n=count()), StreamBeginning(6), Opening(StreamBeginning(18), 8)),
        (
            lambda s: s.hopping(10, 4).agg(n=count(), output="point-at-end"),
            StreamBeginning(6),
            Opening(StreamBeginning(18), 17),
        ),
        (lambda s: s.snapshot().agg(n=count()), StreamBeginning(6), Opening(StreamBeginning(6, by_end=False), 6)),
        (lambda s: s.sessions(4).agg(n=count()), StreamBeginning(6), Opening(StreamBeginning(10, by_end=False), 10)),
        (lambda s: s.edges("a"), StreamBeginning(6), Opening(StreamBeginning(6, by_end=False), 6)),
        (lambda s: s.coalesce(), StreamBeginning(6), Opening(StreamBeginning(6, by_end=False), 6)),
        (lambda s: s.count_windows(2).agg(n=count()), FROM_THE_START, Opening(FROM_THE_START)),
    ],
)
def test_each_operator_begins_by_its_rule(make: object, inputs: StreamBeginning, expected: Opening) -> None:
    assert callable(make)
    assert opening(make(numbers()).node, [inputs]) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: s.count_windows(2).agg(n=count()).tumbling(5).agg(n=count()), "aggregate.* cannot begin"),
        (lambda s: s.count_windows(2).agg(n=count(), output="point-at-end"), "aggregate.* cannot begin"),
        (lambda s: s.as_of(s.select("a", c=col.b), "a"), "as_of.* cannot begin .* end at or behind 6"),
        (lambda s: s.snapshot().agg(n=count()).at_end(), "lifetime.* cannot begin .* start at or behind 6"),
        (lambda s: s.snapshot().agg(n=count()).join(s, where=col.a > 0), "join.* cannot begin"),
    ],
)
def test_a_plan_that_can_never_be_right_is_refused(make: object, message: str) -> None:
    assert callable(make)
    run = begun(all=numbers())
    with pytest.raises(PlanError, match=message):
        run.attach("late", {"late": make(numbers()).node})
    assert list(run.queries) == ["main"]
    assert run.parts == ()


def test_a_table_that_runs_already_gives_what_a_new_operator_could_not_compute() -> None:
    """Coalesced, the second event goes back to 1; only the operator that has seen the first one has that."""
    joined = numbers().select("a").coalesce()
    run = QueryRun({"all": joined.node}, attachable=True)
    run.take("numbers", [Change((1, 1), 1, 1, 5), Change((1, 2), 5, 5, 30), 9])
    shared = run.attach("late", {"late": joined.where(col.a > 0).node})
    assert (events(shared.first["late"]), shared.begins["late"]) == ([(1, 1, 30)], StreamBeginning(9))


def test_a_query_can_bring_a_source_of_its_own() -> None:
    run = begun(all=numbers())
    both = numbers().union(numbers("others"))
    attached = run.attach("both", {"both": both.node})
    assert attached.begins["both"] == StreamBeginning(6)
    (step,) = run.take("others", [Change((9, 9), 3, 3, 8)])
    assert events(step["both"]) == [(9, 9, 3, 8)]
    run.detach("both")
    with pytest.raises(UsageError, match="no source 'others'"):
        run.take("others", [7])


def test_what_cannot_be_attached_is_named() -> None:
    run, other = begun(all=numbers()), {"other": numbers().where(col.a > 0).node}
    with pytest.raises(UsageError, match="'late' cannot be attached: the run does not keep"):
        QueryRun({"all": numbers().node}).attach("late", other)
    with pytest.raises(UsageError, match="there is a query 'main'"):
        run.attach("main", other)
    with pytest.raises(UsageError, match="there is a result 'all'"):
        run.attach("late", {"all": numbers().node})
    with pytest.raises(PlanError, match="two different sources are named 'numbers'"):
        run.attach("late", {"late": source("numbers", {"a": "int"}).node})
    with pytest.raises(UsageError, match="no query 'late' in the run; there are main"):
        run.detach("late")
    run.take("numbers", [INF])
    with pytest.raises(PlanError, match="source 'numbers' has ended"):
        run.attach("late", other)


def test_what_only_a_query_reads_goes_with_it() -> None:
    shared = numbers().where(col.a > 0)
    run = begun(all=shared)
    run.attach("late", {"late": shared.snapshot().agg(n=count()).node})
    assert [part.name for part in run.parts] == ["filter", "aggregate"]
    run.detach("late")
    assert [part.name for part in run.parts] == ["filter"]
    (step,) = run.take("numbers", [Change((3, 3), 7, 7, 9)])
    assert list(step) == ["all"]
    run.attach("late", {"late": shared.node})


# Failures.


def positive(stream: Stream) -> Stream:
    return stream.select("a", c=of_positive(col.b))


def test_a_query_that_fails_ends_alone_with_its_error() -> None:
    run = begun(all=numbers())
    run.attach("late", {"late": positive(numbers()).node, "other": numbers().where(col.a > 0).node})
    run.attach("third", {"third": numbers().shift(1).node})
    (step,) = run.take("numbers", [Change((3, 0), 7, 7, 9)])
    assert {name: events(delta) for name, delta in step.items()} == {"all": [(3, 0, 7, 9)], "third": [(3, 0, 8, 10)]}
    assert isinstance(run.failed["late"], ModuleViolation)
    assert "of_positive" in str(run.failed["late"])
    assert list(run.queries) == ["main", "third"]
    run.attach("late", {"late": numbers().node})
    assert run.failed == {}


def test_a_shared_part_that_fails_ends_the_queries_that_read_it() -> None:
    shared = positive(numbers())
    run = begun(all=shared)
    run.attach("late", {"late": shared.where(col.c > 1).node})
    run.attach("third", {"third": numbers().node})
    (step,) = run.take("numbers", [Change((3, 0), 7, 7, 9)])
    assert list(step) == ["third"]
    assert set(run.failed) == {"main", "late"}
    assert run.failed["main"] is run.failed["late"]
    (step,) = run.take("numbers", [Change((4, 4), 7, 7, 9)])
    assert events(step["third"]) == [(4, 4, 7, 9)]


def test_the_error_of_the_last_query_is_raised() -> None:
    run = begun(all=positive(numbers()))
    with pytest.raises(ModuleViolation, match="of_positive"):
        run.take("numbers", [Change((3, 0), 7, 7, 9)])
    with pytest.raises(ModuleViolation, match="of_positive"):
        run.take("numbers", [Change((3, 1), 7, 7, 9)])


def test_a_query_that_fails_over_what_is_there_does_not_begin() -> None:
    run = QueryRun({"all": numbers().node}, attachable=True)
    run.take("numbers", [Change((3, 0), 7, 7, 9)])
    with pytest.raises(ModuleViolation, match="of_positive"):
        run.attach("late", {"late": positive(numbers()).node})
    assert list(run.queries) == ["main"]
    assert run.parts == ()


# Feedback.


def test_what_results_share_goes_by_the_least_that_they_ask_for() -> None:
    shared = numbers().where(col.a > 0)
    run = begun(all=shared)
    run.attach("late", {"late": shared.shift(5).node})
    assert run.fast_forward("all", 30) == {"numbers": NEG_INF}
    assert run.fast_forward("late", 20) == {"numbers": 15}
    run.take("numbers", [Change((3, 3), 7, 7, 12), Change((3, 3), 7, 7, 15)])
    assert run.parts[0].operator.skipped == 1
    run.detach("late")
    assert run.fast_forward("all", 10) == {"numbers": 30}
    with pytest.raises(UsageError, match="no result 'late' in the run; there are all"):
        run.fast_forward("late", 20)


def test_a_query_over_a_stream_that_was_asked_for_less_begins_there() -> None:
    shared = numbers().where(col.a > 0)
    run = begun(all=shared)
    run.fast_forward("all", 30)
    attached = run.attach("late", {"late": shared.shift(5).node, "source": numbers().node})
    assert attached.begins == {"late": StreamBeginning(35), "source": StreamBeginning(30)}


def test_a_module_by_name_is_attached_as_well() -> None:
    run = begun(all=numbers())
    (begins,) = run.attach("late", {"late": numbers().tumbling(5).apply(module("each_once")).node}).begins.values()
    assert begins == StreamBeginning(10)
