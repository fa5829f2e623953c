"""Two plans of one query, each slow where the other is fast, merged by a server with feedback (the paper's VI.E.3)."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from cli_world import Served
from replica_world import Reading, replica_process, write_query

COUNT, TURN = 3_000, 300
QUERY = """
    import hashlib

    from lmerge.replica import PythonItems, Query, in_order
    from lmerge.temporal.expressions.functions import scalar_function
    from lmerge.temporal.expressions.surface import col
    from lmerge.temporal.plan.stream import source

    def work(rounds):
        hashlib.pbkdf2_hmac("sha256", b"x", b"salt", rounds)

    def selected(name, is_slow):
        @scalar_function(["int"], "bool", name=name)
        def select(x):
            work(1_500 if is_slow(x) else 100)
            return x % 5 != 0

        return select

    def rows():
        for at in range(3_000):
            yield {"at": at, "x": at % 300 + 1_000 * (at // 300 % 2)}

    numbers = source("numbers", {"x": "int"}, promises=["ordered", "insert-only"])
    slow_below = selected("slow_below", lambda x: x < 1_000)
    slow_above = selected("slow_above", lambda x: x >= 1_000)
    query = Query(
        {"slow-below": numbers.where(slow_below(col.x)), "slow-above": numbers.where(slow_above(col.x))},
        {"numbers": PythonItems(items=rows, time="at", progress=in_order(every=10))},
    )
"""


@pytest.fixture
def served(tmp_path: Path) -> object:
    server = Served(tmp_path, "--merge", "m", "--feedback", "10")
    yield server
    server.stop()


def test_what_one_plan_has_computed_the_other_leaves_out(served: Served, tmp_path: Path) -> None:
    write_query(tmp_path, QUERY)
    with Reading(served.target, "m") as reading:
        plans = ("slow-below", "slow-above")
        options = ("-s", served.target, "-m", "m")
        processes = [replica_process(tmp_path, "query.py", "--plan", name, "-r", name, *options) for name in plans]
        errors = [process.communicate(timeout=120)[1] for process in processes]
        assert [process.returncode for process in processes] == [0, 0], errors
        x_of = {at: at % TURN + 1_000 * (at // TURN % 2) for at in range(COUNT)}
        assert reading.table() == Counter((x, at, at + 1) for at, x in x_of.items() if x % 5 != 0)
    left_out = [int(found.replace(",", "")) for text in errors for found in re.findall(r"([\d,]+) not evaluated", text)]
    assert len(left_out) == 2, errors
    assert sum(left_out) > 0  # how much, and by which, depends on their speed: bench.temporal_feedback measures it
