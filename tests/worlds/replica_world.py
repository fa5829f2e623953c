"""Helpers of the tests of plans that run as replicas: a query in files, its result by DuckDB, and processes."""

from __future__ import annotations

import csv
import random
import subprocess
import textwrap
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cli_world import LMERGE

from lmerge.client import Subscriber, describe_merge
from lmerge.core.elements import INF
from lmerge.core.tdb import Tdb
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema

KEYS = ("EWR", "JFK", "LGA")
WINDOW = 50
QUERY = """
    from lmerge.replica import CsvFile, Query, after
    from lmerge.temporal.expressions.surface import col
    from lmerge.temporal.plan.stream import count, source

    flights = source("flights", {"origin": "string", "delay": "int?"})
    late = flights.where(col.delay > 15).group_by(col.origin).tumbling(50)
    query = Query(
        {form: late.agg(n=count(), form=form) for form in ("final", "settled", "watermark", "eager")},
        {"flights": CsvFile(path="flights.csv", time="at", progress=after(20))},
    )
"""


def flight_rows(count: int, seed: int = 0, disorder: int = 20) -> list[dict[str, Any]]:
    """Return rows of a source whose times are at most ``disorder`` out of order."""
    chosen = random.Random(seed)
    return [
        {"at": max(0, at - chosen.randrange(disorder)), "origin": chosen.choice(KEYS), "delay": chosen.randrange(40)}
        for at in range(count)
    ]


def counts_by_window(rows: Iterable[Mapping[str, Any]], window: int = WINDOW) -> Counter[tuple[Any, ...]]:
    """Return the events of the query of this module, by definition: (origin, n, vs, ve)."""
    groups = Counter((row["at"] // window, row["origin"]) for row in rows if row["delay"] > 15)
    return Counter((origin, n, at * window, (at + 1) * window) for (at, origin), n in groups.items())


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_query(folder: Path, text: str = QUERY, name: str = "query.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


class Reading:
    """Reads a merge of a server, from before the first replica to its end, in a thread: ``with Reading(...) as it``."""

    def __init__(self, target: str, merge: str) -> None:
        self._subscriber = Subscriber(target, merge)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._tdb = Tdb("reader")
        self._changed = threading.Condition()
        self.elements = 0
        self._thread.start()
        while not any(describe_merge(one, merge).subscribers for one in target.split(",")):
            assert self._thread.is_alive()

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._subscriber.close()
        self._thread.join()

    def table(self) -> Counter[tuple[Any, ...]]:
        """Return the events when the merge is complete, as (columns..., vs, ve)."""
        return table_of(self.complete(), self._subscriber.inner.schema)

    def complete(self) -> Tdb:
        """Return the table when the merge is complete."""
        self._thread.join(60)
        assert self._tdb.stable_point == INF
        return self._tdb

    def until(self, stable: int) -> None:
        """Wait until the merge is stable at a time."""
        with self._changed:
            while self._tdb.stable_point < stable:
                assert self._thread.is_alive()
                self._changed.wait()

    def _read(self) -> None:
        try:
            for batch in self._subscriber.batches():
                with self._changed:
                    self._tdb.apply_batch(batch)
                    self.elements += batch.count
                    self._changed.notify_all()
        finally:
            with self._changed:
                self._changed.notify_all()


def table_of(table: Tdb, schema: Schema | None) -> Counter[tuple[Any, ...]]:
    assert schema is not None
    codec = RowCodec(schema)
    return Counter((*codec.decode(event.payload).values(), event.vs, event.ve) for event in table.events())


def replica_process(folder: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start ``lmerge replica run`` in a folder."""
    return subprocess.Popen(
        [*LMERGE, "replica", "run", *arguments], cwd=folder, stderr=subprocess.PIPE, text=True, **options
    )
