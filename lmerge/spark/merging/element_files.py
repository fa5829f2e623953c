"""Files of elements as an input of a merge in Spark: Spark lists them, and its Python workers read them.

So their elements are never rows of Spark, which cost more than all else that a merge does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lmerge.errors import InvalidRow, UsageError
from lmerge.spark.sink import columns
from lmerge.spark.spool.files import file_system

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMES: Final = ("vs", "ve", "vold")
# What Spark's source of whole files gives. Only ``path`` is used, so that Spark does not read the contents.
_SCHEMA: Final = "path string, modificationTime timestamp, length long, content binary"
_KINDS: Final = pa.dictionary(pa.int32(), pa.string())
_PARQUET: Final = b"PAR1"
_ARROW_FILE: Final = b"ARROW1"
_ARROW_STREAM: Final = b"\xff\xff\xff\xff"


def element_files(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    """Return a stream of the files in a folder, as an input of ``lmerge.spark.merge``.

    The files are Parquet, or Arrow in its file or stream format. Their columns are ``kind``, ``payload``, ``vs``,
    ``ve``, ``vold`` and one of order. ``path``: a folder or a pattern, on a file system that all workers can read.
    ``options``: of Spark's file sources, such as ``maxFilesPerTrigger``. A file that cannot be read ends the query with
    its name. Raises UsageError for an option whose value is None.
    """
    reader = spark.readStream.format("binaryFile").schema(_SCHEMA)
    for name, value in options.items():
        if value is None:
            raise UsageError(f"cannot read elements of {path}: option {name} has no value")
        reader = reader.option(name, value)
    return reader.load(path).select("path")


def element_columns(table: Any, order: str | None) -> Any:
    """Return a table of elements in the types of rows: kind, payload, vs, ve, vold and ``order``.

    Raises InvalidRow naming the column.
    """
    payload = columns.column_of(table, "payload")
    found = {
        "kind": _kinds_of(table),
        "payload": payload.cast(pa.binary()),
        **{name: columns.times_of(table, name) for name in TIMES},
        "order": pa.nulls(table.num_rows, pa.int64()) if order is None else columns.column_of(table, order),
    }
    if not pa.types.is_integer(found["order"].type) and order is not None:
        raise InvalidRow(f"column {order!r} of order is {found['order'].type}, not a whole number")
    return pa.table(found | {"order": found["order"].cast(pa.int64())})


def _kinds_of(table: Any) -> Any:
    """Return the column of kinds as text, or as the dictionary that a Parquet file has of it."""
    if "kind" in table.column_names and table.schema.field("kind").type == _KINDS:
        return table.column("kind")
    return columns.column_of(table, "kind").cast(pa.string())


def table_in(uri: str) -> Any:
    """Return the table in a file. Raises InvalidRow, OSError and Arrow's errors."""
    filesystem, path = file_system(uri)
    with filesystem.open_input_file(path) as file:
        content = file.read_buffer()
    start = content[: len(_ARROW_FILE)].to_pybytes()
    if start.startswith(_PARQUET):
        return pq.read_table(pa.BufferReader(content), use_threads=False, read_dictionary=["kind"])
    if start == _ARROW_FILE:
        return pa.ipc.open_file(content).read_all()
    if start.startswith(_ARROW_STREAM):
        return pa.ipc.open_stream(content).read_all()
    raise InvalidRow("it is neither Parquet nor Arrow")
