"""Helpers for the tests of reading: servers that come and go, and queries that read them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import lmerge
from lmerge.core.batch import Batch
from lmerge.core.elements import Element, Event, Stable
from lmerge.service.server import Server
from lmerge.service.settings import Settings
from lmerge.testing.streams.merge_inputs import MIXED, present, reference

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lmerge.spark.source.readers import LmergeStreamReader

MERGE = "flights"


class MergeServers:
    """Independent servers of one merge. ``settings`` of a single one: under ``of_`` and its number."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int, settings: dict[str, Any]) -> None:
        self._loop = loop
        self._settings = [{"http_port": None, **settings, **settings.get(f"of_{at}", {})} for at in range(count)]
        for one in self._settings:
            for at in range(count):
                one.pop(f"of_{at}", None)
        self._servers: list[Server | None] = [None] * count
        self._ports = [0] * count
        for at in range(count):
            self.start(at)

    @property
    def target(self) -> str:
        return ",".join(self.targets)

    @property
    def targets(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self._ports]

    def start(self, at: int = 0) -> None:
        """Start a server on the address that it had before. Without a store it has no state."""
        server = Server(Settings(port=self._ports[at], **self._settings[at]))
        self.run(server.start())
        self._servers[at], self._ports[at] = server, server.port

    def stop(self, at: int = 0) -> None:
        server, self._servers[at] = self._servers[at], None
        if server is not None:
            self.run(server.stop(0.0))

    def restart(self, at: int = 0) -> None:
        self.stop(at)
        self.start(at)

    def stop_all(self) -> None:
        for at in range(len(self._servers)):
            self.stop(at)

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def publish(self, *elements: Element, replica: str = "a", at: int | None = None, **options: Any) -> None:
        """Publish elements by a replica that leaves when they are merged."""
        with lmerge.Publisher(self.target if at is None else self.targets[at], MERGE, replica, **options) as publisher:
            publisher.publish(Batch.of(elements))
            publisher.flush()

    def publisher(self, replica: str = "a", **options: Any) -> lmerge.Publisher:
        return lmerge.Publisher(self.target, MERGE, replica, **options)


@contextmanager
def servers(count: int = 1, **settings: Any) -> Iterator[MergeServers]:
    """Run servers whose loop runs in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    world = MergeServers(loop, count, settings)
    try:
        yield world
    finally:
        world.stop_all()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def tdb(seed: int, count: int = 300) -> list[Event]:
    """Return the events of a random stream, some of them equal."""
    return reference(Random(seed), count, payloads=20, duplicates=True)


def revised(seed: int, events: Sequence[Event]) -> list[Element]:
    """Return a stream of the events that revises most ends."""
    return present(Random(seed), events, replace(MIXED, places=10, revised=0.9, invented=0.3))


def stables(stream: Sequence[Element]) -> list[int]:
    return [element.vc for element in stream if isinstance(element, Stable)]


class Collected:
    """A sink that keeps rows by batch. ``before`` is called first and may raise, as if the sink had failed."""

    def __init__(self, before: Callable[[int], None] = lambda batch: None) -> None:
        self.batches: dict[int, list[dict[str, Any]]] = {}
        self.seen: list[int] = []
        self._before = before

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.seen.append(batch)
        self._before(batch)
        collected = [row.asDict() for row in rows.collect()]
        assert batch not in self.batches or self.batches[batch] == collected, f"batch {batch} has changed"
        self.batches[batch] = collected

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    @property
    def events(self) -> list[Event]:
        """The rows as events; ``timeType`` must be long."""
        return sorted(Event(row["vs"], bytes(row["payload"]), row["ve"]) for row in self.rows)


def reading(spark: SparkSession, target: str, **options: Any) -> DataFrame:
    """Return a streaming query's rows, with payloads and times unchanged."""
    from lmerge.spark.session import register

    register(spark)
    given = {
        "servers": target,
        "merge": MERGE,
        "timeType": "long",
        "payload": "binary",
        "startingOffsets": f"{MERGE}@-inf",
    }
    return spark.readStream.format("lmerge").options(**(given | options)).load()


def run_available(rows: DataFrame, checkpoint: Path, sink: Collected) -> Any:
    """Run the query over all present rows. Raises what ended it."""
    query = (
        rows.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


# The reader, as Spark's driver calls it.


def options(target: str, **given: Any) -> dict[str, str]:
    return {
        "servers": target,
        "merge": MERGE,
        "timeType": "long",
        "payload": "binary",
        **{name: str(value) for name, value in given.items()},
    }


def latest(reader: LmergeStreamReader, start: dict[str, Any], rows_max: int | None = None) -> dict[str, Any]:
    """Call ``latestOffset`` as Spark does, until there is something new."""
    from pyspark.sql.streaming.datasource import ReadMaxRows

    limit = reader.getDefaultReadLimit() if rows_max is None else ReadMaxRows(rows_max)
    until_s = time.monotonic() + 60
    while (end := reader.latestOffset(start, limit)) == start:
        assert time.monotonic() < until_s, f"nothing new after {start}"
    return end


def rows_of_batch(reader: LmergeStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a batch, as executors read them."""
    return [row for task in reader.partitions(start, end) for batch in reader.read(task) for row in batch.to_pylist()]


def events_of(rows: list[dict[str, Any]]) -> list[Event]:
    return [Event(row["vs"], row["payload"], row["ve"]) for row in rows]
