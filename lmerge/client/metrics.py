"""Metrics of publishers and subscribers, for Prometheus: what a client sees of its servers, and how fresh its data is.

    registry = CollectorRegistry()
    metrics = ClientMetrics(registry, time_unit="us")
    with lmerge.Subscriber("h1:7171,h2:7171", "flights", name="board") as subscriber:
        metrics.watch(subscriber)
        exported = export(registry, port=9100)

A client is read when Prometheus scrapes. Only freshness and the count of elements are kept as batches are taken. Series
are labelled by merge and by the name of the replica or subscriber. A client with the labels of an earlier one takes its
place, so a program that opens clients again and again has no more series than names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from lmerge import clock
from lmerge.client.blocking import Publisher, Subscriber
from lmerge.client.publish.link import PublisherLink
from lmerge.client.publish.publisher import AsyncPublisher
from lmerge.client.relay import Relay
from lmerge.client.subscribe.follower import JOINED
from lmerge.client.subscribe.reader import last_stable
from lmerge.client.subscribe.subscriber import AsyncSubscriber
from lmerge.core.batch import AnyBatch
from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import AddressInUse, UsageError
from lmerge.histogram import DurationCounts
from lmerge.process_metrics import register_process

#: Units of times that are counted from 1970 on, in microseconds. Only such times have an age.
TIME_UNITS: Final = {"us": 1, "ms": 1_000, "s": 1_000_000}

#: Where metrics are served unless another address is chosen: they have no encryption.
LOOPBACK: Final = "127.0.0.1"
_PORT_MAX: Final = 65535
_PUBLISHER: Final = ["merge", "replica"]
_SUBSCRIBER: Final = ["merge", "subscriber"]


class ClientMetrics(Collector):
    """Collects the metrics of the clients that it watches. ``registry``: where it registers itself.

    ``time_unit``: the unit of the streams' times, if they are counted from 1970 on: ``us``, ``ms`` or ``s``. Then the
    freshness of what subscribers receive is measured. None: it is not. Raises UsageError for another unit.
    """

    def __init__(self, registry: CollectorRegistry, *, time_unit: str | None = None) -> None:
        if time_unit is not None and time_unit not in TIME_UNITS:
            raise UsageError(f"unknown unit of time {time_unit!r}; it is {', '.join(TIME_UNITS)}")
        self._unit_us = None if time_unit is None else TIME_UNITS[time_unit]
        self._publishers: dict[tuple[str, str], AsyncPublisher] = {}
        self._subscribers: dict[tuple[str, str], WatchedSubscriber] = {}
        self._relays: list[Relay] = []
        self.registry = registry
        registry.register(self)

    def watch(self, client: Publisher | AsyncPublisher | Subscriber | AsyncSubscriber | Relay) -> None:
        """Export the metrics of a client from now on. Of a relay: those of its subscriber and its publisher."""
        if isinstance(client, Relay):
            self._relays.append(client)
            self.watch(client.subscriber)
            return
        inner = client.inner if isinstance(client, Publisher | Subscriber) else client
        if isinstance(inner, AsyncPublisher):
            self._publishers[inner.merge, inner.replica] = inner
        else:
            self._subscribers[inner.merge, inner.name] = WatchedSubscriber(inner, self._unit_us)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: ``collect`` gives the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        for relay in self._relays:
            if relay.publisher is not None:
                self.watch(relay.publisher)
        publishers = list(self._publishers.items())
        subscribers = list(self._subscribers.items())
        yield from _publisher_families(publishers)
        yield from _lane_families(publishers)
        yield from _subscriber_families(subscribers)
        yield from _source_families(subscribers)
        freshness = HistogramMetricFamily(
            "lmerge_freshness_seconds",
            "Wall time minus the stable point, when a stable is received; clocks that differ count as 0",
            labels=_SUBSCRIBER,
        )
        if self._unit_us is not None:
            for key, watched in subscribers:
                counts = watched.freshness
                freshness.add_metric(list(key), counts.buckets(), sum_value=counts.sum_s)
        yield freshness


class WatchedSubscriber:
    """A subscriber with the counts of what it has received. ``freshness``: of stables, in seconds."""

    def __init__(self, subscriber: AsyncSubscriber, unit_us: int | None) -> None:
        self.subscriber = subscriber
        self.elements = 0
        self.freshness: Final = DurationCounts()
        self._unit_us = unit_us
        subscriber.on_taken = self._taken

    def _taken(self, batch: AnyBatch) -> None:
        """Count a batch that the reader takes."""
        self.elements += batch.count
        if self._unit_us is None:
            return
        stable_point = last_stable(batch)
        if NEG_INF < stable_point < INF:
            age_us = clock.wall_us() - stable_point * self._unit_us
            self.freshness.observe(max(0, age_us) / 1e6)


def export(registry: CollectorRegistry, port: int, host: str = LOOPBACK) -> MetricsPort:
    """Serve a registry over HTTP, with the metrics of the process. ``port`` 0: any free one. Raises AddressInUse."""
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as problem:
        raise AddressInUse(f"cannot serve metrics on {host}:{port}: {problem.strerror}") from problem
    register_process(registry)
    return MetricsPort(server, thread)


def asked_port(environment: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the port and host that LMERGE_METRICS_PORT and LMERGE_METRICS_HOST ask for; None: no metrics.

    Raises UsageError.
    """
    text = environment.get("LMERGE_METRICS_PORT", "").strip()
    if not text:
        return None
    if not text.isdecimal() or int(text) > _PORT_MAX:
        raise UsageError(f"LMERGE_METRICS_PORT is {text!r:.20}; it is a port, 0 to {_PORT_MAX}")
    return int(text), environment.get("LMERGE_METRICS_HOST", "").strip() or LOOPBACK


