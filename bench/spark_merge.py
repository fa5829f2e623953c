"""How many elements a second does a merge take as a Spark query, where does its CPU go, and what does a batch cost?

Two inputs, 16-byte payloads, 20 % disorder, 1 % stables, 100,000 live events; R3; ``local[2]``. Each batch reads one
Parquet file of each input. All variants run in turns over the same files, and the first round is left out: in it the
JVM compiles. Counted: all batches of a run but the first and the last, by Spark's clock, from the trigger to Spark's
note that the batch is done, written to ``noop``.

``rows``: Spark reads the files, and elements are rows. ``files``: the Python workers read them
(``lmerge.spark.element_files``). ``-> frames``, ``-> rows``: the envelope of the result. Beside them in the same run: a
query that only reads the same rows; the core alone, on one thread, with batches as they come from the network.

CPU: of all processes of Spark, and microseconds of it for each element. The differences between the variants are the
stages: reading, packing, merging, rows of the result. From them and the time of a batch of 1,000 elements, which is
Spark's own, follows the rate on many cores: elements of a batch / (fixed time + elements * CPU / cores).
``local-cluster`` checks it: the same with one executor of one core, and with two. What code in the JVM could save at
most: a scan of the files by columns, beside one by rows, and rows that go to Python.

Targets: >= 1.5 M elements/s at 800,000 a batch from files, >= 0.6 M from rows, <= 350 ms for a batch of 1,000; two
executors >= 1.8 times one.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from bench.core_r3 import PROPERTIES, arrivals
from bench.harness import BenchReport, begin, bench_parser, timed
from bench.rig.spark import batch_ms, run_to_end, scratch_session
from lmerge.core.batch import AnyBatch
from lmerge.core.engines.selection import best
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import packed_snapshot_of, restored_packed
from lmerge.spark import element_files, merge
from lmerge.spark.merging.packer import FILES, ROWS, Packer
from lmerge.spark.merging.packs import PACKS
from lmerge.spark.sink.columns import batch_of
from lmerge.testing.streams.large_inputs import LARGE, LargeInputs

BATCHES = 10  # of each run
REPEATS = 5
SIZES = (500, 100_000, 400_000)  # rows of one input in a batch
ALIVE = 100_000
KINDS = ("insert", "adjust", "stable")
SCHEMA = "`order` long, kind string, payload binary, vs long, ve long, vold long"
CORES = (2, 10, 100)


class SparkRun(NamedTuple):
    """One run of a query: milliseconds of each batch, elements of these, and CPU seconds of the whole run."""

    batches_ms: list[float]
    elements: int
    cpu_s: float
    total: int

    @property
    def rate(self) -> float:
        """Elements a second."""
        return self.elements / sum(self.batches_ms) * 1e3


class Inputs:
    """Two inputs in folders of Parquet files, and the queries over them."""

    def __init__(self, folder: Path, batch_rows: int, batches: int) -> None:
        alive = min(ALIVE, batch_rows)
        spec = LargeInputs(replace(LARGE, events=batches * batch_rows, alive=alive), inputs=2, batch_rows=batch_rows)
        self.folder = folder
        folder.mkdir()
        self.batches = [list(part)[:batches] for part in spec.batches()]
        self.counts = write_inputs(folder, self.batches)

    def rows(self, spark: SparkSession) -> list[DataFrame]:
        """Return the inputs as rows of Spark."""
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return [reader.parquet(str(one)) for one in sorted(self.folder.glob("in*"))]

    def files(self, spark: SparkSession) -> list[DataFrame]:
        """Return the inputs as files."""
        return [element_files(spark, str(one), maxFilesPerTrigger=1) for one in sorted(self.folder.glob("in*"))]

    def run(self, make: Callable[[str], DataFrame]) -> SparkRun:
        """SparkRun the query that ``make`` makes for a checkpoint, once."""
        with tempfile.TemporaryDirectory(dir=self.folder) as checkpoint:
            writer = make(checkpoint).writeStream.format("noop")
            before = cpu_of_spark()
            ran = run_to_end(writer, Path(checkpoint))
            after = cpu_of_spark()
        counted = [one for one in ran if 0 < one["batchId"] < len(self.counts) - 1]
        elements = sum(self.counts[one["batchId"]] for one in counted)
        cpu_s = sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
        return SparkRun(batch_ms(counted), elements, cpu_s, sum(self.counts))


def variants(inputs: Inputs, spark: SparkSession, shards: int) -> Mapping[str, Callable[[str], DataFrame]]:
    """Return the queries that are compared, by name: each makes its DataFrame for a checkpoint."""

    def packed(given: Sequence[DataFrame], form: str, checkpoint: str) -> DataFrame:
        made = [
            one.mapInArrow(Packer(at, f"{at}", form, shards, "order", checkpoint).__call__, from_arrow_schema(PACKS))
            for at, one in enumerate(given)
        ]
        return reduce(DataFrame.unionAll, made)

    def merged(given: Sequence[DataFrame], envelope: str, checkpoint: str) -> DataFrame:
        return merge(given, algorithm="r3", shards=shards, checkpoint=checkpoint, envelope=envelope)

    return {
        "rows, only read": lambda _: reduce(DataFrame.unionAll, inputs.rows(spark)),
        "rows, packed": lambda at: packed(inputs.rows(spark), ROWS, at),
        "rows -> rows": lambda at: merged(inputs.rows(spark), "elements", at),
        "files, packed": lambda at: packed(inputs.files(spark), FILES, at),
        "files -> frames": lambda at: merged(inputs.files(spark), "frames", at),
        "files -> rows": lambda at: merged(inputs.files(spark), "elements", at),
    }


def cpu_of_spark() -> dict[int, float]:
    """Return the CPU seconds of this process's JVM, its executors and their Python workers, by process."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found[process.pid] = times.user + times.system
    return found


