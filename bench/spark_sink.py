"""How many milliseconds does publishing add to a micro-batch of Spark, and how many rows a second does the sink take?

One session of ``local[2]``, one ``lmerge serve`` and, for the rows a second, a subscriber that counts, all on one
machine of 2 cores. Each figure is measured in turns with two others in the same run: ``noop``, Spark's own sink that
does nothing, and a sink in Python that does nothing, which is the cost of any sink in Python.

Added cost: 1,000 rows a batch, two tasks, one batch each 500 ms; from the trigger to Spark's note that the batch is
done, which includes the servers' acknowledgement. Left out: the first batches of a query, in which workers start, and
a whole round of all sinks, in which the JVM compiles. Once with Spark's Python workers connected by Unix sockets, as
docs/spark.md recommends and as all other figures are measured, and once over TCP, the default of Spark.

Throughput: Parquet files of rows with four small columns and a lifetime (mode ``append`` of ``lmerge.spark.publish``),
and of elements with 24-byte payloads (``format("lmerge")``), two files and 400,000 rows a batch, as fast as possible.
Counted: all batches but the first two, by Spark's clock. A batch is done when a server has merged it, and the
subscriber must have every row. Targets: <= 50 ms more than noop; >= 300,000 rows/s.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from bench.harness import BenchReport, Measured, Panel, begin, bench_parser, plot
from bench.load import server, start
from bench.rig.spark import (
    SOCKETS,
    batch_ms,
    by_turns,
    rows_per_s,
    run_steadily,
    run_to_end,
    scratch_session,
    small_columns,
)
from lmerge.spark import publish, register

ADDED_MS, ROWS_PER_S = 50.0, 300_000
MERGE = "bench"
TRIGGER = "500 milliseconds"
UNIX, TCP = "Unix sockets", "TCP"
STARTS = 5  # batches in which workers start
STEP_US = 25  # between rows
LIFE_US = 1_000_000
NOOP, EMPTY = "noop", "a sink in Python that does nothing"
APPEND, ELEMENTS = "publish, append", "format(lmerge), elements"


class SinkBenchSize(NamedTuple):
    """The size: ``rounds`` of ``batches`` for the cost; ``repeats`` of ``files`` pairs of files of ``rows`` each."""

    rounds: int
    batches: int
    repeats: int
    files: int
    rows: int


FULL = SinkBenchSize(rounds=5, batches=25, repeats=5, files=14, rows=200_000)
QUICK = SinkBenchSize(rounds=1, batches=10, repeats=1, files=5, rows=50_000)


# Milliseconds a micro-batch.


def small_batches(spark: Any) -> Any:
    """Return the rows for every sink: 1,000 a batch, batches a second of event time apart."""
    rows = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=1_000, numPartitions=2, advanceMillisPerBatch=1_000)
        .load()
    )
    timed = rows.withWatermark("timestamp", "1 second")
    return timed.selectExpr("value", "timestamp", "timestamp + INTERVAL 2 SECONDS AS until")


def publishing(rows: Any, servers: str, merge: str) -> Any:
    """Return a writer of small batches."""
    return publish(rows, servers=servers, merge=merge, replica="a", vs="timestamp", ve="until", late="drop")


def added_cost(report: BenchReport, spark: Any, folder: Path, size: SinkBenchSize, connected_by: str) -> Panel:
    """Measure every sink in every round. The cost is the difference of a round's medians."""
    title = f"1,000 rows a batch, one each 500 ms; {connected_by}"
    panel = Panel(title, "batch", "ms from trigger to commit", is_plain=True)
    took: dict[str, list[list[float]]] = {NOOP: [], APPEND: [], EMPTY: []}
    with server() as target:
        for at in range(1 + size.rounds):
            writers: dict[str, Callable[[], Any]] = {
                NOOP: lambda: plain(small_batches(spark), "noop"),
                APPEND: lambda at=at: publishing(small_batches(spark), target, f"small{at}"),  # type: ignore[misc]
                EMPTY: lambda: plain(small_batches(spark), "bench_empty"),
            }
            for number, (name, writer) in enumerate(writers.items()):
                checkpoint = folder / f"small-{at}-{number}"
                batches = run_steadily(writer(), checkpoint, TRIGGER, STARTS + size.batches)
                if at > 0:  # in the first round the JVM is still compiling
                    took[name].append(batch_ms(batches)[STARTS:])
                shutil.rmtree(checkpoint)
    for name, rounds in took.items():
        report.add(f"a batch, {connected_by}: {name}", [median(values) for values in rounds], "ms")
        for at, value in enumerate(value for values in rounds for value in values):
            panel.add(name, at, Measured(name, [value], "ms"))
    for name in (EMPTY, APPEND):  # the last one has the target
        added = [median(mine) - median(noop) for mine, noop in zip(took[name], took[NOOP])]
        row = report.add(f"added to noop, {connected_by}: {name}", added, "ms")
    verdict = "reached" if row.median <= ADDED_MS else "MISSED"
    report.note(f"target added cost <= {ADDED_MS:g} ms, {connected_by}: {verdict} ({row.median:.0f} ms)")
    return panel


# Rows a second.


