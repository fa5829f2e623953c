"""How much sooner has a Spark query that starts late caught up if the merge sends it feedback?

A replica in this process has published a stream of 200,000 events to its end, and stays attached. Then a query in Spark
begins to publish the same stream from its beginning: micro-batches of 10,000 rows, each row scored by a Python function
of 765 us (as an expensive element in ``bench/feedback.py``; the work is real: rounds of a hash), on two cores. Both
runs have the same plan, with ``skip_to`` before the function. They differ in whether the server sends feedback.

Measured: seconds from ``start()`` until the query's stable point at the server is that of the other replica. Then the
other one leaves, and the query alone publishes two more batches. The merged output must be the whole stream each time.
Target: at least 3 times sooner with feedback.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.feedback import EXPENSIVE_US, round_us
from bench.harness import Measured, Panel, begin, bench_parser, plot
from bench.rig.fleet import serve
from bench.rig.spark import scratch_session
from lmerge import Publisher, Subscriber
from lmerge.client import describe_merge
from lmerge.core.batch import BatchBuilder
from lmerge.core.elements import NEG_INF, Event
from lmerge.core.tdb import Tdb
from lmerge.spark import Payload, publish, skip_to
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema
from lmerge.wire.token import format_token

MERGE = "bench"
SCHEMA = parse_schema({"n": "int?", "score": "int?"})
BATCHES, TAIL, ROWS, FILES = 20, 2, 10_000, 2  # batches; those that only the query publishes; rows and files of a batch
QUICK_BATCHES, QUICK_ROWS = 8, 1_000
STEP_US, LIFE_US = 1_000, 10_000  # of the stream's time
BEGIN_US = 1_700_000_000_000_000
TARGET = 3.0
REPEATS = 3
LOOK_S = 0.05
WAIT_S_MAX = 900.0
RUNS = ("without feedback", "with feedback")


@dataclass(frozen=True)
class BatchedRows:
    """A stream of ``batches`` of ``rows`` events, and a tail."""

    batches: int
    rows: int
    rounds: int

    @property
    def count(self) -> int:
        return (self.batches + TAIL) * self.rows

    def stable_us(self, batches: int) -> int:
        """Return the time of the last event of so many batches, which is the watermark after them."""
        return BEGIN_US + (batches * self.rows - 1) * STEP_US

    def events(self) -> list[Event]:
        """Return the events that the output must have, as far as they are final at the end."""
        codec, final_us = RowCodec(SCHEMA), self.stable_us(self.batches + TAIL - 1)
        times = ((at, BEGIN_US + at * STEP_US) for at in range(self.count))
        return [
            Event(vs, codec.encode({"n": at, "score": 7 * at}), vs + LIFE_US)
            for at, vs in times
            if vs + LIFE_US < final_us
        ]

    def write(self, folder: Path, batch: int) -> None:
        """Write the files of a batch; their modification times give their order."""
        each = self.rows // FILES
        for number in range(FILES):
            first = batch * self.rows + number * each
            lines = (json.dumps({"ts": BEGIN_US + at * STEP_US, "n": at}) for at in range(first, first + each))
            path = folder / f".{batch:05}-{number}.json"
            path.write_text("\n".join(lines))
            os.utime(path, (batch + 1, batch + 1))
            path.rename(folder / path.name[1:])


def scoring(spark: Any, stream: BatchedRows, source: Path, checkpoint: Path, target: str) -> Any:
    """Return the writer of the query."""
    from pyspark.sql import functions

    rounds = stream.rounds

    def score(n):  # type: ignore[no-untyped-def]  # PySpark would take hints for those of pandas
        hashlib.pbkdf2_hmac("sha256", b"x", b"salt", rounds)
        return 7 * n

    rows = spark.readStream.schema("ts long, n long").option("maxFilesPerTrigger", FILES).json(str(source))
    rows = rows.withColumn("ts", functions.timestamp_micros("ts")).withWatermark("ts", "0 seconds")
    rows = rows.withColumn("until", functions.expr(f"ts + INTERVAL {LIFE_US // 1000} MILLISECONDS"))
    rows = skip_to(rows, "until", checkpoint=str(checkpoint))
    rows = rows.withColumn("score", functions.udf(score, "long")("n")).select("ts", "until", "n", "score")
    writer = publish(
        rows,
        servers=target,
        merge=MERGE,
        replica="late",
        vs="ts",
        ve="until",
        late="fail",
        payload=Payload(schema=SCHEMA),
        properties=("insert-only",),
        allow=("udf",),
    )
    return writer.option("checkpointLocation", str(checkpoint))


def be_ahead(target: str, stream: BatchedRows) -> Publisher:
    """Return the other replica after it has published all but the tail."""
    codec = RowCodec(SCHEMA)
    publisher = Publisher(target, MERGE, "ahead", schema=SCHEMA, properties=("insert-only",))
    publisher.open()
    for batch in range(stream.batches):
        builder = BatchBuilder()
        for at in range(batch * stream.rows, (batch + 1) * stream.rows):
            vs = BEGIN_US + at * STEP_US
            builder.insert(codec.encode({"n": at, "score": 7 * at}), vs, vs + LIFE_US)
        publisher.publish(builder.build())
    publisher.stable(stream.stable_us(stream.batches))
    publisher.flush()
    return publisher


class OutputReader:
    """Reads the merge from its beginning to a stable point, in a thread."""

    def __init__(self, target: str, until_us: int) -> None:
        self._tdb = Tdb("output")
        self._target, self._until_us = target, until_us
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def events(self) -> list[Event]:
        """Wait for the stable point and return all events that end before it."""
        self._thread.join(WAIT_S_MAX)
        return [event for event in self._tdb.events() if event.ve < self._until_us]

    def _read(self) -> None:
        with Subscriber(self._target, MERGE, resume=format_token(MERGE, NEG_INF), wait_for_merge=True) as reader:
            for batch in reader.batches():
                self._tdb.apply_batch(batch)
                if self._tdb.stable_point >= self._until_us:
                    return


@dataclass
class SparkFeedbackRun:
    """The result of a run: seconds to catch up, the stable point over time, and whether the output was right."""

    seconds: float
    points: list[tuple[float, int]]
    is_right: bool


@contextmanager
def serving(folder: Path, name: str, lag_us: int) -> Iterator[str]:
    options = ("--feedback", str(lag_us)) if name == "with feedback" else ()
    server, port = serve("server", folder, *options)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()


def run(spark: Any, name: str, stream: BatchedRows, expected: list[Event]) -> SparkFeedbackRun:
    """Run one server, the replica that is ahead, and the query that starts late."""
    with tempfile.TemporaryDirectory(prefix="lmerge-feedback-", ignore_cleanup_errors=True) as scratch:
        folder, source = Path(scratch), Path(scratch, "source")
        source.mkdir()
        for batch in range(stream.batches):
            stream.write(source, batch)
        with serving(folder, name, stream.rows * STEP_US) as target:
            final_us = stream.stable_us(stream.batches + TAIL - 1)
            output = OutputReader(target, final_us)
            ahead = be_ahead(target, stream)
            began_s = time.monotonic()
            query = scoring(spark, stream, source, folder / "checkpoint", target).start()
            # A batch runs with the watermark of the one before: the query has caught up at that of the last but one.
            points = follow(query, target, stream.stable_us(stream.batches - 1), began_s)
            ahead.close()
            for batch in range(stream.batches, stream.batches + TAIL):
                stream.write(source, batch)
            follow(query, target, final_us, began_s)
            is_right = output.events() == expected
            query.stop()
    return SparkFeedbackRun(points[-1][0], points, is_right)


def follow(query: Any, target: str, until_us: int, began_s: float) -> list[tuple[float, int]]:
    """Return the query's stable point at the server over time, up to ``until_us``. Raises if the query ends."""
    points: list[tuple[float, int]] = []
    while not points or points[-1][1] < until_us:
        if query.awaitTermination(LOOK_S) or time.monotonic() - began_s > WAIT_S_MAX:
            raise RuntimeError(f"the query has ended at {points[-1:]}: {query.exception()}")
        stable_points = {one.replica: one.stable_point for one in describe_merge(target, MERGE).inputs}
        points.append((time.monotonic() - began_s, stable_points.get("late", NEG_INF)))
    return points


