"""A user's PySpark query as a system under test: structured streaming over the batches of the generator.

The query is a function of a session and the streams of its sources, with the columns of their rows and ``vs`` and
``ve`` as bigints. It returns a streaming DataFrame with the columns of the result and ``vs`` and ``ve``. Each batch of
a source is a file, and each micro-batch reads one file of each source. Rows are events::

    def late(spark, flights):
        return flights.where("delay > 15").select("origin", "vs", "ve")

    check_replicas({"plan": plan, "spark": SparkSystem(session, late)}, data={"revisions": "none"})

In mode ``append`` a row is inserted; in ``update`` it replaces the row of its ``key`` and ``vs``; in ``complete`` a
batch is the whole table. The stable point is the end of the stream: Spark has no other one that holds in every mode.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lmerge.core.elements import INF, Adjust, Element, Insert, Stable
from lmerge.errors import InvalidRow, UsageError
from lmerge.testing.systems.inputs import TreeInputs
from lmerge.testing.systems.system import EmittedBatch, SystemFailure, SystemRun
from lmerge.testing.transforming.concrete import ConcreteTree
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Column, Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MODES: Final = ("append", "update", "complete")
TIMEOUT_S: Final = 300.0
_TYPES: Final = {"int": "bigint", "float": "double", "string": "string", "bool": "boolean", "date": "date"}

SparkQuery = Callable[..., "DataFrame"]
"""Takes a session and, by their names, the streams of the sources; returns the stream of the result."""


class SparkSystem:
    """Runs a query in a session. ``mode``: of its output; ``key``: columns of the result, for ``update``."""

    name = "spark"

    def __init__(self, session: SparkSession, query: SparkQuery, mode: str = "append", key: Sequence[str] = ()) -> None:
        if mode not in MODES:
            raise UsageError(f"the output mode is {mode!r:.64}; it is one of {', '.join(MODES)}")
        self._session, self._query, self._mode, self._key = session, query, mode, tuple(key)

    def versions(self) -> Mapping[str, str]:
        """Return the version of Spark."""
        return {"spark": self._session.version}

    def run(self, tree: ConcreteTree, inputs: TreeInputs, timeout_s: float = TIMEOUT_S) -> SystemRun:
        """Run the query over files. Raises SystemFailure for inputs with adjusts, and if the query fails."""
        ((name, node),) = tree.outputs.items()
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            sources = {}
            for source, given in tree.sources.items():
                _write(root / source, source, given.columns, inputs)
                sources[source] = self._stream(root / source, given.columns)
            table = _Emitting(node.schema, self._mode, self._key)
            try:
                made = self._query(self._session, **sources)
                writer = made.writeStream.outputMode(self._mode).foreachBatch(table.take)
                writer = writer.option("checkpointLocation", str(root / "checkpoint")).trigger(availableNow=True)
                running = writer.start()
                if not running.awaitTermination(int(max(timeout_s, TIMEOUT_S))):
                    running.stop()
                    raise SystemFailure(f"the query has not ended in {max(timeout_s, TIMEOUT_S):g} s")
            except SystemFailure:
                raise
            except Exception as problem:
                raise SystemFailure(f"the query failed: {str(problem)[:500]}") from problem
        return SystemRun({name: [*table.emitted, EmittedBatch(len(inputs.batches), [Stable(INF)])]})

    def _stream(self, folder: Path, schema: Schema) -> DataFrame:
        columns = [f"`{column.name}` {_spark_type(column)}" for column in schema.columns]
        reader = self._session.readStream.schema(", ".join([*columns, "vs bigint", "ve bigint"]))
        return reader.option("maxFilesPerTrigger", 1).json(str(folder))


def _spark_type(column: Column) -> str:
    if column.type == "decimal":
        return f"decimal(38,{column.scale})"
    if column.type not in _TYPES:
        raise UsageError(
            f"column {column.name!r:.64} is {column.describe()}, which is not read from files of JSON here"
        )
    return _TYPES[column.type]


def _write(folder: Path, source: str, schema: Schema, inputs: TreeInputs) -> None:
    """Write the inserts of each batch of a source as a file. Raises SystemFailure for an adjust."""
    folder.mkdir()
    codec = RowCodec(schema)
    number = 0
    for batch in inputs.batches:
        if batch.name != source:
            continue
        lines = []
        for element in batch.elements:
            if isinstance(element, Adjust):
                raise SystemFailure("a query on Spark reads inserts alone: state data={'revisions': 'none'}")
            if isinstance(element, Insert):
                row = {**codec.decode(element.payload), "vs": element.vs, "ve": element.ve}
                lines.append(json.dumps(row, default=str))
        number += 1
        (folder / f"{number:06}.json").write_text("\n".join(lines))


class _Emitting:
    """Makes elements of the rows of micro-batches."""

    def __init__(self, schema: Schema, mode: str, key: Sequence[str]) -> None:
        self.emitted: list[EmittedBatch] = []
        self._codec, self._mode, self._key = RowCodec(schema), mode, key
        self._live: Counter[tuple[bytes, int, int]] = Counter()
        self._of_key: dict[tuple[Any, ...], tuple[bytes, int, int]] = {}

    def take(self, rows: DataFrame, batch: int) -> None:
        """Take a micro-batch."""
        elements: list[Element] = []
        found: Counter[tuple[bytes, int, int]] = Counter()
        for row in rows.collect():
            values = row.asDict(recursive=True)
            try:
                vs, ve = int(values.pop("vs")), int(values.pop("ve"))
                event = self._codec.encode(values), vs, ve
            except (KeyError, TypeError, InvalidRow) as problem:
                raise SystemFailure(
                    f"micro-batch {batch}: row {values!r:.200} is none of the result: {problem}"
                ) from None
            found[event] += 1
            if self._mode == "update":
                place = (*(values[name] for name in self._key), vs)
                before = self._of_key.get(place)
                if before is not None:
                    elements += self._removed(before)
                self._of_key[place] = event
            if self._mode != "complete":
                elements += self._inserted(event)
        if self._mode == "complete":
            for event, count in (self._live - found).items():
                elements += [one for _ in range(count) for one in self._removed(event)]
            for event, count in (found - self._live).items():
                elements += [one for _ in range(count) for one in self._inserted(event)]
        if elements:
            self.emitted.append(EmittedBatch(batch + 1, elements))

    def _inserted(self, event: tuple[bytes, int, int]) -> list[Element]:
        self._live[event] += 1
        return [Insert(*event)]

    def _removed(self, event: tuple[bytes, int, int]) -> list[Element]:
        self._live[event] -= 1
        payload, vs, ve = event
        return [Adjust(payload, vs, ve, vs)]