def asked_metrics(environment: Mapping[str, str]) -> ClientMetrics | None:
    """Serve the metrics that the environment asks for, and return them; None if it asks for none.

    The address is written to standard error.

    Beside the port, LMERGE_METRICS_UNIT is the unit of the streams' times. Raises AddressInUse, UsageError.
    """
    asked = asked_port(environment)
    if asked is None:
        return None
    registry = CollectorRegistry()
    metrics = ClientMetrics(registry, time_unit=environment.get("LMERGE_METRICS_UNIT") or None)
    bound = export(registry, *asked)
    sys.stderr.write(f"metrics at http://{asked[1]}:{bound.port}/metrics\n")
    return metrics


class MetricsPort:
    """The HTTP port of exported metrics, served by a thread that ends with the process. ``port``: the bound one."""

    def __init__(self, server: Any, thread: Any) -> None:
        self.port: int = server.server_port
        self._server = server
        self._thread = thread

    def close(self) -> None:
        """Stop serving, and release the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _publisher_families(publishers: list[tuple[tuple[str, str], AsyncPublisher]]) -> Iterator[Metric]:
    sent = CounterMetricFamily("lmerge_publisher_elements", "Elements published", labels=_PUBLISHER)
    stable = GaugeMetricFamily("lmerge_publisher_stable_point_time", "Its own stable point", labels=_PUBLISHER)
    merged = GaugeMetricFamily("lmerge_publisher_acked_time", "The stable point that servers acked", labels=_PUBLISHER)
    waiting = GaugeMetricFamily("lmerge_publisher_waiting_bytes", "What waits to be sent", labels=_PUBLISHER)
    again = CounterMetricFamily("lmerge_publisher_reconnects", "Connections made again", labels=_PUBLISHER)
    failed = GaugeMetricFamily("lmerge_publisher_failed_bool", "1 if it has failed for good", labels=_PUBLISHER)
    for key, publisher in publishers:
        labels = list(key)
        sent.add_metric(labels, publisher.outbox.published)
        stable.add_metric(labels, _time(publisher.outbox.stable_point))
        merged.add_metric(labels, _time(publisher.merge_stable_point))
        waiting.add_metric(labels, publisher.outbox.waiting_bytes)
        again.add_metric(labels, publisher.reconnects)
        failed.add_metric(labels, publisher.failure is not None)
    yield from (sent, stable, merged, waiting, again, failed)


def _lane_families(publishers: list[tuple[tuple[str, str], AsyncPublisher]]) -> Iterator[Metric]:
    labels = [*_PUBLISHER, "server"]
    columns: list[tuple[GaugeMetricFamily, Callable[[AsyncPublisher, PublisherLink], float]]] = [
        (
            GaugeMetricFamily("lmerge_publisher_connected_bool", "1 if the server has accepted it", labels=labels),
            lambda _, link: link.is_connected,
        ),
        (
            GaugeMetricFamily("lmerge_publisher_joined_bool", "1 if it counts at the server", labels=labels),
            lambda _, link: link.joined,
        ),
        (
            GaugeMetricFamily("lmerge_publisher_unacked_elements", "Published, not merged there yet", labels=labels),
            lambda publisher, link: publisher.outbox.published - link.lane.acked,
        ),
    ]
    for family, value in columns:
        for key, publisher in publishers:
            for link in publisher.links:
                family.add_metric([*key, link.target], value(publisher, link))
        yield family


def _subscriber_families(subscribers: list[tuple[tuple[str, str], WatchedSubscriber]]) -> Iterator[Metric]:
    family = partial(CounterMetricFamily, labels=_SUBSCRIBER)
    received = family("lmerge_subscriber_elements", "Elements that the reader has taken")
    gaps = family("lmerge_subscriber_gaps", "Stretches of time in which events may be missing")
    again = family("lmerge_subscriber_reconnects", "Connections made again")
    resyncs = family("lmerge_subscriber_resyncs", "Times that it was cut off because it read too slowly")
    stable = GaugeMetricFamily("lmerge_subscriber_stable_point_time", "The last stable received", labels=_SUBSCRIBER)
    waiting = GaugeMetricFamily("lmerge_subscriber_waiting_batches", "Batches not taken yet", labels=_SUBSCRIBER)
    for key, watched in subscribers:
        labels, subscriber = list(key), watched.subscriber
        received.add_metric(labels, watched.elements)
        gaps.add_metric(labels, len(subscriber.gaps))
        again.add_metric(labels, subscriber.reconnects)
        resyncs.add_metric(labels, subscriber.resyncs)
        stable.add_metric(labels, _time(subscriber.follower.reader.delivered_to))
        waiting.add_metric(labels, len(subscriber.follower.reader.waiting))
    yield from (received, gaps, again, resyncs, stable, waiting)


def _source_families(subscribers: list[tuple[tuple[str, str], WatchedSubscriber]]) -> Iterator[Metric]:
    labels = [*_SUBSCRIBER, "server"]
    joined = GaugeMetricFamily("lmerge_subscriber_source_joined_bool", "1 if the server could carry it", labels=labels)
    lag = GaugeMetricFamily("lmerge_subscriber_source_lag_time", "How far the server is behind", labels=labels)
    for key, watched in subscribers:
        for source in watched.subscriber.sources:
            joined.add_metric([*key, source.target], source.state == JOINED)
            if source.lag is not None:
                lag.add_metric([*key, source.target], source.lag)
    yield from (joined, lag)


def _time(t: int) -> float:
    if t == INF:
        return float("inf")
    return float("-inf") if t == NEG_INF else float(t)