def add_curve(panel: Panel, name: str, found: SparkFeedbackRun) -> None:
    """Add the number of events before the stable point over time; a point for each batch."""
    last = NEG_INF
    for seconds, stable_us in found.points:
        if stable_us > max(last, BEGIN_US):
            panel.add(name, seconds, Measured(name, [(stable_us - BEGIN_US) / STEP_US / 1e3], ""))
            last = stable_us


def main() -> None:
    parser = bench_parser(__doc__, "spark_feedback", "8 batches of 1,000 rows, once")
    quick = parser.parse_args().quick
    report = begin((__doc__ or "").splitlines()[0])
    rounds = round(EXPENSIVE_US / round_us())
    stream = BatchedRows(QUICK_BATCHES if quick else BATCHES, QUICK_ROWS if quick else ROWS, rounds)
    expected = stream.events()
    report.note(
        f"{stream.batches} batches of {stream.rows:,} rows to catch up, {EXPENSIVE_US:g} us of hashing a row; "
        f"feedback beyond a lag of one batch; then {TAIL} batches that only the query publishes"
    )
    panel = Panel("events behind the query's stable point", "s", "thousands of events")
    rows = {}
    with scratch_session() as (spark, _):
        warm = BatchedRows(2, 200, rounds)
        run(spark, RUNS[0], warm, warm.events())
        for name in RUNS:
            runs = [run(spark, name, stream, expected) for _ in range(1 if quick else REPEATS)]
            rows[name] = report.add(name, [found.seconds for found in runs], "s")
            right = all(found.is_right for found in runs)
            report.note(f"{name}: output {'as expected' if right else 'WRONG'}; load {os.getloadavg()[0]:.1f}")
            add_curve(panel, name, runs[0])
    without, with_it = (rows[name].median for name in RUNS)
    verdict = "reached" if without / with_it >= TARGET else "MISSED"
    report.note(f"target {TARGET:g} times sooner: {verdict} ({without / with_it:.1f} times)")
    if not quick:
        report.save("spark_feedback")
        plot("spark_feedback", "A Spark query that starts late, with and without feedback", [panel], columns=1)


if __name__ == "__main__":
    main()
