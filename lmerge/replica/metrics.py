"""What a plan that runs as a replica exports to Prometheus, beside the metrics of its publisher (docs/metrics.md).

The figures of operators are counted in the thread of the run, between two steps, when Prometheus asks for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lmerge.core.elements import INF, NEG_INF
from lmerge.replica.replica_run import ReplicaRun

_RUN: Final = ["merge", "replica"]
_SOURCE: Final = [*_RUN, "source"]
_LATE: Final = [*_SOURCE, "policy"]
_OPERATOR: Final = [*_RUN, "operator"]


class PlanMetrics(Collector):
    """Collects the metrics of one run. ``registry``: where it registers itself."""

    def __init__(self, registry: CollectorRegistry, run: ReplicaRun) -> None:
        self._run = run
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: ``collect`` gives the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        run = self._run
        labels, took_s = [run.merge, run.replica], run.steps.seconds()
        found = run.counted()
        taken = CounterMetricFamily("lmerge_plan_source_elements", "Items taken of a source", labels=_SOURCE)
        stable = GaugeMetricFamily("lmerge_plan_source_stable_point_time", "Its stable point", labels=_SOURCE)
        late = CounterMetricFamily(
            "lmerge_plan_late_events", "Late events, by what came of them", labels=[*_SOURCE, "policy"]
        )
        parts = CounterMetricFamily("lmerge_plan_skipped_parts", "Parts of a source that were not read", labels=_SOURCE)
        for source in found.sources:
            of_source = [*labels, source.name]
            taken.add_metric(of_source, source.items)
            stable.add_metric(of_source, _time(source.stable))
            late.add_metric([*of_source, "drop"], source.dropped)
            late.add_metric([*of_source, "move"], source.moved)
            parts.add_metric(of_source, source.parts_skipped)
        yield from (taken, stable, late, parts)
        events = GaugeMetricFamily("lmerge_plan_state_events", "Events that an operator keeps", labels=_OPERATOR)
        state = GaugeMetricFamily(
            "lmerge_plan_operator_state", "What else it keeps: groups, windows", labels=[*_OPERATOR, "kind"]
        )
        size = GaugeMetricFamily(
            "lmerge_plan_operator_state_bytes", "Bytes of its state in the last checkpoint", labels=_OPERATOR
        )
        stable = GaugeMetricFamily("lmerge_plan_operator_stable_point_time", "Of its output", labels=_OPERATOR)
        skipped = CounterMetricFamily("lmerge_plan_skipped_events", "Events it has not evaluated", labels=_OPERATOR)
        freed = CounterMetricFamily("lmerge_plan_freed_events", "Events it dropped after feedback", labels=_OPERATOR)
        failed = CounterMetricFamily("lmerge_plan_failed_events", "Events without a value", labels=_OPERATOR)
        for operator in found.operators:
            of_operator = [*labels, operator.name]
            events.add_metric(of_operator, operator.events)
            size.add_metric(of_operator, operator.state_bytes)
            stable.add_metric(of_operator, _time(operator.stable))
            skipped.add_metric(of_operator, operator.skipped)
            freed.add_metric(of_operator, operator.freed)
            failed.add_metric(of_operator, operator.failed)
            for kind, count in operator.sizes.items():
                state.add_metric([*of_operator, kind], count)
        yield from (events, state, size, stable, skipped, freed, failed)
        step = GaugeMetricFamily("lmerge_plan_step_seconds", "The present step, so far", labels=_RUN)
        step.add_metric(labels, took_s)
        yield step
        written = CounterMetricFamily("lmerge_plan_checkpoint_commits", "Checkpoints written", labels=_RUN)
        size = GaugeMetricFamily("lmerge_plan_checkpoint_bytes", "The size of the last one", labels=_RUN)
        forwarded = GaugeMetricFamily("lmerge_plan_needed_from_time", "Feedback of the servers", labels=_RUN)
        written.add_metric(labels, run.checkpoints)
        size.add_metric(labels, run.checkpoint_bytes)
        forwarded.add_metric(labels, _time(found.forwarded_to))
        yield from (written, size, forwarded)


def _time(t: int) -> float:
    if t == INF:
        return float("inf")
    return float("-inf") if t == NEG_INF else float(t)
