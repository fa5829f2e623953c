"""A merge as a Spark query: for streams that are too large for one machine.

``merge([df_a, df_b])`` takes streams of elements and gives the stream that a server's merge of them would give. The
order of elements between two stables may differ, and the temporal database is the same at each stable point.

::

    rows, frames, files  what the inputs deliver (``packer``)
      pack               whole columns: what one input sends to one shard; stables go to every shard. Large packs are in
                         files of the checkpoint, and Spark shuffles their places (``pack_files``)
      shard              a core merge for each shard, whose state is in files of the checkpoint (``state_files``)
      unpack             rows again, and the stable of the batch: the smallest of the shards'

Columns in: ``kind`` (insert, adjust, stable), ``payload`` (binary or text), ``vs``, ``ve``, ``vold`` (whole numbers,
or timestamps as microseconds since the epoch; a null end is +inf; Vc of a stable is in ``vs``), and ``order``. Columns
out: the same, ``shard`` and ``ended``. With the envelope ``frames`` a row out is a whole frame, for another merge or
for ``format("lmerge")``; a row in with a column ``frame`` is one as well.

How the merge handles what Spark changes:

* **Order.** A micro-batch has no order, but the order of a stream of elements matters: an adjust comes after its
  insert, a stable after the elements that it covers. So the input needs a column that never falls from batch to batch:
  a sequence number of the source, the offset of a log with one partition, or the ``order`` of another ``merge``.
  Elements with the same order must be of different events. ``order=None`` does without such a column. Of each batch
  the inserts are then taken first, then the adjusts, then the stables. That is right where no batch has two elements of
  one event, as with the envelope ``elements`` of lmerge's own source. Between batches Spark's own order always counts.
* **Stables.** Each shard has a stable point, and the output's is the smallest of them: one row a batch. It covers all
  rows of its batch and of those before, wherever Spark puts it, and has the last ``order`` of them.
* **Broken promises** (law 6, docs/laws.md). An input that breaks a promise ends. Its reason is in ``ended`` of the
  batch's stable row (whose ``vs`` is -inf if there is no new stable), and its later rows are dropped. A row that is
  wrong by itself, such as one of an unknown kind, ends the input in all shards. A row that breaks a promise because of
  earlier rows, such as an adjust of an unknown event, ends the input in the shard of that payload, because no shard
  waits for the others in a batch. The other shards still accept the input, and each shard's output is a legal merge. So
  is the whole output, which is as stable as its least stable shard.
* **Attaching and leaving.** All inputs are attached from the start. A silent input delays only the end of the merge
  (law 5). A row of kind ``attach`` begins a new incarnation of its input (``vs``: from when on it is right, null:
  always), one of kind ``detach`` ends it. If nothing is stable yet and no input is left that is right from the
  beginning, the merge begins with the one that is right from the earliest time, and the output is right from there on.
* **Exactly once.** The state of a shard is a snapshot of its merge and the calls to it since. Each batch writes the
  state behind it as a file of its number. Batch N begins with the state after batch N-1, whenever and wherever it runs.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import DataFrame, functions
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, IntegralType, NullType, StringType, TimestampType

from lmerge.core.policy import parse_closing, parse_policy
from lmerge.core.properties import parse_properties
from lmerge.errors import UsageError
from lmerge.spark.frames import REPORT_DDL
from lmerge.spark.merging.element_files import TIMES
from lmerge.spark.merging.packer import FILES, FRAMES, ROWS, Packer
from lmerge.spark.merging.packs import PACKS
from lmerge.spark.merging.rows import FRAMES as OUT_FRAMES
from lmerge.spark.merging.rows import ROWS as OUT_ROWS
from lmerge.spark.merging.rows import Unpacker, frame_rows
from lmerge.spark.merging.shard import InputPlan, MergePlan
from lmerge.spark.merging.shard_task import OUT, ShardTask
from lmerge.spark.options import ENVELOPES
from lmerge.spark.options import FRAMES as FRAME_ENVELOPE
from lmerge.spark.sink.workers import begin_task

if TYPE_CHECKING:
    from pyspark.sql import Column

ALGORITHMS: Final = ("r3", "r4")
# Each shard is a task and a file a batch: more shards than this only cost time.
SHARDS_MAX: Final = 1_024
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class MergeInput:
    """An input with options. ``join_at``: its stream is right for every event with ``Ve >= join_at`` (V.B).

    ``properties``: what it promises beyond the algorithm's needs.
    """

    df: DataFrame
    join_at: int | None = None
    properties: tuple[str, ...] = ()


Step: TypeAlias = "Callable[[Iterator[Any]], Iterator[Any]]"
Inputs: TypeAlias = "Sequence[DataFrame | MergeInput] | Mapping[str, DataFrame | MergeInput]"


def merge(
    inputs: Inputs,
    algorithm: str = "r4",
    shards: int = 2,
    *,
    checkpoint: str,
    name: str = "merge",
    policy: str = "lazy",
    closing: str = "all",
    order: str | None = "order",
    envelope: str = "elements",
) -> DataFrame:
    """Return the merged stream of ``inputs`` as rows of elements (see above). Write it in output mode ``append``.

    ``inputs``: streaming DataFrames, by name or numbered from 0. ``algorithm``: ``r4``, or ``r3`` where (Vs, payload)
    is a key. ``shards``: the number of parallel merges. ``checkpoint``: that of the query, as in its
    ``checkpointLocation``; the merge's state is in a folder in it, with this ``name``, of which each merge of a query
    needs another. ``policy``, ``closing``: see ``lmerge.core.policy``. ``order``: the column that orders each input;
    None: see above. ``envelope``: ``elements``, or ``frames``. None of these but the last may change while a checkpoint
    lives, nor may the names of the inputs.

    Raises UsageError naming the problem: too old a Spark, an input that does not stream or lacks a column.
    """
    named = _named(inputs)
    _check_settings(algorithm, shards, policy, closing)
    _check_place(name, envelope)
    if not hasattr(next(iter(named.values())).df, "repartitionById"):
        raise UsageError("cannot merge in this Spark: repartitionById came with PySpark 4.1")
    plan = MergePlan(
        tuple(InputPlan(one, tuple(given.properties), given.join_at) for one, given in named.items()),
        algorithm,
        shards,
        policy,
        closing,
        order is not None,
    )
    folder = f"{checkpoint}/lmerge-{name}"
    plan.fresh()  # raises the core's errors about the settings
    with warnings.catch_warnings():
        # PySpark warns of new versions of pandas, which is not used here.
        warnings.filterwarnings("ignore", message=".*pandas", category=FutureWarning)
        packs = [_packed(at, one, given.df, plan, order, folder) for at, (one, given) in enumerate(named.items())]
        return _query(reduce(DataFrame.unionAll, packs), plan, folder, envelope == FRAME_ENVELOPE)


def _named(inputs: Inputs) -> dict[str, MergeInput]:
    pairs = inputs.items() if isinstance(inputs, Mapping) else ((str(at), one) for at, one in enumerate(inputs))
    named = {str(name): one if isinstance(one, MergeInput) else MergeInput(one) for name, one in pairs}
    if not named:
        raise UsageError("cannot merge: there are no inputs")
    for name, one in named.items():
        if not one.df.isStreaming:
            raise UsageError(f"cannot merge: input {name!r} does not stream; a merge needs the order of batches")
        parse_properties(one.properties)
    return named


def _check_settings(algorithm: str, shards: int, policy: str, closing: str) -> None:
    if algorithm not in ALGORITHMS:
        raise UsageError(f"cannot merge by {algorithm!r}: it is r3 or r4; the others keep no index to share out")
    if not 1 <= shards <= SHARDS_MAX:
        raise UsageError(f"cannot merge: there can be 1 to {SHARDS_MAX} shards, not {shards}")
    if parse_policy(policy).counts_elements and shards > 1:
        raise UsageError(f"policy {policy} needs one shard: none of {shards} receives all that inputs insert")
    parse_closing(closing)


def _packed(number: int, name: str, df: DataFrame, plan: MergePlan, order: str | None, folder: str) -> DataFrame:
    """Return the packs of one input."""
    form = _form(df)
    if form == FRAMES:
        if order is None or order not in df.columns:
            raise UsageError(f"cannot merge: input {name!r} is of frames, which need a column of order")
        report = functions.col("report") if "report" in df.columns else functions.lit(None).cast(REPORT_DDL)
        number_of = _typed(df, name, order, (IntegralType,)).cast("long")
        rows = df.select("frame", number_of.alias("order"), report.alias("report"))
    elif form == FILES:
        rows = df.select("path")
    else:
        rows = _rows(name, df, order)
    return _mapped(rows, PACKS, Packer(number, name, form, plan.shards, order, folder))


def _form(df: DataFrame) -> str:
    if df.columns == ["path"]:
        return FILES
    return FRAMES if "frame" in df.columns else ROWS


def _rows(name: str, df: DataFrame, order: str | None) -> DataFrame:
    """Return the rows of one input in the columns that ``Packer`` takes."""
    expected = ("kind", "payload", *TIMES, *([order] if order else []))
    missing = next((column for column in expected if column not in df.columns), None)
    if missing is not None and missing == order:
        raise UsageError(
            f"cannot merge: input {name!r} has no column {order!r} that orders its rows; name it with order=, or, "
            "where no batch has two elements of one event, order=None"
        )
    if missing is not None:
        raise UsageError(f"cannot merge: input {name!r} has no column {missing!r}; it has {', '.join(df.columns)}")
    number_of = functions.lit(None) if order is None else _typed(df, name, order, (IntegralType,))
    return df.select(
        number_of.cast("long").alias("order"),
        _typed(df, name, "kind", (StringType,)).alias("kind"),
        _typed(df, name, "payload", (BinaryType, StringType)).cast("binary").alias("payload"),
        *(_time(df, name, column).alias(column) for column in TIMES),
    )


def _time(df: DataFrame, name: str, column: str) -> Column:
    typed = _typed(df, name, column, (IntegralType, TimestampType))
    is_timestamp = isinstance(df.schema[column].dataType, TimestampType)
    return functions.unix_micros(typed) if is_timestamp else typed.cast("long")


def _check_place(name: str, envelope: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"cannot merge: {name!r} cannot be a name of a merge, which becomes a folder's")
    if envelope not in ENVELOPES:
        raise UsageError(f"cannot merge: unknown envelope {envelope!r}; there are {', '.join(ENVELOPES)}")


def _typed(df: DataFrame, name: str, column: str, types: tuple[Any, ...]) -> Column:
    kind = df.schema[column].dataType
    if not isinstance(kind, (*types, NullType)):
        expected = " or ".join(one.__name__.removesuffix("Type").lower() for one in types)
        raise UsageError(f"cannot merge: column {column!r} of input {name!r} is {kind.simpleString()}, not {expected}")
    return df[column]


def _query(packs: DataFrame, plan: MergePlan, folder: str, as_frames: bool) -> DataFrame:
    shard, unpacker = ShardTask(plan, folder), Unpacker(plan.shards)
    by_shard = packs.repartitionById(plan.shards, functions.col("shard"))
    if as_frames:
        return _mapped(by_shard, OUT_FRAMES, shard, partial(frame_rows, shards=plan.shards))
    if plan.shards == 1:
        return _mapped(by_shard, OUT_ROWS, shard, unpacker)
    shard_output = _mapped(by_shard, OUT, shard)
    return _mapped(shard_output.repartitionById(plan.shards, functions.col("place")), OUT_ROWS, unpacker)


def _mapped(df: DataFrame, schema: Any, *steps: Step) -> DataFrame:
    """Return the rows, of an Arrow schema, that the steps make of those of ``df``, one after another in one task."""
    return df.mapInArrow(_StepsTask(steps).__call__, from_arrow_schema(schema))


@dataclass(frozen=True)
class _StepsTask:
    steps: tuple[Step, ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        begin_task()
        for step in self.steps:
            batches = step(batches)
        return batches
