"""Prometheus metrics, read from the hubs when they are scraped, so that the hot path only counts.

Names are ``lmerge_<noun>_<unit>[_total]``. The registry is injected, so two servers in one process do not mix. Series
of an input end when it detaches and start at 0 with its next incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lmerge.core.merge import Counts
from lmerge.service.admin.metrics_inputs import input_families
from lmerge.service.admin.metrics_output import output_families
from lmerge.service.admin.metrics_samples import time_value
from lmerge.service.admin.status import lmerge_version
from lmerge.service.merge.hub import Hub
from lmerge.service.merge.registry import Registry
from lmerge.service.merge.staged_parts import REASONS, Staging


class MergeCollector(Collector):
    """Collects all metrics of the merges of one server."""

    def __init__(self, registry: Registry, engine: str) -> None:
        """Make the collector. ``engine``: the one that runs the merges, ``python`` or ``native``."""
        self._registry = registry
        self._engine = engine
        self._is_left_out = False

    def describe(self) -> Iterable[Metric]:
        """Return nothing: ``collect`` gives the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield _info("lmerge_build_info", "version", lmerge_version())
        yield _info("lmerge_engine_info", "engine", self._engine)
        if not self._is_left_out:
            yield from self.of_merges(self.names())
        yield from _staged(self._registry.staging)

    def names(self) -> list[str]:
        """Return the names of the merges, in order."""
        return sorted(self._registry.hubs)

    def of_merges(self, names: Iterable[str]) -> Iterator[Metric]:
        """Give the families with samples for each merge, with the samples of those of ``names`` that still exist."""
        hubs = [self._registry.hubs[name] for name in names if name in self._registry.hubs]
        yield from _merge_counters(hubs)
        yield from _merge_gauges(hubs)
        yield from _divergences(hubs)
        yield from input_families(hubs)
        yield from output_families(hubs)

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Leave ``of_merges`` out of ``collect`` meanwhile, for a caller that calls it itself, in steps."""
        self._is_left_out = True
        try:
            yield
        finally:
            self._is_left_out = False


def _info(name: str, label: str, value: str) -> Metric:
    """Return a text as a metric: the sample is 1, the text is the value of the label."""
    family = GaugeMetricFamily(name, f"1; {label} is the label", labels=[label])
    family.add_metric([value], 1)
    return family


def _merge_counters(hubs: list[Hub]) -> Iterator[Metric]:
    by_kind = ["merge", "kind"]
    received = CounterMetricFamily("lmerge_received_elements", "Elements merged, of all inputs", labels=by_kind)
    emitted = CounterMetricFamily("lmerge_emitted_elements", "Elements of the merged output", labels=by_kind)
    late = CounterMetricFamily(
        "lmerge_late_elements", "Elements below the output's stable point, of no effect", labels=["merge"]
    )
    refused = CounterMetricFamily("lmerge_refused_elements", "Elements of fenced incarnations", labels=["merge"])
    gone = CounterMetricFamily(
        "lmerge_detached_inputs", "Inputs that ended, by reason or broken promise", labels=["merge", "reason"]
    )
    cut = CounterMetricFamily(
        "lmerge_cut_off_subscribers", "Subscribers cut off because their queue was full", labels=["merge"]
    )
    differ = CounterMetricFamily(
        "lmerge_divergent_intervals", "Intervals in which inputs that promise the same differed", labels=["merge"]
    )
    gaps = CounterMetricFamily(
        "lmerge_output_gaps", "Stretches of time that no input could deliver any more", labels=["merge"]
    )
    commits = CounterMetricFamily("lmerge_staged_commits", "Commits whose parts were staged here", labels=["merge"])
    missed = CounterMetricFamily("lmerge_missed_commits", "Commits of which a part was missing", labels=["merge"])
    turns = CounterMetricFamily("lmerge_turns", "Turns of the merge's task", labels=["merge"])
    seconds = CounterMetricFamily("lmerge_turn_seconds", "Time spent in turns", labels=["merge"])
    for hub in hubs:
        state = hub.state
        for family, counts in ((received, state.observed.received), (emitted, state.observed.emitted)):
            for kind, value in zip(Counts._fields, counts):
                family.add_metric([hub.name, kind.removesuffix("s")], value)
        for cause, count in sorted(state.detached_counts.items()):
            gone.add_metric([hub.name, cause], count)
        late.add_metric([hub.name], state.observed.late)
        refused.add_metric([hub.name], state.observed.refused)
        cut.add_metric([hub.name], state.cut_off_count)
        differ.add_metric([hub.name], state.certifier.divergences)
        gaps.add_metric([hub.name], state.gaps)
        commits.add_metric([hub.name], state.staged_commits)
        missed.add_metric([hub.name], state.missed_commits)
        turns.add_metric([hub.name], state.turns)
        seconds.add_metric([hub.name], state.turn_seconds)
    yield from (received, emitted, late, refused, gone, cut, differ, gaps, commits, missed, turns, seconds)


def _merge_gauges(hubs: list[Hub]) -> Iterator[Metric]:
    live = GaugeMetricFamily("lmerge_live_events", "Events that are not fully frozen", labels=["merge"])
    inputs = GaugeMetricFamily("lmerge_attached_inputs", "Inputs attached", labels=["merge"])
    losses = GaugeMetricFamily("lmerge_survivable_losses", "Inputs that may be lost", labels=["merge"])
    out = GaugeMetricFamily("lmerge_quarantined_inputs", "Names that may not attach until released", labels=["merge"])
    stable = GaugeMetricFamily("lmerge_stable_point_time", "Stable point of the output", labels=["merge"])
    live_bytes = GaugeMetricFamily("lmerge_live_bytes", "Payload bytes that the merge holds", labels=["merge"])
    held = GaugeMetricFamily("lmerge_held_inputs", "Inputs whose stable is held for its lead", labels=["merge"])
    disputed = GaugeMetricFamily("lmerge_disputed_intervals", "Disputed intervals, not decided yet", labels=["merge"])
    silent = GaugeMetricFamily("lmerge_recording_stopped_bool", "1 if --record has stopped", labels=["merge"])
    broken = GaugeMetricFamily("lmerge_store_stopped_bool", "1 if the store cannot be written", labels=["merge"])
    queued = GaugeMetricFamily("lmerge_queued_elements", "Elements that wait for the merge", labels=["merge"])
    readers = GaugeMetricFamily("lmerge_attached_subscribers", "Subscribers", labels=["merge"])
    backlog = GaugeMetricFamily("lmerge_subscriber_queue_bytes", "Largest queue of a subscriber", labels=["merge"])
    for hub in hubs:
        state = hub.state
        live.add_metric([hub.name], state.observed.live_count)
        inputs.add_metric([hub.name], len(state.observed.inputs))
        losses.add_metric([hub.name], state.survives_losses)
        stable.add_metric([hub.name], time_value(state.observed.stable_point))
        out.add_metric([hub.name], len(state.certifier.quarantined))
        live_bytes.add_metric([hub.name], state.payload_limit.live_bytes + state.queued_bytes)
        held.add_metric([hub.name], len(hub.maintenance.lead_alarm.held))
        disputed.add_metric([hub.name], len(state.certifier.disputed))
        silent.add_metric([hub.name], state.recording_has_stopped)
        broken.add_metric([hub.name], state.store_problem is not None)
        queued.add_metric([hub.name], state.queued_elements)
        readers.add_metric([hub.name], len(state.subscribers))
        backlog.add_metric([hub.name], max((s.queued_bytes for s in state.subscribers.values()), default=0))
    yield from (live, inputs, losses, out, stable, live_bytes, held, disputed, silent, broken, queued, readers, backlog)


def _divergences(hubs: list[Hub]) -> Iterator[Metric]:
    last = GaugeMetricFamily(
        "lmerge_last_divergence_timestamp_seconds", "When inputs differed last; none if never", labels=["merge"]
    )
    for hub in hubs:
        at_us = hub.state.certifier.last_divergence_us
        if at_us is not None:
            last.add_metric([hub.name], at_us / 1e6)
    yield last


def _staged(staging: Staging) -> Iterator[Metric]:
    """Give the metrics of staged parts, for all merges together.

    A part may come before its merge, so the name of its merge is arbitrary, and must not become a label.
    """
    parts = GaugeMetricFamily("lmerge_staged_parts", "Parts that wait for the commit of their publisher")
    kept = GaugeMetricFamily("lmerge_staged_bytes", "Bytes of staged parts, and of parts on their way in or out")
    dropped = CounterMetricFamily("lmerge_dropped_parts", "Staged parts that were not committed", labels=["reason"])
    parts.add_metric([], staging.parts)
    kept.add_metric([], staging.bytes)
    for reason in REASONS:
        dropped.add_metric([reason], staging.dropped[reason])
    yield from (parts, kept, dropped)
