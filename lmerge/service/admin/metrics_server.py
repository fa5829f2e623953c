"""The metrics of a server that belong to no merge: access, certificates, limits, free space of the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lmerge.service.merge.registry import Registry
from lmerge.service.security.guard import REFUSALS, Guard
from lmerge.service.settings import Settings

# Fields of the settings that bound what can fill up, by unit. An alert divides what is there by them.
_LIMITS: Final = {
    "bytes": (
        "live_bytes_max",
        "live_bytes_per_input",
        "merge_queue_bytes",
        "retain_bytes",
        "staged_bytes",
        "store_waiting_bytes",
        "subscriber_queue_bytes",
    ),
    "elements": ("merge_queue_elements",),
    "events": ("live_events_max",),
    "inputs": ("inputs_per_merge",),
    "merges": ("merges_max",),
    "subscribers": ("subscribers_per_merge",),
}


class ServerCollector(Collector):
    """Collects the limits of the server, when its certificates expire, and the free space of its store."""

    def __init__(self, settings: Settings, guard: Guard, registry: Registry) -> None:
        self._settings = settings
        self._guard = guard
        self._registry = registry

    def describe(self) -> Iterable[Metric]:
        """Return nothing: ``collect`` gives the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        for unit, names in _LIMITS.items():
            family = GaugeMetricFamily(f"lmerge_limit_{unit}", f"Limits of the server in {unit}", labels=["limit"])
            for name in names:
                family.add_metric([name], getattr(self._settings, name))
            yield family
        expiry = GaugeMetricFamily(
            "lmerge_certificate_expiry_timestamp_seconds", "When the first certificate expires", labels=["file"]
        )
        if self._guard.tls is not None:
            for name, at_s in self._guard.tls.expiries.items():
                expiry.add_metric([name], at_s)
        free = GaugeMetricFamily("lmerge_store_free_bytes", "Space that the store's file system has left")
        if self._registry.store_free_bytes is not None:
            free.add_metric([], self._registry.store_free_bytes)
        yield from (expiry, free)


class AccessCollector(Collector):
    """Collects how many calls were refused, and whether the security files are in force as they are on disk."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def describe(self) -> Iterable[Metric]:
        """Return nothing, as above."""
        return ()

    def collect(self) -> Iterator[Metric]:
        refused = CounterMetricFamily("lmerge_refused_calls", "Calls refused or ended for security", labels=["reason"])
        for reason in REFUSALS:
            refused.add_metric([reason], self._guard.refused[reason])
        broken = GaugeMetricFamily(
            "lmerge_security_file_broken_bool", "1 if the file on disk is not in force", labels=["file"]
        )
        for name, file in (("access", self._guard.access), ("tls", self._guard.tls)):
            if file is not None:
                broken.add_metric([name], file.problem is not None)
        yield from (refused, broken)
