"""Snapshots of runs: what they refuse, with the difference, and how damage is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from lmerge.temporal.changes import Change
from lmerge.temporal.entrance import LatePolicy, ProgressRule
from lmerge.temporal.errors import PlanError, SnapshotDamaged
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.differences import plan_differences
from lmerge.temporal.plan.json_format import plan_to_json
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.stream import Stream, aggregate, count, source
from lmerge.temporal.running import QueryRun, SourceSettings
from lmerge.temporal.runs.snapshots import dump_snapshot, load_snapshot

SETTINGS = {"numbers": SourceSettings(ProgressRule(delay=2), LatePolicy.DROP)}


def counted(least: int = 0, size: int = 5) -> Stream:
    numbers = source("numbers", {"a": "int", "b": "int"}).where(col.b >= least)
    return numbers.group_by("a").tumbling(size).agg(n=count())


def begun() -> QueryRun:
    run = QueryRun({"n": counted().node}, SETTINGS)
    run.take("numbers", [Change((0, 1), at, at, at + 2) for at in (1, 4, 9, 2)])
    return run


def test_a_run_goes_on_with_its_settings_and_its_counts_of_late_events() -> None:
    run = begun()
    again = QueryRun.load(run.dump(), {"n": counted().node})
    assert again.entrances["numbers"].dropped == run.entrances["numbers"].dropped == 1
    later = [Change((0, 1), at, at, at + 2) for at in (12, 3, 30)]
    assert again.take("numbers", later) == run.take("numbers", later)
    assert again.dump() == run.dump()


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"n": counted(least=1).node}, r"n > aggregate > filter: predicate was .*0.*, and is .*1"),
        ({"n": counted(size=6).node}, r"n > aggregate: window was .*5.*, and is .*6"),
        ({"n": counted().where(col.n > 1).node}, "n > filter: it was aggregate, and is filter"),
        ({"m": counted().node}, "it had the result 'n'; it did not have the result 'm'"),
        ({"n": counted().named("per a").node}, 'n > per a: label was null, and is "per a"'),
        (
            {"n": source("numbers", {"a": "int"}).group_by("a").tumbling(5).agg(n=count()).node},
            "n > aggregate: it read|filter",
        ),
    ],
)
def test_a_snapshot_of_another_plan_is_refused_with_what_differs(outputs: dict[str, PlanNode], message: str) -> None:
    with pytest.raises(PlanError, match=f"the snapshot is one of another plan: .*{message}"):
        QueryRun.load(begun().dump(), outputs)


def test_other_settings_are_refused() -> None:
    data = begun().dump()
    with pytest.raises(PlanError, match="source 'numbers' were delay=2, every=0, events=0, late: drop, and are stable"):
        QueryRun.load(data, {"n": counted().node}, {"numbers": SourceSettings()})
    QueryRun.load(data, {"n": counted().node}, SETTINGS)


def test_another_version_of_a_module_is_named() -> None:
    documents = [plan_to_json({"n": counted().node}) for _ in range(2)]
    call = next(node for node in documents[1]["nodes"] if node["kind"] == "aggregate")["calls"][0]
    call["version"] = "2"
    (found,) = plan_differences(*documents)
    assert found.startswith("n > aggregate: calls was ")
    assert '"version": "2"' in found


def test_a_snapshot_without_the_query_is_refused() -> None:
    with pytest.raises(PlanError, match="no query 'other'; it has main"):
        QueryRun.load(begun().dump(), {"n": counted().node}, name="other")


def test_several_differences_are_counted() -> None:
    plain = source("numbers", {"a": "int", "b": "int"})
    old = {f"o{at}": plain.where(col.a > at).node for at in range(7)}
    new = {f"o{at}": plain.where(col.a > at + 1).node for at in range(7)}
    with pytest.raises(PlanError, match="and 2 more"):
        QueryRun.load(QueryRun(old).dump(), new)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "checksum does not match"),
        (lambda data: data[:30], "checksum does not match"),
        (lambda data: data[:10], "begin otherwise"),
        (lambda data: b"", "begin otherwise"),
        (lambda data: data.replace(b"snapshot 2", b"snapshot 7"), "have version b'7'"),
        (lambda data: data[:-5] + b"\0" + data[-4:], "checksum does not match"),
        (lambda data: dump_snapshot({}), "KeyError"),
        (lambda data: dump_snapshot(load_snapshot(data) | {"parts": [{"name": "x"}]}), "KeyError"),
        (lambda data: dump_snapshot(load_snapshot(data) | {"queries": 5}), "TypeError"),
        (lambda data: dump_snapshot(cast(Any, [])), "hold list"),
    ],
)
def test_bytes_that_are_no_snapshot_are_named(damage: Callable[[bytes], bytes], message: str) -> None:
    with pytest.raises(SnapshotDamaged, match=message):
        QueryRun.load(damage(begun().dump()), {"n": counted().node})


def test_a_snapshot_is_read_whatever_the_plan_computes() -> None:
    percentiles = counted().snapshot().agg(p=aggregate("percentile_cont", col.n, p=0.5), form="eager")
    run = QueryRun({"p": percentiles.node})
    for at in range(12):
        run.take("numbers", [Change((at % 3, 1), at, at, at + 4), at - 3])
    assert QueryRun.load(run.dump(), {"p": percentiles.node}).dump() == run.dump()


@pytest.mark.parametrize("recorded", [0, 10])
def test_a_restored_run_keeps_the_live_events_of_its_sources_only_if_it_records(recorded: int) -> None:
    outputs = {"all": source("numbers", {"a": "int"}).node}
    run = QueryRun(outputs, recorded=recorded)
    run.take("numbers", [Change((1,), 0, 0, 9)])
    again = QueryRun(outputs, recorded=recorded, resume=run.snapshot())
    assert len(again.recorders["numbers"].record().events) == (1 if recorded else 0)