def write_files(folder: Path, size: SinkBenchSize) -> tuple[Path, Path]:
    """Write the same events as rows with columns, and as elements with a stable at the end of each batch."""
    rows, elements = folder / "rows", folder / "elements"
    rows.mkdir()
    elements.mkdir()
    for number in range(2 * size.files):
        numbers = range(number * size.rows, (number + 1) * size.rows)
        vs = pa.array([at * STEP_US for at in numbers], pa.int64())
        ve = pa.array([at * STEP_US + LIFE_US for at in numbers], pa.int64())
        times = {name: column.cast(pa.timestamp("us", "UTC")) for name, column in (("ts", vs), ("until", ve))}
        pq.write_table(pa.table({**small_columns(numbers), **times}), rows / f"{number:04}.parquet")
        table = pa.table(
            {"kind": ["insert"] * size.rows, "payload": pa.array([b"%024d" % at for at in numbers]), "vs": vs, "ve": ve}
        )
        if number % 2:
            stable = {"kind": ["stable"], "payload": [None], "vs": [numbers.stop * STEP_US], "ve": [None]}
            table = pa.concat_tables([table, pa.table(stable, schema=table.schema)])
        pq.write_table(table, elements / f"{number:04}.parquet")
    return rows, elements


def stream(spark: Any, folder: Path, schema: str) -> Any:
    """Return a stream of Parquet files, two a batch."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(str(folder))


def rows_of(spark: Any, folder: Path) -> Any:
    """Return the stream of rows, with a watermark."""
    columns = "carrier string, flight bigint, delay double, minutes bigint, ts timestamp, until timestamp"
    return stream(spark, folder, columns).withWatermark("ts", "0 seconds")


def elements_of(spark: Any, folder: Path) -> Any:
    """Return the stream of elements."""
    return stream(spark, folder, "kind string, payload binary, vs bigint, ve bigint")


def appended(spark: Any, folder: Path, target: str) -> Any:
    """Return a writer of the rows."""
    rows = rows_of(spark, folder)
    return publish(rows, servers=target, merge=MERGE, replica="a", vs="ts", ve="until", late="drop")


def written_elements(spark: Any, folder: Path, target: str) -> Any:
    """Return a writer of the elements."""
    options = {"servers": target, "merge": MERGE, "replica": "a", "properties": "insert-only,key"}
    return elements_of(spark, folder).writeStream.format("lmerge").options(**options)


def plain(rows: Any, sink: str) -> Any:
    """Return a writer to a sink without options."""
    return rows.writeStream.format(sink)


def rate(writer: Any, folder: Path, size: SinkBenchSize) -> float:
    """Return the rows a second of all batches but the first two."""
    with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
        batches = run_to_end(writer, Path(checkpoint))
    assert len(batches) == size.files, len(batches)
    return rows_per_s(batches[2:])


def merged_rate(writer: Callable[[str], Any], folder: Path, size: SinkBenchSize) -> float:
    """Return the same for a merge of its own, with a subscriber that counts."""
    with server() as target:
        counter = start(target, MERGE, 2 * size.files * size.rows, module="bench.rig.counter")
        try:
            line = _line(counter)
            assert line == "ready\n", line
            rows = rate(writer(target), folder, size)
            counts = json.loads(_line(counter))
            assert counts["inserts"] == 2 * size.files * size.rows, counts
        finally:
            counter.kill()
            counter.wait()
    return rows


def _line(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return process.stdout.readline()


def throughput(report: BenchReport, spark: Any, folder: Path, size: SinkBenchSize) -> Panel:
    """Measure every sink in every repeat."""
    rows, elements = write_files(folder, size)
    works: dict[str, Callable[[], float]] = {
        f"{NOOP}, rows": lambda: rate(plain(rows_of(spark, rows), "noop"), folder, size),
        f"{EMPTY}, rows": lambda: rate(plain(rows_of(spark, rows), "bench_empty"), folder, size),
        APPEND: lambda: merged_rate(lambda target: appended(spark, rows, target), folder, size),
        f"{NOOP}, elements": lambda: rate(plain(elements_of(spark, elements), "noop"), folder, size),
        f"{EMPTY}, elements": lambda: rate(plain(elements_of(spark, elements), "bench_empty"), folder, size),
        ELEMENTS: lambda: merged_rate(lambda target: written_elements(spark, elements, target), folder, size),
    }
    found = by_turns(works, size.repeats)
    panel = Panel("400,000 rows a batch", "repeat", "rows/s", log="y")
    for name, values in found.items():
        panel.add_repeats(name, report.add(name, values, "rows/s"))
    for name, empty in ((APPEND, f"{EMPTY}, rows"), (ELEMENTS, f"{EMPTY}, elements")):
        reached = median(found[name])
        report.note(f"{name} / {EMPTY} = {reached / median(found[empty]):.2f}")
        report.note(
            f"target {ROWS_PER_S:,} rows/s, {name}: {'reached' if reached >= ROWS_PER_S else 'MISSED'} ({reached:,.0f})"
        )
    return panel


def main() -> None:
    parser = bench_parser(__doc__, "spark_sink", "small")
    parser.add_argument("--part", choices=("cost", "throughput"), help="run only this part; nothing is written")
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    report = begin((__doc__ or "").splitlines()[0])
    report.note(f"pyspark {pyspark.__version__}, pyarrow {pa.__version__}")
    panels = []
    for connected_by in (TCP, UNIX) if options.part != "throughput" else ():
        with scratch_session(**{SOCKETS: str(connected_by == UNIX).lower()}) as (spark, folder):
            register(spark)
            panels.append(added_cost(report, spark, folder, size, connected_by))
    if options.part != "cost":
        with scratch_session() as (spark, folder):
            register(spark)
            panels.append(throughput(report, spark, folder, size))
    if not (options.quick or options.part):
        report.save("spark_sink")
        plot("spark_sink", "A Spark query that publishes, 2 cores for all", panels)


if __name__ == "__main__":
    main()
