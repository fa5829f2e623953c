"""F2: two plans of one query, each slow where the other is fast, merged by a server with feedback (the paper's VI.E.3).

176 s and 163 s alone, 163 s merged, 34 s with feedback.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
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


def test_f2_what_one_plan_has_computed_another_leaves_out(served: Served, tmp_path: Path) -> None:
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
    # How much, and by which of them, depends on their speed: bench.temporal_feedback measures it.
    assert sum(left_out) > 0, errors


LONG_COUNT, LONG_TURN = 6_000, 1_000
# A call waits, so that the ratio does not depend on what else the machine does.
WAITING = (
    QUERY.replace("import hashlib", "import time")
    .replace('hashlib.pbkdf2_hmac("sha256", b"x", b"salt", rounds)', "time.sleep(rounds * 1e-6)")
    .replace("work(1_500 if is_slow(x) else 100)", "work(3_000 if is_slow(x) else 50)")
    .replace("range(3_000)", f"range({LONG_COUNT})")
    .replace("at % 300 + 1_000 * (at // 300 % 2)", f"at % {LONG_TURN} + {LONG_TURN} * (at // {LONG_TURN} % 2)")
)


def timed(folder: Path, plans: Sequence[str], *options: str) -> tuple[float, Counter[tuple[object, ...]]]:
    """Run plans as replicas of a merge; return the seconds from its first stable point to its end, and its table."""
    folder.mkdir()
    write_query(folder, WAITING)
    server = Served(folder, "--merge", "m", *options)
    try:
        with Reading(server.target, "m") as reading:
            processes = [
                replica_process(folder, "query.py", "--plan", name, "-r", name, "-s", server.target, "-m", "m")
                for name in plans
            ]
            reading.until(0)
            began_s = time.monotonic()
            table = reading.table()
            took_s = time.monotonic() - began_s
            errors = [process.communicate(timeout=60)[1] for process in processes]
            assert [process.returncode for process in processes] == [0] * len(plans), errors
            return took_s, table
    finally:
        server.stop()


@pytest.mark.long
def test_f2_with_feedback_two_plans_take_a_quarter_of_the_time(tmp_path: Path) -> None:
    plans = ("slow-below", "slow-above")
    alone = [timed(tmp_path / name, (name,)) for name in plans]
    merged = timed(tmp_path / "merged", plans)
    forwarded = timed(tmp_path / "forwarded", plans, "--feedback", "10")
    assert all(table == forwarded[1] for _, table in (*alone, merged))
    assert sum(forwarded[1].values()) == LONG_COUNT * 4 // 5
    fastest_s = min(took_s for took_s, _ in (*alone, merged))
    assert fastest_s >= 4 * forwarded[0], (alone, merged[0], forwarded[0])
