"""A merge as a Spark query: for streams that one machine cannot hold any more.

``merge([df_a, df_b])`` takes streams of elements and gives the stream that a server's merge of them would give: another
order of elements between two stables, and the same temporal database at each of its stable points.

::

    rows of elements     union, and a column: which shard (a hash of the payload)
      pack               whole Arrow columns: what one input says to one shard; stables go to every shard
      shard              a stateful processor: a core merge a shard, its state in Spark's state store
      unpack             rows again, and the stable of the batch: the least of the shards'

Columns in: ``kind`` (insert, adjust, stable), ``payload`` (binary or text), ``vs``, ``ve``, ``vold`` (whole numbers,
or timestamps as microseconds since the epoch; a null end is +inf; Vc of a stable is in ``vs``), and ``order``. Columns
out: the same, ``shard`` and ``ended``.

What Spark changes, and what is done about it:

* **Order.** A micro-batch has no order, and a stream of elements lives by it: an adjust comes after its insert, a
  stable after all that it speaks of. So a column is asked for that never falls from batch to batch: a sequence number
  of the source, the offset of a log with one partition, or the ``order`` of another ``merge``. Elements of one order
  must be of different events. ``order=None`` does without: of each batch the inserts are taken first, then the
  adjusts, then the stables, which is right where no batch speaks of an event twice, as with the envelope ``elements``
  of lmerge's own source. In every case between batches Spark's own order counts.
* **Stables.** Each shard has a stable point, and the output's is the least of them: one row a batch. It speaks of all
  rows of its batch and those before, wherever Spark puts it, and has the last ``order`` of them.
* **Broken promises** (law 6). An input that breaks one ends, with its reason in ``ended`` of the batch's stable row
  (``vs`` is -inf where there is nothing stable to be said), and its later rows are dropped. What a row shows by itself,
  such as a kind that there is not, ends the input in all shards. A promise that is broken by what came before, such as
  an adjust of an unknown event, ends it in the shard of that payload: no shard waits for the others in a batch. The
  others go on believing it, and each shard's output is a legal merge; so is the whole, which is as stable as its
  least shard.
* **Coming and going.** All inputs are attached from the start; one that is silent holds nobody up but in closing (law
  5). A row of kind ``attach`` begins a new life of its input (``vs``: from when on it is right, null: always), one of
  kind ``detach`` ends it. Where nothing is stable yet and no input is left that is right from the beginning, the merge
  begins with the one that is right from the earliest time; so is the output then.
* **Exactly once.** The state of a shard is the snapshot of its merge and what was said to it since, written in the
  batch it belongs to. A batch that is run again begins where it began before.
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
# Each shard is a group of Spark's and two rows a batch: more than this many only cost.
SHARDS_MAX: Final = 1_024

_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_TIMES: Final = ("vs", "ve", "vold")


@dataclass(frozen=True)
class MergeInput:
    """An input with more to say of it. ``join_at``: its stream is right for every event with ``Ve >= join_at`` (V.B);
    ``properties``: what it promises beyond the algorithm's needs.
    """

    df: DataFrame
    join_at: int | None = None
    properties: tuple[str, ...] = ()


Inputs: TypeAlias = "Sequence[DataFrame | MergeInput] | Mapping[str, DataFrame | MergeInput]"


def merge(
    inputs: Inputs, algorithm: str = "r4", shards: int = 2, *, policy: str = "lazy", closing: str = "all",
    order: str | None = "order",
) -> DataFrame:
    """The merged stream of ``inputs``, as rows of elements; see above. Write it in output mode ``append``.

    ``inputs``: streaming DataFrames, by name or numbered from 0. ``algorithm``: ``r4``, or ``r3`` where (Vs, payload)
    is a key. ``shards``: how many ways it is shared out; with ``spark.sql.shuffle.partitions`` equal to it, or dividing
    it, they are spread evenly. ``policy``, ``closing``: see ``lmerge.core.policy``. ``order``: the column that orders
    each input; None: see above. While a checkpoint lives none of these may change, nor the names of the inputs.

    Raises UsageError, naming what is wrong: too old a Spark, a session without the RocksDB state store, an input that
    does not stream or lacks a column.
    """
    named = _named(inputs)
    _check_settings(algorithm, shards, policy, closing)
    _check_session(next(iter(named.values())).df)
    plan = MergePlan(
        tuple(InputPlan(name, tuple(one.properties), one.join_at) for name, one in named.items()), algorithm, shards,
        policy, closing, order is not None,
    )
    plan.fresh()  # raises what the core has to say of it
    rows: DataFrame | None = None
    for number, (name, one) in enumerate(named.items()):
        mine = _rows(number, name, one.df, shards, order)
        rows = mine if rows is None else rows.unionAll(mine)
    assert rows is not None
    with warnings.catch_warnings():
        # PySpark warns of new versions of pandas, which has no part in this.
        warnings.filterwarnings("ignore", message=".*pandas", category=FutureWarning)
        return _query(rows, plan)


def lanes(shards: int) -> list[int]:
    """The number that Spark groups each shard by: the smallest ones that its hash spreads evenly over ``shards``.

    The first is 0 however many there are, so that a state of other settings is met and noticed.
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
    """Spark's ``hash`` of one int column, by which it shares groups out: Murmur3 with seed 42. Of 32 bits, signed."""
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
            raise UsageError(f"cannot merge: input {name!r} does not stream; a merge lives by the order of batches")
        parse_properties(one.properties)
    return named


def _check_settings(algorithm: str, shards: int, policy: str, closing: str) -> None:
    if algorithm not in ALGORITHMS:
        raise UsageError(f"cannot merge by {algorithm!r}: it is r3 or r4; the others keep no index to share out")
    if not 1 <= shards <= SHARDS_MAX:
        raise UsageError(f"cannot merge: there can be 1 to {SHARDS_MAX} shards, not {shards}")
    if parse_policy(policy).counts_elements and shards > 1:
        raise UsageError(f"policy {policy} needs one shard: of {shards} none sees all that inputs insert")
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
    """The rows of one input in the columns that ``Packer`` takes."""
    wanted = ("kind", "payload", *_TIMES, *([order] if order else []))
    missing = next((column for column in wanted if column not in df.columns), None)
    if missing is not None and missing == order:
        raise UsageError(
            f"cannot merge: input {name!r} has no column {order!r} that orders its rows; name it with order=, or, "
            "where no batch speaks of an event twice, order=None"
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
        wanted = " or ".join(one.__name__.removesuffix("Type").lower() for one in types)
        raise UsageError(f"cannot merge: column {column!r} of input {name!r} is {kind.simpleString()}, not {wanted}")
    return df[column]


def _query(rows: DataFrame, plan: MergePlan) -> DataFrame:
    packer = Packer(tuple(lanes(plan.shards)), plan.has_order)
    packs = rows.mapInArrow(packer.__call__, from_arrow_schema(PACKS))
    said = packs.groupBy("lane").transformWithState(ShardProcessor(plan), OUT, "Append", "None")
    if plan.shards > 1:
        said = said.repartitionById(plan.shards, functions.col("place"))
    return said.mapInArrow(Unpacker(plan.shards).__call__, from_arrow_schema(ROWS))