def write_inputs(folder: Path, inputs: Sequence[Sequence[AnyBatch]]) -> list[int]:
    """Write a folder of Parquet files per input, one file a batch. Return the number of elements of each batch."""
    counts = [0] * max(map(len, inputs))
    for number, batches in enumerate(inputs):
        where = folder / f"in{number}"
        where.mkdir()
        order = 0
        for at, batch in enumerate(batches):
            stables = [kind == 2 for kind in batch.kinds]
            table = pa.table(
                {
                    "order": pa.array(range(order, order + batch.count)),
                    "kind": [KINDS[kind] for kind in batch.kinds],
                    "payload": pa.array(batch.payloads, pa.binary(), mask=_mask(stables)),
                    "vs": pa.array(batch.vs),
                    "ve": pa.array(batch.ve),
                    "vold": pa.array(batch.vold),
                }
            )
            order += batch.count
            counts[at] += batch.count
            pq.write_table(table, where / f"{at:04}.parquet")
            os.utime(where / f"{at:04}.parquet", (at + 1, at + 1))
    return counts


def _mask(stables: list[bool]) -> Any:
    import numpy

    return numpy.array(stables)


def core_rate(order: list[tuple[str, AnyBatch]]) -> float:
    """Return the elements a second of the core alone, on the engine of the service."""

    def run() -> None:
        merging = Merge(MergeConfig("r3", track_live=False))
        for name in sorted({name for name, _ in order}):
            merging.attach(name, PROPERTIES["r3"])
        for name, batch in order:
            assert not merging.apply(name, batch).detached

    return sum(batch.count for _, batch in order) / timed(run)


