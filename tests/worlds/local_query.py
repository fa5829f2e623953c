"""A merge in Spark without Spark: its steps are called as Spark calls them, with real files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from merging_world import Row, element_of

from lmerge.core.batch import Batch
from lmerge.spark.frames import frame
from lmerge.spark.merging import shard
from lmerge.spark.merging.current_batch import CurrentBatch
from lmerge.spark.merging.packer import FILES, ROWS, Packer
from lmerge.spark.merging.packs import PACKS
from lmerge.spark.merging.rows import ROWS as ROWS_OUT
from lmerge.spark.merging.rows import Unpacker
from lmerge.spark.merging.shard import MergePlan
from lmerge.spark.merging.shard_task import OUT, run_shard
from lmerge.spark.merging.state_files import StateFiles

IN = pa.schema(
    [
        ("order", pa.int64()),
        ("kind", pa.string()),
        ("payload", pa.binary()),
        ("vs", pa.int64()),
        ("ve", pa.int64()),
        ("vold", pa.int64()),
    ]
)


class LocalQuery:
    """The dataflow of a query, called as Spark calls it, with real files. ``random`` decides what Spark leaves open."""

    root: Path  # of the test

    def __init__(self, plan: MergePlan, random: Random, form: str = ROWS) -> None:
        self.plan, self.random, self.form = plan, random, form
        self.folder = Path(mkdtemp(dir=self.root))
        self.number = 0
        self.query, self.run = "query 0", "run 0"
        self.delivered: Callable[[Sequence[Row]], Iterator[Any]] = self._arrow
        self.changes_worker: Callable[[], bool] = lambda: random.random() < 0.2

    def batch(self, by_input: Mapping[int, Sequence[Row]], fails: bool = False) -> list[Row]:
        """Return the rows of one batch. ``fails``: it is run, its output discarded, and it is run again."""
        if fails:
            self._run(by_input)
            if self.random.random() < 0.5:
                self.run = f"run {self.number + 1}"  # the query was started again
        rows = self._run(by_input)
        self.number += 1
        return rows

    def _run(self, by_input: Mapping[int, Sequence[Row]]) -> list[Row]:
        found = []
        for number, rows in by_input.items():
            order = "order" if self.plan.has_order else None
            name = self.plan.inputs[number].name
            packer = Packer(number, name, self.form, self.plan.shards, order, str(self.folder))
            for batch in packer.run(iter(self.delivered(rows)), self.number):
                assert batch.schema == PACKS
                found += batch.to_pylist()
        self.random.shuffle(found)
        out: list[Row] = []
        for at in range(self.plan.shards):
            own = [pack for pack in found if pack["shard"] == at]
            if self.changes_worker():
                shard._held.clear()  # another worker, which has seen no batch
            given = [pa.RecordBatch.from_pylist(own, schema=PACKS)] if own else []
            current = CurrentBatch(self.query, self.run, self.number, at)
            for batch in run_shard(self.plan, str(self.folder), current, iter(given)):
                assert batch.schema == OUT
                out += batch.to_pylist()
            shard._held[StateFiles(str(self.folder), at).place].merge.check()
        self.random.shuffle(out)
        places = [[row for row in out if row["place"] == place] for place in range(self.plan.shards)]
        unpacker = Unpacker(self.plan.shards)
        rows = []
        for place in places:
            for batch in unpacker(iter([pa.RecordBatch.from_pylist(place, schema=OUT)])):
                assert batch.schema == ROWS_OUT
                rows += batch.to_pylist()
        return rows

    def _arrow(self, rows: Sequence[Row]) -> Iterator[Any]:
        """Yield one input's rows in its form, in batches as Spark cuts them."""
        given = [row | {"payload": None if row["payload"] is None else row["payload"].encode()} for row in rows]
        if self.form == ROWS:
            if self.plan.has_order:
                self.random.shuffle(given)
            for start in range(0, len(given), 7):
                yield pa.RecordBatch.from_pylist(given[start : start + 7], schema=IN)
            return
        ends = [0, *sorted(self.random.randint(0, len(given)) for _ in range(2)), len(given)]
        parts = [given[a:b] for a, b in pairwise(ends)]
        self.random.shuffle(parts)
        for part in parts:
            if self.form == FILES:
                path = Path(mkdtemp(dir=self.root)) / "elements"
                kind = self.random.choice(("parquet", "file", "stream"))
                path.write_bytes(file_of(pa.Table.from_pylist(part, schema=IN), kind))
                yield pa.RecordBatch.from_pylist([{"path": f"file:{path}"}])
            elif part:
                yield frame_row(frame([Batch.of([element_of(row) for row in part])]), part[0]["order"])


def frame_row(data: bytes, order: int) -> Any:
    return pa.RecordBatch.from_pylist([{"frame": data, "order": order, "report": None}])


def file_of(table: Any, kind: str) -> bytes:
    """Return a table as the bytes of a file."""
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        pq.write_table(table, sink)
    else:
        with (pa.ipc.new_file if kind == "file" else pa.ipc.new_stream)(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=5)
    return bytes(sink.getvalue())
