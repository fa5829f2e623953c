"""One query by columns on the native core and by rows without it: the same output, and each goes on for the other."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_world import Served
from replica_world import QUERY, Reading, counts_by_window, flight_rows, replica_process, write_csv, write_query

from lmerge.core.engines.selection import NATIVE, PYTHON

ROWS = flight_rows(1200, seed=5)
SOURCES = {
    "csv": 'CsvFile(path="flights.csv", time="at", progress=after(20))',
    "parquet": 'ParquetFile(path="flights.parquet", time="at", progress=after(20))',
}
ADDED = """
    import os
    import signal
    import sys

    from lmerge.core.engines.selection import best
    from lmerge.replica import ParquetFile
    from lmerge.temporal.expressions.functions import scalar_function

    print("operators:", best(), file=sys.stderr)
    stop_behind = int(os.environ.get("STOP_BEHIND", "0"))

    @scalar_function(["string"], "bool", name="counted")
    def counted(origin):
        global stop_behind
        stop_behind -= 1
        if not stop_behind:
            os.kill(os.getpid(), signal.SIGTERM)
        return True
"""
# What Python runs first: from then on the native core cannot be imported, as where it was not built.
WITHOUT_NATIVE = 'import sys\n\nsys.modules["lmerge._native"] = None\n'


@pytest.fixture
def served(tmp_path: Path, demand: Callable[[str], None]) -> Iterator[Served]:
    demand(NATIVE)
    folder = tmp_path / "served"
    folder.mkdir()
    server = Served(folder, "--merge", "native", "--merge", "python")
    try:
        yield server
    finally:
        server.stop()


def folder_of(tmp_path: Path, kind: str, *, is_counted: bool) -> Path:
    """Make a folder with the rows, the query, and what hides the native core."""
    write_csv(tmp_path / "flights.csv", ROWS)
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "flights.parquet", row_group_size=500)
    query = QUERY.replace(SOURCES["csv"], SOURCES[kind])
    if is_counted:
        query = query.replace("flights.where(", "flights.where(counted(col.origin)).where(")
    write_query(tmp_path, ADDED + query)
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(WITHOUT_NATIVE)
    return tmp_path


def ended(
    folder: Path, implementation: str, served: Served, merge: str, *options: str, stop_behind: int = 0
) -> tuple[int, int]:
    """Run the query; return the code with which it ends, and how many items of its sources it has taken.

    ``stop_behind``: it is stopped when it has had so many rows; 0: never.
    """
    hidden = {"PYTHONPATH": str(folder / "hidden")} if implementation == PYTHON else {}
    arguments = ("query.py", "-s", served.target, "-m", merge, "-r", "a", *options)
    environment = os.environ | hidden | {"STOP_BEHIND": str(stop_behind)}
    process = replica_process(folder, *arguments, env=environment)
    errors = process.communicate(timeout=60)[1]
    assert f"operators: {implementation}\n" in errors, errors
    return process.returncode, int(re.findall(r"([\d,]+) items of its sources", errors)[-1].replace(",", ""))


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("form", ["final", "watermark", "eager"])
def test_both_publish_the_same_table(form: str, kind: str, served: Served, tmp_path: Path) -> None:
    folder, tables = folder_of(tmp_path, kind, is_counted=False), []
    for implementation in (NATIVE, PYTHON):
        with Reading(served.target, implementation) as reading:
            assert ended(folder, implementation, served, implementation, "--plan", form) == (0, len(ROWS) + 1)
            tables.append(reading.table())
    assert tables == [counts_by_window(ROWS)] * 2


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("first", [NATIVE, PYTHON])
def test_each_goes_on_from_the_checkpoint_of_the_other(first: str, kind: str, served: Served, tmp_path: Path) -> None:
    folder, taken = folder_of(tmp_path, kind, is_counted=True), 0
    options = ("--plan", "eager", "--checkpoint", "kept")
    second = PYTHON if first == NATIVE else NATIVE
    with Reading(served.target, first) as reading:
        for implementation in (first, second, first):
            code, items = ended(folder, implementation, served, first, *options, stop_behind=70)
            assert code == 130
            assert items >= 70
            taken += items
        code, items = ended(folder, second, served, first, *options)
        assert (code, taken + items) == (0, len(ROWS) + 1)
        assert reading.table() == counts_by_window(ROWS)
