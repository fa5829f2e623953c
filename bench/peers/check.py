"""Compares the output of a job with the reference, as multisets of events: order and batching are not compared."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from bench.peers.recording import COLUMNS, read


def verdict(output: Path, data: Path) -> str:
    """Return ``""`` if the Parquet or CSV files of ``output`` hold the reference's events once; else what differs."""
    reference = read(data / "reference.arrow")
    events = _events(output)
    if events.sort_by([(name, "ascending") for name in COLUMNS]).equals(reference):
        return ""
    expected, got = _counted(reference), _counted(events)
    missing, extra = (expected - got).total(), (got - expected).total()
    return f"{missing:,} of {reference.num_rows:,} events missing, {extra:,} too many"


def _events(output: Path) -> pa.Table:
    schema = pa.schema([("vs", pa.int64()), ("payload", pa.string()), ("ve", pa.int64())])
    tables = [schema.empty_table()]
    for path in sorted(output.rglob("*.parquet")):
        tables.append(pq.ParquetFile(path).read(columns=list(COLUMNS)).select(COLUMNS).cast(schema))
    for path in sorted(output.rglob("*.csv")):
        convert = pcsv.ConvertOptions(column_types=schema)
        table = pcsv.read_csv(path, convert_options=convert)
        # A system whose output is differences must not have retracted anything.
        assert "diff" not in table.column_names or set(table["diff"].unique().to_pylist()) <= {1}
        tables.append(table.select(COLUMNS))
    return pa.concat_tables(tables).combine_chunks()


def _counted(table: pa.Table) -> Counter[tuple[int, str, int]]:
    return Counter(zip(*(table[name].to_pylist() for name in COLUMNS)))
