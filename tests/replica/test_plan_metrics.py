"""What a plan exports: its sources, its operators, and what feedback has saved."""

from __future__ import annotations

import re
from pathlib import Path

from client_world import MERGE, threaded_world
from prometheus_client import CollectorRegistry
from replica_world import flight_rows

from lmerge import Publisher
from lmerge.replica import PythonItems, Query, ReplicaOptions, ReplicaRun, after
from lmerge.replica.metrics import PlanMetrics
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.stream import count, source

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
SOURCE = source("flights", {"origin": "string", "delay": "int?"})
COUNTED = SOURCE.where(col.delay > 15).named("late").group_by(col.origin).tumbling(50).agg(n=count()).named("hours")
ROWS = flight_rows(600)


def replica_run(target: str, registry: CollectorRegistry, delay: int = 5, checkpoint: Path | None = None) -> ReplicaRun:
    query = Query({"p": COUNTED}, {"flights": PythonItems(items=ROWS, time="at", progress=after(delay))})
    run = ReplicaRun(
        query, None, servers=target, merge=MERGE, replica="a", options=ReplicaOptions(checkpoint=checkpoint)
    )
    PlanMetrics(registry, run)
    return run


def sample(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, {"merge": MERGE, "replica": "a", **labels})


def test_a_run_exports_its_sources_and_operators() -> None:
    registry = CollectorRegistry()
    with threaded_world() as world, replica_run(world.target, registry) as run:
        assert run.run()
        assert sample(registry, "lmerge_plan_source_elements_total", source="flights") == 601
        assert sample(registry, "lmerge_plan_source_stable_point_time", source="flights") == float("inf")
        late = sample(registry, "lmerge_plan_late_events_total", source="flights", policy="drop")
        assert late == run.query.entrances["flights"].dropped
        assert late
        assert sample(registry, "lmerge_plan_state_events", operator="hours") == 0
        assert sample(registry, "lmerge_plan_operator_state", operator="hours", kind="groups") == 0


def test_the_size_of_each_operators_state_is_that_of_the_last_checkpoint(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    with threaded_world() as world, replica_run(world.target, registry, checkpoint=tmp_path) as run:
        assert run.run()
        sizes = [sample(registry, "lmerge_plan_operator_state_bytes", operator=name) for name in ("late", "hours")]
        assert all(size is not None and 0 < size < run.checkpoint_bytes for size in sizes)
        assert sample(registry, "lmerge_plan_operator_stable_point_time", operator="hours") == float("inf")


def test_feedback_that_saves_evaluations_is_counted() -> None:
    registry = CollectorRegistry()
    with threaded_world() as world:
        with Publisher(world.target, MERGE, "ahead", properties=["key"], schema=COUNTED.schema) as ahead:
            ahead.stable(400)
            ahead.flush()
            with replica_run(world.target, registry, 20) as run:
                assert run.joined_at == 400
                assert run.run()
        assert sample(registry, "lmerge_plan_needed_from_time") == 400
        in_unneeded_windows = sum(row["at"] < 350 for row in ROWS)
        assert sample(registry, "lmerge_plan_skipped_events_total", operator="late") == in_unneeded_windows


def test_the_page_of_metrics_lists_what_is_exported() -> None:
    registry = CollectorRegistry()
    with threaded_world() as world, replica_run(world.target, registry) as run:
        run.run()
        types = {
            family.name + "_total" * (family.type == "counter"): family.type
            for family in registry.collect()
            if family.name.startswith("lmerge_plan")
        }
    listed = re.findall(r"^\| `(lmerge_plan_\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert dict(listed) == types
