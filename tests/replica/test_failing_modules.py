"""Users' code that fails in a replica ends it with exit code 2, and names itself: never as if all were published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_world import Served
from replica_world import flight_rows, replica_process, write_csv, write_query

QUERY = """
    import sys
    from lmerge.replica import CsvFile, Query, after
    from lmerge.temporal import col, method_of, source
    from lmerge.temporal.expressions.functions import scalar_function
    from lmerge.temporal.modules.kinds import Aggregate, IncrementalAggregate, Operator

    class Set(Aggregate[int, int]):
        inputs, result = {"delay": "int"}, "int"

        def compute(self, rows):
            FAIL

    class State(IncrementalAggregate[int, int, int]):
        inputs, result = {"delay": "int"}, "int"

        def begin(self):
            return 0

        def add(self, state, rows):
            FAIL

        def remove(self, state, rows):
            return 0

        def compute(self, state):
            return 0

    class Rows(Operator[int]):
        inputs, results = {"delay": "int"}, {"delay": "int"}

        def compute(self, rows):
            yield (1,)
            FAIL

    @scalar_function(["int"], "int")
    def scalar(delay):
        FAIL

    flights = source("flights", {"origin": "string", "delay": "int"})
    windows = flights.tumbling(50)
    plans = {
        "set": lambda: windows.agg(n=method_of(Set)()),
        "state": lambda: windows.agg(n=method_of(State)()),
        "rows": lambda: windows.apply(method_of(Rows)()).select(n=col.delay),
        "scalar": lambda: flights.select(n=scalar(col.delay)),
    }
    query = Query(
        {name: plan() for name, plan in plans.items()},
        {"flights": CsvFile(path="flights.csv", time="at", progress=after(20))},
    )
"""
ITEMS = """
    import sys
    from lmerge.replica import PythonItems, Query, after
    from lmerge.temporal import source

    class Rows:
        def __iter__(self):
            yield {"at": 1, "origin": "JFK"}
            FAIL

    class LaterRows:
        async def __aiter__(self):
            for row in Rows():
                yield row

    def made():
        FAIL

    def released(row):
        FAIL

    ALL = {
        "reading": dict(items=Rows()),
        "waiting": dict(items=Rows(), is_waiting=True),
        "asynchronous": dict(items=LaterRows()),
        "making": dict(items=made),
        "releasing": dict(items=[{"at": 1, "origin": "JFK"}], releases=released),
    }
    flights = source("flights", {"origin": "string"})
    items = PythonItems(time="at", progress=after(20), **ALL["KIND"])
    query = Query({"rows": flights.select("origin")}, {"flights": items})
"""
FAILURES = {
    "raise ValueError('no such day')": "raised ValueError: no such day",
    "raise SystemExit(0)": "raised SystemExit: 0",
    "sys.exit()": "raised SystemExit: ",
    "raise KeyboardInterrupt": "raised KeyboardInterrupt: ",
}
NAMES = {
    "set": "module 'set' version 1 {} in window [0, 50), given ",
    "state": "module 'state' version 1 {} in window [0, 50), given ",
    "rows": "module 'rows' version 1 {} in window [0, 50), given ",
    "scalar": "scalar(col.delay): function 'scalar' version 1 {}, in row (",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("served"), "--merge", "m")
    try:
        yield server
    finally:
        server.stop()


ENDS = "raise SystemExit(0)"
CASES = [(plan, ENDS) for plan in NAMES] + [("set", failure) for failure in FAILURES if failure != ENDS]


@pytest.mark.parametrize(("plan", "failure"), CASES)
def test_code_that_fails_ends_the_replica_and_is_named(plan: str, failure: str, served: Served, tmp_path: Path) -> None:
    write_csv(tmp_path / "flights.csv", flight_rows(200))
    write_query(tmp_path, QUERY.replace("FAIL", failure))
    process = replica_process(tmp_path, "query.py", "--plan", plan, "-s", served.target, "-m", "m", "-r", plan)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 2, errors
    assert NAMES[plan].format(FAILURES[failure]) in errors
    assert "Traceback" not in errors
    assert "everything was published" not in errors


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("kind", ["reading", "waiting", "asynchronous", "making", "releasing"])
def test_items_that_fail_end_the_replica_and_are_named(kind: str, failure: str, served: Served, tmp_path: Path) -> None:
    write_query(tmp_path, ITEMS.replace("FAIL", failure).replace("KIND", kind))
    process = replica_process(tmp_path, "query.py", "--plan", "rows", "-s", served.target, "-m", kind, "-r", "a")
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 2, errors
    place = "its items cannot be made" if kind == "making" else f"item {int(kind != 'releasing')}"
    assert "source 'flights'" in errors
    assert f"{place}: it {FAILURES[failure]}" in errors
    assert "Traceback" not in errors
    assert "everything was published" not in errors