def measure_state(report: BenchReport, order: Sequence[tuple[str, AnyBatch]]) -> None:
    """Measure microseconds per live event of a snapshot, which a long log needs, and of its restore."""
    merging = Merge(MergeConfig("r3", track_live=False))
    for name in sorted({name for name, _ in order}):
        merging.attach(name, PROPERTIES["r3"])
    for name, batch in order[: len(order) // 2]:
        merging.apply(name, batch)
    data, live = packed_snapshot_of(merging), merging.live_count
    taken = [timed(lambda: packed_snapshot_of(merging)) / live * 1e6 for _ in range(REPEATS)]
    took = [timed(lambda: restored_packed(*data)) / live * 1e6 for _ in range(REPEATS)]
    report.add(f"snapshot of {live:,} live events", taken, "us/event")
    report.add(f"restore of {live:,} live events", took, "us/event")


def measure(report: BenchReport, spark: SparkSession, inputs: Inputs, repeats: int) -> dict[str, float]:
    """Measure all variants in turns. Return microseconds of CPU for each element, by variant."""
    size = f"{max(inputs.counts):,} a batch"
    runs: dict[str, list[SparkRun]] = {}
    for turn in range(repeats + 1):
        for name, make in variants(inputs, spark, 2).items():
            run = inputs.run(make)
            if turn:
                runs.setdefault(name, []).append(run)
    for name, found in runs.items():
        report.add(f"{size}: {name}", [run.rate for run in found], "elements/s")
        report.add(f"{size}: {name}, a batch", [median(run.batches_ms) for run in found], "ms")
    cpu = {name: median(run.cpu_s / run.total for run in found) * 1e6 for name, found in runs.items()}
    for name, found in runs.items():
        report.add(f"{size}: {name}, CPU", [run.cpu_s / run.total * 1e6 for run in found], "us/element")
    return cpu


def measure_columnar(report: BenchReport, spark: SparkSession, inputs: Inputs, repeats: int) -> None:
    """Measure what code in the JVM could save at most: a scan of the same files by its columns, as rows, and to Arrow.

    As queries that are not streaming, wall time on two cores.
    """
    paths = [str(path) for path in sorted(inputs.folder.glob("in*/*.parquet"))]
    rows = spark.read.schema(SCHEMA).parquet(*paths)
    to_python = rows.mapInArrow(_nothing, SCHEMA)

    def plan(df: DataFrame) -> Any:
        return df._jdf.queryExecution().executedPlan()  # noqa: SLF001  (the columns of a scan are not public)

    def columnar(node: Any) -> Any:
        while not node.supportsColumnar():
            node = node.children().head()
        return node

    works = {
        "columns of a scan": lambda: columnar(plan(rows)).executeColumnar().count(),
        "rows of a scan": lambda: plan(rows).execute().count(),
        "rows of a scan, to Python": lambda: plan(to_python).execute().count(),
    }
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            seconds = timed(work)
            if turn:
                found[name].append(seconds / sum(inputs.counts) * 1e6)
    for name, values in found.items():
        report.add(name, values, "us/element")


def _nothing(batches: Iterator[Any]) -> Iterator[Any]:
    """Read record batches and give none."""
    for _ in batches:
        pass
    yield from ()


def note_scaling(report: BenchReport, fixed_ms: float, elements: int, cpu: Mapping[str, float]) -> None:
    """Note the CPU of each stage, and the rates that follow from it."""
    for form in ("rows", "files"):
        packed, merged = cpu[f"{form}, packed"], cpu[f"{form} -> rows"]
        read = cpu.get(f"{form}, only read", 0.0)
        report.note(
            f"{form}: {read:.2f} us of CPU an element to read, {packed - read:.2f} to pack, {merged - packed:.2f} to "
            "merge and to make rows"
        )
    for name in ("rows -> rows", "files -> frames"):
        rates = [elements / (fixed_ms / 1e3 + elements * cpu[name] / 1e6 / cores) / 1e6 for cores in CORES]
        text = ", ".join(f"{rate:.2f} M/s on {cores}" for rate, cores in zip(rates, CORES))
        report.note(f"{name}, batches of {elements:,}: by CPU and the fixed {fixed_ms:.0f} ms: {text} cores")


def use_home(scratch: Path) -> None:
    """Make a SPARK_HOME in which executors of ``local-cluster`` can write. Call it before the first session."""
    installed = Path(next(iter(pyspark.__path__)))
    home = scratch / "home"
    home.mkdir()
    for part in installed.iterdir():
        (home / part.name).symlink_to(part)
    os.environ["SPARK_HOME"] = str(home)


def measure_executors(report: BenchReport, folder: Path, inputs: Inputs, repeats: int) -> None:
    """Measure one and two executors of one core."""
    rates = {}
    for count in (1, 2):
        with scratch_session(spark_master=f"local-cluster[{count},1,1024]") as (spark, _):
            make = variants(inputs, spark, 2)["files -> frames"]
            runs = [inputs.run(make) for _ in range(repeats + 1)][1:]
        name = f"{max(inputs.counts):,} a batch: files -> frames, {count} executor{'s' * (count > 1)} of one core"
        rates[count] = report.add(name, [run.rate for run in runs], "elements/s").median
    report.note(f"two executors / one = {rates[2] / rates[1]:.2f}")


def main() -> None:
    parser = bench_parser(__doc__, "spark_merge", "small")
    quick = parser.parse_args().quick
    sizes, batches, repeats = ((200, 5_000), 4, 1) if quick else (SIZES, BATCHES, REPEATS)
    warnings.filterwarnings("ignore", message=".*pandas", category=FutureWarning)
    report = begin((__doc__ or "").splitlines()[0])
    with tempfile.TemporaryDirectory(prefix="lmerge-bench-", ignore_cleanup_errors=True) as scratch:
        use_home(Path(scratch))
        inputs = [Inputs(Path(scratch) / str(size), size, batches) for size in sizes]
        order = [(name, _columns(batch)) for name, batch in arrivals(inputs[-1].batches)]
        core = report.add(
            f"the core alone, {best()}, one thread", [core_rate(order) for _ in range(REPEATS)], "elements/s"
        )
        measure_state(report, order)
        with scratch_session() as (spark, _):
            cpus = [measure(report, spark, one, repeats) for one in inputs]
            measure_columnar(report, spark, inputs[-1], repeats)
        fixed = next(row.median for row in report.rows if row.name.endswith("files -> frames, a batch"))
        note_scaling(report, fixed, max(inputs[-1].counts), cpus[-1])
        measure_executors(report, Path(scratch), inputs[-1], repeats)
    best_rate = max(row.median for row in report.rows if row.unit == "elements/s" and "->" in row.name)
    report.note(f"the fastest merge in Spark / the core alone = {best_rate / core.median:.2f}")
    if not quick:
        report.save("spark_merge")


def _columns(batch: AnyBatch) -> AnyBatch:
    """Return a batch in the form of the best engine."""
    vs, ve, vold = (pa.array(column, pa.int64()) for column in (batch.vs, batch.ve, batch.vold))
    return batch_of(batch.kinds, vs, ve, vold, pa.array(batch.payloads, pa.binary()))


if __name__ == "__main__":
    main()
