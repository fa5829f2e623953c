"""A merge as a Spark query: for streams that are too large for one machine.

``merge([df_a, df_b])`` takes streams of elements and gives the stream that a server's merge of them would give. The
order of elements between two stables may differ, and the temporal database is the same at each stable point.

::

    rows of elements     union, and a column: which shard (a hash of the payload)
      pack               whole Arrow columns: what one input sends to one shard; stables go to every shard
      shard              a stateful processor: a core merge a shard, its state in Spark's state store
      unpack             rows again, and the stable of the batch: the smallest of the shards'

Columns in: ``kind`` (insert, adjust, stable), ``payload`` (binary or text), ``vs``, ``ve``, ``vold`` (whole numbers,
or timestamps as microseconds since the epoch; a null end is +inf; Vc of a stable is in ``vs``), and ``order``. Columns
out: the same, ``shard`` and ``ended``.

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
* **Exactly once.** The state of a shard is the snapshot of its merge and the calls to it since, written in the batch to
  which they belong. A batch that is run again begins where it began before.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import functions
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, IntegralType, NullType, StringType, TimestampType

from lmerge.core.policy import parse_closing, parse_policy
from lmerge.core.properties import parse_properties
from lmerge.errors import UsageError
from lmerge.spark.merging.packs import PACKS, Packer
from lmerge.spark.merging.processor import OUT, ShardProcessor
from lmerge.spark.merging.rows import ROWS, Unpacker
from lmerge.spark.merging.shard import InputPlan, MergePlan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ALGORITHMS: Final = ("r3", "r4")
# Each shard is one of Spark's groups and two rows a batch: more shards than this only cost time.
SHARDS_MAX: Final = 1_024

_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_TIMES: Final = ("vs", "ve", "vold")


@dataclass(frozen=True)
class MergeInput:
    """An input with options. ``join_at``: its stream is right for every event with ``Ve >= join_at`` (V.B).

    ``properties``: what it promises beyond the algorithm's needs.
    """

    df: DataFrame
    join_at: int | None = None
    properties: tuple[str, ...] = ()


Inputs: TypeAlias = "Sequence[DataFrame | MergeInput] | Mapping[str, DataFrame | MergeInput]"


def merge(
    inputs: Inputs,
    algorithm: str = "r4",
    shards: int = 2,
    *,
    policy: str = "lazy",
    closing: str = "all",
    order: str | None = "order",
) -> DataFrame:
    """Return the merged stream of ``inputs`` as rows of elements (see above). Write it in output mode ``append``.

    ``inputs``: streaming DataFrames, by name or numbered from 0. ``algorithm``: ``r4``, or ``r3`` where (Vs, payload)
    is a key. ``shards``: the number of parallel merges; they are spread evenly if ``spark.sql.shuffle.partitions``
    equals or divides it. ``policy``, ``closing``: see ``lmerge.core.policy``. ``order``: the column that orders each
    input; None: see above. None of these may change while a checkpoint lives, nor may the names of the inputs.

    Raises UsageError naming the problem: too old a Spark, a session without the RocksDB state store, an input that
    does not stream or lacks a column.
    """
    named = _named(inputs)
    _check_settings(algorithm, shards, policy, closing)
    _check_session(next(iter(named.values())).df)
    plan = MergePlan(
        tuple(InputPlan(name, tuple(one.properties), one.join_at) for name, one in named.items()),
        algorithm,
        shards,
        policy,
        closing,
        order is not None,
    )
    plan.fresh()  # raises the core's errors about the settings
    rows: DataFrame | None = None
    for number, (name, one) in enumerate(named.items()):
        mine = _rows(number, name, one.df, shards, order)
        rows = mine if rows is None else rows.unionAll(mine)
    assert rows is not None
    with warnings.catch_warnings():
        # PySpark warns of new versions of pandas, which is not used here.
        warnings.filterwarnings("ignore", message=".*pandas", category=FutureWarning)
        return _query(rows, plan)


def lanes(shards: int) -> list[int]:
    """Return the number by which Spark groups each shard: the smallest ones that its hash spreads evenly.

    The first is 0, however many there are, so that shard 0 always meets a state of other settings and reports it.
    """
    found = [0]
    taken = {spark_hash(0) % shards}
    candidate = 1
    while len(found) < shards:
        if spark_hash(candidate) % shards not in taken:
            found.append(candidate)
            taken.add(spark_hash(candidate) % shards)
        candidate += 1
    return found


def spark_hash(number: int) -> int:
    """Return Spark's ``hash`` of one int column, by which it spreads groups: Murmur3 with seed 42, signed 32 bits."""
    mask = 0xFFFFFFFF

    def rotated(value: int, by: int) -> int:
        return (value << by | value >> (32 - by)) & mask

    mixed = rotated((number & mask) * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    value = (rotated(42 ^ mixed, 13) * 5 + 0xE6546B64) & mask
    value ^= 4  # the length of an int
    value = (value ^ value >> 16) * 0x85EBCA6B & mask
    value = (value ^ value >> 13) * 0xC2B2AE35 & mask
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


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


def _check_session(df: DataFrame) -> None:
    spark: SparkSession = df.sparkSession
    if not hasattr(df, "repartitionById"):
        raise UsageError("cannot merge in this Spark: transformWithState on rows came with PySpark 4.1")
    provider = spark.conf.get(_PROVIDER)
    if provider != _ROCKSDB:
        raise UsageError(
            f"cannot merge: transformWithState needs the RocksDB state store, and this session has {provider}; "
            f"before the query is made: spark.conf.set({_PROVIDER!r}, {_ROCKSDB!r})"
        )


def _rows(number: int, name: str, df: DataFrame, shards: int, order: str | None) -> DataFrame:
    """Return the rows of one input in the columns that ``Packer`` takes."""
    expected = ("kind", "payload", *_TIMES, *([order] if order else []))
    missing = next((column for column in expected if column not in df.columns), None)
    if missing is not None and missing == order:
        raise UsageError(
            f"cannot merge: input {name!r} has no column {order!r} that orders its rows; name it with order=, or, "
            "where no batch has two elements of one event, order=None"
        )
    if missing is not None:
        raise UsageError(f"cannot merge: input {name!r} has no column {missing!r}; it has {', '.join(df.columns)}")
    payload = _typed(df, name, "payload", (BinaryType, StringType)).cast("binary")
    shard = functions.pmod(functions.xxhash64(payload), functions.lit(shards)).cast("int")
    number_of = functions.lit(None) if order is None else _typed(df, name, order, (IntegralType,))
    return df.select(
        functions.lit(number).alias("input"),
        shard.alias("shard"),
        number_of.cast("long").alias("order"),
        _typed(df, name, "kind", (StringType,)).alias("kind"),
        payload.alias("payload"),
        *(_time(df, name, column).alias(column) for column in _TIMES),
    )


def _time(df: DataFrame, name: str, column: str) -> Column:
    typed = _typed(df, name, column, (IntegralType, TimestampType))
    is_timestamp = isinstance(df.schema[column].dataType, TimestampType)
    return functions.unix_micros(typed) if is_timestamp else typed.cast("long")


def _typed(df: DataFrame, name: str, column: str, types: tuple[Any, ...]) -> Column:
    kind = df.schema[column].dataType
    if not isinstance(kind, (*types, NullType)):
        expected = " or ".join(one.__name__.removesuffix("Type").lower() for one in types)
        raise UsageError(f"cannot merge: column {column!r} of input {name!r} is {kind.simpleString()}, not {expected}")
    return df[column]


def _query(rows: DataFrame, plan: MergePlan) -> DataFrame:
    packer = Packer(tuple(lanes(plan.shards)), plan.has_order)
    packs = rows.mapInArrow(packer.__call__, from_arrow_schema(PACKS))
    shard_output = packs.groupBy("lane").transformWithState(ShardProcessor(plan), OUT, "Append", "None")
    if plan.shards > 1:
        shard_output = shard_output.repartitionById(plan.shards, functions.col("place"))
    return shard_output.mapInArrow(Unpacker(plan.shards).__call__, from_arrow_schema(ROWS))
