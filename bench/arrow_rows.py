"""How many rows a second become canonical payloads, and back, natively and in Python?

Record batches of 8,192 rows, as Spark and DuckDB produce them; CPU time of one core. Encoding is one call of
``insert_columns`` per batch and gives the inserts of a publisher. Decoding is ``decode_inserts`` and gives an Arrow
table. Target: at least 3 M rows/s natively for a row of four small columns.
"""

from __future__ import annotations

import random
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from bench.harness import BenchReport, Measured, begin, bench_parser, cpu_timed
from lmerge.core.engines.selection import NATIVE, PYTHON
from lmerge.wire.arrow import decode_inserts, insert_columns
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import SchemaLike

BATCH_ROWS = 8_192
BATCHES = {NATIVE: 40, PYTHON: 4}
TARGET = 3e6
TARGET_SHAPE = "4 small columns"
CARRIERS = ("UA", "AA", "DL", "B6", "WN", "EV", "MQ", "US")


def small(rng: random.Random) -> tuple[SchemaLike, dict[str, Any]]:
    """A flight: carrier, number, delay, minutes."""
    return {"carrier": "string", "flight": "int", "delay": "float?", "minutes": "int"}, {
        "carrier": pa.array(rng.choices(CARRIERS, k=BATCH_ROWS)),
        "flight": pa.array([rng.randrange(8_500) for _ in range(BATCH_ROWS)], pa.int32()),
        "delay": pa.array([None if rng.random() < 0.03 else rng.randrange(-30, 300) * 1.0 for _ in range(BATCH_ROWS)]),
        "minutes": pa.array([rng.randrange(600) for _ in range(BATCH_ROWS)], pa.int16()),
    }


def rounded(rng: random.Random) -> tuple[SchemaLike, dict[str, Any]]:
    """An aggregate: a key, a count, and two sums that are rounded."""
    _, columns = small(rng)
    sums = {name: pa.array([rng.random() * 1e4 for _ in range(BATCH_ROWS)]) for name in ("total", "mean")}
    return {"carrier": "string", "flights": "int", "total": "float(2)", "mean": "float(6)"}, {
        "carrier": columns["carrier"].dictionary_encode(),
        "flights": columns["flight"],
        **sums,
    }


def wide(rng: random.Random) -> tuple[SchemaLike, dict[str, Any]]:
    """Twenty columns of all simple types."""
    made = {
        "string": pa.array([f"tail {rng.randrange(10_000)} of the fleet" for _ in range(BATCH_ROWS)]),
        "int": pa.array([rng.randrange(-(2**40), 2**40) for _ in range(BATCH_ROWS)]),
        "float": pa.array([rng.random() for _ in range(BATCH_ROWS)]),
        "timestamp": pa.array([rng.randrange(2**50) for _ in range(BATCH_ROWS)], pa.timestamp("us", "UTC")),
        "bool": pa.array([rng.random() < 0.5 for _ in range(BATCH_ROWS)]),
    }
    names = [(f"{kind}_{at}", kind) for at in range(4) for kind in made]
    return dict(names), {name: made[kind] for name, kind in names}


def exact(rng: random.Random) -> tuple[SchemaLike, dict[str, Any]]:
    """Money and days: a date and three decimals."""
    cents = pa.array([rng.randrange(10**9) for _ in range(BATCH_ROWS)]).cast(pa.decimal128(20, 0))
    days = pa.array([rng.randrange(20_000) for _ in range(BATCH_ROWS)], pa.int32()).cast(pa.date32())
    names = ("paid", "due", "tax")
    return {"day": "date"} | dict.fromkeys(names, "decimal(2)"), {"day": days} | dict.fromkeys(names, cents)


def nested(rng: random.Random) -> tuple[SchemaLike, dict[str, Any]]:
    """A key, a struct of two, a list of floats."""
    _, columns = small(rng)
    lists = [[rng.random() for _ in range(rng.randrange(6))] for _ in range(BATCH_ROWS)]
    return {"carrier": "string", "route": {"from": "string", "miles": "int"}, "samples": "list<float>"}, {
        "carrier": columns["carrier"],
        "samples": pa.array(lists),
        "route": pa.StructArray.from_arrays([columns["carrier"], columns["flight"]], ["from", "miles"]),
    }


SHAPES = {
    TARGET_SHAPE: small,
    "4 columns, 2 rounded, 1 dictionary": rounded,
    "20 columns": wide,
    "a date, 3 decimals": exact,
    "a struct and a list": nested,
}


def rates(engine: str, codec: RowCodec, rows: Any, repeats: int) -> tuple[list[float], list[float]]:
    """Return the rows per second of encoding, and of decoding."""
    inserts = insert_columns(codec, rows, "vs", "ve", engine=engine)
    batches = BATCHES[engine]

    def encode() -> None:
        for _ in range(batches):
            insert_columns(codec, rows, "vs", "ve", engine=engine)

    def decode() -> None:
        for _ in range(batches):
            decode_inserts(codec, inserts, engine=engine)

    count = batches * BATCH_ROWS
    return [count / cpu_timed(encode) for _ in range(repeats)], [count / cpu_timed(decode) for _ in range(repeats)]


def measure(report: BenchReport, shape: str, repeats: int) -> Measured:
    """Measure both engines on one shape, in turns. Return the native rate of encoding."""
    schema, columns = SHAPES[shape](random.Random(13))
    times = pa.array(range(BATCH_ROWS)).cast(pa.timestamp("us", "UTC"))
    rows = pa.record_batch(columns | {"vs": times, "ve": times})
    codec = RowCodec(schema)
    found: dict[str, tuple[Measured, Measured]] = {}
    for engine in (NATIVE, PYTHON):
        encoded, decoded = rates(engine, codec, rows, repeats)
        found[engine] = (
            report.add(f"{engine}, encode, {shape}", encoded, "rows/s"),
            report.add(f"{engine}, decode, {shape}", decoded, "rows/s"),
        )
    there, back = (native.median / python.median for native, python in zip(found[NATIVE], found[PYTHON], strict=True))
    report.note(f"{shape}: native / Python {there:.0f} times encoding, {back:.0f} times decoding")
    return found[NATIVE][0]


def main() -> None:
    parser = bench_parser(__doc__, "arrow_rows", "three repeats")
    quick = parser.parse_args().quick
    report = begin((__doc__ or "").splitlines()[0])
    report.note(f"pyarrow {version('pyarrow')}, msgpack {version('msgpack')}, {BATCH_ROWS:,} rows a batch")
    for shape in SHAPES:
        measured = measure(report, shape, 3 if quick else 9)
        if shape == TARGET_SHAPE:
            verdict = "reached" if measured.median >= TARGET else "MISSED"
            report.note(f"target {TARGET / 1e6:.0f} M rows/s, {shape}: {verdict} ({measured.median / 1e6:.1f} M)")
    if not quick:
        report.save("arrow_rows")


if __name__ == "__main__":
    main()
