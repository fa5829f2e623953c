"""How many rows a second does Spark read from a merge, in each envelope?

One session of ``local[2]`` and one ``lmerge serve`` on one machine of 2 cores. The merge holds 2,000,000 events with
four small columns, all of them decided. A query with ``availableNow`` reads them from the beginning into ``noop``,
250,000 rows a batch, with decoded columns. Counted: all batches but the first two, in which workers start and the
driver reads ahead, by Spark's own clock. Beside it, in turns in the same run: the same rows from Parquet, and from a
source in Python with prepared Arrow batches, which is the cost of any source in Python. Target: final, >= 200,000
rows/s.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from bench.harness import BenchReport, Panel, begin, bench_parser, plot
from bench.load import server
from bench.rig.spark import SMALL, by_turns, rows_per_s, run_to_end, scratch_session, small_columns
from lmerge.client import Publisher
from lmerge.spark import register
from lmerge.spark.source.envelope_rows import ENVELOPES, FINAL, FRAMES
from lmerge.wire.arrow import insert_columns
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

ROWS_PER_S = 200_000
MERGE = "bench"
STEP_US, LIFE_US = 25, 50_000
PIECE = 10_000  # rows that are made at a time
PARQUET, READY = "Parquet", "a source in Python, batches ready"


class SourceBenchSize(NamedTuple):
    """The size of a run: ``events`` in the merge; ``rows_max`` a batch."""

    events: int
    rows_max: int
    repeats: int


FULL = SourceBenchSize(events=2_000_000, rows_max=250_000, repeats=5)
QUICK = SourceBenchSize(events=200_000, rows_max=50_000, repeats=1)


def pieces(events: int) -> Any:
    """Yield the events in tables, in order."""
    for first in range(0, events, PIECE):
        numbers = range(first, min(events, first + PIECE))
        vs = pa.array([at * STEP_US for at in numbers], pa.int64()).cast(pa.timestamp("us", "UTC"))
        ve = pa.array([at * STEP_US + LIFE_US for at in numbers], pa.int64()).cast(pa.timestamp("us", "UTC"))
        yield pa.table({**small_columns(numbers), "vs": vs, "ve": ve})


def fill(target: str, events: int) -> None:
    """Publish the events as one replica, which then leaves."""
    schema = parse_schema(SMALL)
    codec = RowCodec(schema)
    with Publisher(target, MERGE, "a", properties=("insert-only", "ordered", "key"), schema=schema) as publisher:
        for number, piece in enumerate(pieces(events), 1):
            publisher.publish(insert_columns(codec, piece, "vs", "ve"), stable=number * PIECE * STEP_US)
        publisher.stable(events * STEP_US + LIFE_US)
        publisher.flush()


def write_files(folder: Path, size: SourceBenchSize) -> None:
    """Write the same rows to Parquet, one file a batch."""
    folder.mkdir()
    table = pa.concat_tables(pieces(size.events))
    for number, first in enumerate(range(0, size.events, size.rows_max)):
        pq.write_table(table.slice(first, size.rows_max), folder / f"{number:04}.parquet", row_group_size=PIECE * 4)


def from_merge(spark: Any, target: str, envelope: str, size: SourceBenchSize) -> Any:
    """Return the stream of a merge in an envelope."""
    options = {
        "servers": target,
        "merge": MERGE,
        "startingOffsets": f"{MERGE}@-inf",
        "envelope": envelope,
        "maxRowsPerBatch": size.rows_max,
    }
    return spark.readStream.format("lmerge").options(**options).load()


def from_parquet(spark: Any, folder: Path) -> Any:
    """Return the stream of the same rows from files."""
    columns = "carrier string, flight bigint, delay double, minutes bigint, vs timestamp, ve timestamp"
    return spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(folder))


def from_ready(spark: Any, size: SourceBenchSize) -> Any:
    """Return a stream of as many rows from a source with prepared batches."""
    return spark.readStream.format("bench_ready").options(rows=size.events, rows_max=size.rows_max).load()


def measure(report: BenchReport, spark: Any, folder: Path, size: SourceBenchSize) -> Panel:
    """Measure every source in every repeat."""
    checkpoints = count()

    def rate(rows: Any, *, are_frames: bool = False) -> float:
        batches = run_to_end(rows.writeStream.format("noop"), folder / f"checkpoint-{next(checkpoints)}")
        read = sum(one["numInputRows"] for one in batches)
        if are_frames:  # a row holds thousands of elements
            return float(rows_per_s(batches[2:]) * size.events / read)
        assert read >= size.events, read
        return rows_per_s(batches[2:])

    def merge_rate(envelope: str) -> float:
        return rate(from_merge(spark, target, envelope, size), are_frames=envelope == FRAMES)

    write_files(folder / "files", size)
    with server("--retain-bytes", str(2**30)) as target:
        fill(target, size.events)
        works: dict[str, Callable[[], float]] = {
            PARQUET: lambda: rate(from_parquet(spark, folder / "files")),
            READY: lambda: rate(from_ready(spark, size)),
            **{name: partial(merge_rate, name) for name in ENVELOPES},
        }
        found = by_turns(works, size.repeats)
    panel = Panel(f"{size.rows_max:,} rows a batch, into noop", "repeat", "rows/s", log="y")
    for name, values in found.items():
        label = f"lmerge, {name}" if name in ENVELOPES else name
        panel.add_repeats(label, report.add(label, values, "rows/s"))
    return panel


def main() -> None:
    parser = bench_parser(__doc__, "spark_source", "small")
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    report = begin((__doc__ or "").splitlines()[0])
    report.note(f"pyspark {pyspark.__version__}, pyarrow {pa.__version__}")
    with scratch_session() as (spark, folder):
        register(spark)
        panel = measure(report, spark, folder, size)
    reached = next(row.median for row in report.rows if row.name == f"lmerge, {FINAL}")
    verdict = "reached" if reached >= ROWS_PER_S else "MISSED"
    report.note(f"target {ROWS_PER_S:,} rows/s, final: {verdict} ({reached:,.0f})")
    best = next(row.median for row in report.rows if row.name == PARQUET)
    report.note(f"lmerge, final / Parquet = {reached / best:.2f}")
    if not options.quick:
        report.save("spark_source")
        plot("spark_source", "A Spark query that reads a merge, 2 cores for all", [panel], columns=1)


if __name__ == "__main__":
    main()
