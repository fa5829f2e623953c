"""What the controller reports to Prometheus. Labels are bounded by the queries and by the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lmerge import __version__
from lmerge.process_metrics import register_process
from lmerge_controller.kubernetes.cluster_copy import ClusterCopy
from lmerge_controller.kubernetes.election import Election


class ControllerMetrics(Collector):
    """The metrics of one controller, in a registry of its own."""

    def __init__(self, copies: ClusterCopy) -> None:
        self.registry = CollectorRegistry()
        self.actions: Counter[tuple[str, str]] = Counter()
        self.election: Election | None = None
        self._copies = copies
        self.reaction = Histogram(
            "lmerge_controller_reaction_seconds",
            "From a changed description to the end of the first round that acted on it.",
            buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
            registry=self.registry,
        )
        self.registry.register(self)
        register_process(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        election = self.election
        build = GaugeMetricFamily("lmerge_build_info", "1; version is the label", labels=["version"])
        build.add_metric([__version__], 1.0)
        yield build
        yield GaugeMetricFamily(
            "lmerge_controller_leader_bool",
            "Whether this process leads.",
            value=float(election is not None and election.term > 0),
        )
        yield CounterMetricFamily(
            "lmerge_controller_leaderships_events",
            "How often this process began to lead.",
            value=election.acquisitions if election is not None else 0,
        )
        missing = GaugeMetricFamily(
            "lmerge_controller_missing_right_bool", "A right that RBAC does not give.", labels=["right"]
        )
        for right in self._copies.missing_rights():
            missing.add_metric([right], 1.0)
        yield missing
        yield self._of_copies()
        actions = CounterMetricFamily(
            "lmerge_controller_actions_events", "What was done about queries.", labels=["action", "result"]
        )
        for (action, result), count in sorted(self.actions.items()):
            actions.add_metric([action, result], count)
        yield actions
        yield _conditions(self._copies.queries())

    def _of_copies(self) -> Metric:
        family = CounterMetricFamily(
            "lmerge_controller_lists_calls", "How often all objects of a kind were listed.", labels=["resource"]
        )
        for reflector in self._copies.reflectors:
            family.add_metric([reflector.resource.plural], reflector.lists)
        return family


def _conditions(queries: Iterable[Mapping[str, Any]]) -> Metric:
    family = GaugeMetricFamily(
        "lmerge_controller_condition_bool",
        "Whether a condition of a query holds.",
        labels=["namespace", "query", "condition"],
    )
    for query in queries:
        meta = query["metadata"]
        for row in (query.get("status") or {}).get("conditions") or ():
            family.add_metric([meta["namespace"], meta["name"], row["type"]], float(row["status"] == "True"))
    return family
