"""The metrics of a merge's output: its pauses, its latency, and the subscribers that lag most.

Names of subscribers come from clients. So only ``metrics_subscribers_max`` of each merge have series, those that lag
most, and all subscribers without a name share the label ``anonymous``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from heapq import nsmallest
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from lmerge.service.admin.metrics_samples import add_durations
from lmerge.service.merge.hub import Hub


class SubscriberLag(NamedTuple):
    """How far the subscribers of one name are behind: the worst of them."""

    label: str
    seconds: float
    bytes: int


def output_families(hubs: list[Hub]) -> Iterator[Metric]:
    """Give the families of the outputs of ``hubs``."""
    yield from _deliveries(hubs)
    yield from _pauses(hubs)
    yield from _lags(hubs)
    yield from _stores(hubs)


def _deliveries(hubs: list[Hub]) -> Iterator[Metric]:
    latency = HistogramMetricFamily(
        "lmerge_added_latency_seconds",
        "Time from the arrival of a batch to the end of the write of its output, by message and subscriber",
        labels=["merge"],
    )
    received = CounterMetricFamily("lmerge_received_bytes", "Bytes of batches received", labels=["merge"])
    output = CounterMetricFamily("lmerge_output_bytes", "Bytes of the output, encoded once", labels=["merge"])
    delivered = CounterMetricFamily("lmerge_delivered_bytes", "Bytes written to subscribers", labels=["merge"])
    for hub in hubs:
        fanout = hub.state.output.fanout
        add_durations(latency, [hub.name], fanout.added_latency)
        received.add_metric([hub.name], hub.state.received_bytes)
        output.add_metric([hub.name], fanout.output_bytes)
        delivered.add_metric([hub.name], fanout.delivered_bytes)
    yield from (latency, received, output, delivered)


def _pauses(hubs: list[Hub]) -> Iterator[Metric]:
    output = GaugeMetricFamily(
        "lmerge_output_pause_seconds", "Time since the last output; none before the first", labels=["merge"]
    )
    stable = GaugeMetricFamily(
        "lmerge_stable_pause_seconds", "Time since the output's stable point moved, or the start", labels=["merge"]
    )
    now_s = asyncio.get_running_loop().time()
    for hub in hubs:
        fanout = hub.state.output.fanout
        if fanout.pauses.last_at_s is not None:
            output.add_metric([hub.name], now_s - fanout.pauses.last_at_s)
        stable.add_metric([hub.name], now_s - fanout.stable_s)
    yield from (output, stable)


def _lags(hubs: list[Hub]) -> Iterator[Metric]:
    labels = ["merge", "subscriber"]
    seconds = GaugeMetricFamily(
        "lmerge_subscriber_lag_seconds", "Age of the oldest output that it has not got; worst ones only", labels=labels
    )
    size = GaugeMetricFamily(
        "lmerge_subscriber_lag_bytes", "Output that waits for the subscriber; worst ones only", labels=labels
    )
    waiting = GaugeMetricFamily("lmerge_queued_output_bytes", "Output that waits for all subscribers", labels=["merge"])
    now_s = asyncio.get_running_loop().time()
    for hub in hubs:
        for lag in worst_lags(hub, now_s):
            seconds.add_metric([hub.name, lag.label], lag.seconds)
            size.add_metric([hub.name, lag.label], lag.bytes)
        waiting.add_metric([hub.name], sum(s.queued_bytes for s in hub.state.subscribers.values()))
    yield from (seconds, size, waiting)


def _stores(hubs: list[Hub]) -> Iterator[Metric]:
    size = GaugeMetricFamily("lmerge_store_bytes", "Size of the store and its log", labels=["merge"])
    waiting = GaugeMetricFamily("lmerge_store_waiting_bytes", "Changes that wait for their commit", labels=["merge"])
    errors = CounterMetricFamily("lmerge_store_errors", "Commits that failed and are tried again", labels=["merge"])
    commits = HistogramMetricFamily("lmerge_store_commit_seconds", "Time that a commit takes", labels=["merge"])
    for hub in hubs:
        durable = hub.state.output.durable
        if durable is not None:
            size.add_metric([hub.name], durable.store.bytes)
            waiting.add_metric([hub.name], hub.state.output.release.waiting_bytes)
            errors.add_metric([hub.name], durable.errors)
            add_durations(commits, [hub.name], durable.commit_seconds)
    yield from (size, waiting, errors, commits)


def worst_lags(hub: Hub, now_s: float) -> list[SubscriberLag]:
    """Return the labels of subscribers that lag most, worst first. ``now_s``: the time of the loop's clock."""
    by_label: dict[str, SubscriberLag] = {}
    for queue in hub.state.subscribers.values():
        known = by_label.get(queue.label, SubscriberLag(queue.label, 0.0, 0))
        by_label[queue.label] = SubscriberLag(
            queue.label, max(known.seconds, queue.lag_s(now_s)), max(known.bytes, queue.queued_bytes)
        )
    most = hub.state.settings.metrics_subscribers_max
    return nsmallest(most, by_label.values(), key=lambda lag: (-lag.seconds, -lag.bytes, lag.label))
