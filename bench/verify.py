"""How many elements a second does `lmerge verify` judge, and how long of that does it read?

A recorded stream of R3: 16-byte payloads of text, 20 % disorder, 20 % of the events adjusted, 1 % stables, 10,000 live
events. Measured: reading the file into a table of elements, judging that table by the rules, and both. One process on
2 cores. Target: at least 1,000,000 elements/s for both.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow

from bench.harness import BenchReport, begin, bench_parser, timed
from lmerge.core.properties import KEY
from lmerge.core.session import format_row
from lmerge.testing.streams.large_inputs import LARGE, LargeInputs
from lmerge.testing.validation.element_table import RecordedStream
from lmerge.testing.validation.recorded_lines import read_streams
from lmerge.testing.validation.report import validated

ELEMENTS = (1_000_000, 3_000_000)
ADJUSTS = 0.2
STABLES = 0.01
PAYLOAD_BYTES = 16
REPEATS = 5
TARGET = 1_000_000.0


def record(path: Path, elements: int) -> int:
    """Write a stream of about ``elements`` elements. Return their number."""
    events = round(elements / (1 + ADJUSTS) / (1 + STABLES))
    # Half as many random bytes, in hexadecimal: text, as most payloads are.
    spec = LargeInputs(
        replace(LARGE, events=events, revised=ADJUSTS, stables=STABLES), payload_bytes=PAYLOAD_BYTES // 2, inputs=1
    )
    count = 0
    with path.open("w") as file:
        for batch in spec.batches()[0]:
            for kind, vs, ve, vold, payload in batch.rows():
                file.write(format_row((kind, vs, ve, vold, payload.hex().encode())) + "\n")
                count += 1
    return count


def read(path: Path) -> list[RecordedStream]:
    """Return the streams of a file, which promise ``key``."""
    with path.open("rb") as source:
        return [replace(stream, promises=frozenset({KEY})) for stream in read_streams(source)]


def judge(streams: list[RecordedStream]) -> None:
    """Judge streams, which must be legal."""
    assert all(verdict.is_legal for verdict in validated(streams))


def measure(report: BenchReport, path: Path, elements: int, repeats: int) -> None:
    """Add the figures of one file."""
    count = record(path, elements)
    seconds: dict[str, list[float]] = {"read": [], "judge": []}
    streams = read(path)
    for _ in range(repeats):
        seconds["read"].append(timed(lambda: read(path)))
        seconds["judge"].append(timed(lambda: judge(streams)))
    seconds["read and judge"] = [sum(both) for both in zip(seconds["read"], seconds["judge"])]
    megabytes = path.stat().st_size / 2**20
    report.note(f"{count:,} elements, {megabytes:,.0f} MiB; load {os.getloadavg()[0]:.1f}")
    for name, taken in seconds.items():
        row = report.add(f"{elements:,} elements, {name}", [count / each for each in taken], "elements/s")
    verdict = "reached" if row.median >= TARGET else "MISSED"
    report.note(f"target {TARGET:,.0f} elements/s: {verdict}")


def main() -> None:
    parser = bench_parser(__doc__, "verify", "100,000 elements, 2 repeats")
    options = parser.parse_args()
    report = begin((__doc__ or "").splitlines()[0])
    report.note(f"DuckDB {duckdb.__version__}, pyarrow {pyarrow.__version__}")
    with tempfile.TemporaryDirectory(prefix="lmerge-verify-") as folder:
        for elements in (100_000,) if options.quick else ELEMENTS:
            measure(report, Path(folder) / "stream.jsonl", elements, 2 if options.quick else REPEATS)
    if not options.quick:
        report.save("verify")


if __name__ == "__main__":
    main()
