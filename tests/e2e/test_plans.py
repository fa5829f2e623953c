"""Plans of one query as replicas of merges of real servers: each replica and each server is killed in turn."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from cli_world import Served
from replica_world import Reading, counts_by_window, flight_rows, replica_process, write_csv, write_query

from lmerge.client import describe_merge
from lmerge.core.elements import INF
from lmerge.testing.canonical import joins, spans, windows

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are killed by SIGKILL")

FORMS = ("final", "settled", "watermark", "eager")
MERGE = "late"
ROWS = 9_000  # of times as many units; a run is at 1,000 units a second
Plans = Mapping[str, tuple[str, Sequence[str]]]
"""By merge: the module of its query, and the plans that are replicas of it."""


class KilledPlans:
    """Servers, and replicas that publish to all of them and keep their places in checkpoints."""

    def __init__(self, folder: Path, merges: Plans, servers: int) -> None:
        self._folder, self._merges = folder, merges
        self.servers = [self._serve(number) for number in range(servers)]
        self.targets = ",".join(server.target for server in self.servers)
        self._started_s = time.time()
        self.replicas = {
            (merge, plan): self._run(merge, plan) for merge, (_, plans) in merges.items() for plan in plans
        }

    def _serve(self, number: int, *options: str) -> Served:
        folder = self._folder / f"server-{number}-{time.monotonic_ns()}"
        folder.mkdir()
        merges = (text for merge in self._merges for text in ("--merge", merge))
        return Served(folder, *merges, *options)

    def _run(self, merge: str, plan: str) -> subprocess.Popen[str]:
        places = ("--server", self.targets, "--merge", merge, "--replica", plan, "--plan", plan)
        pace = ("--speed", "0.001", "--start", repr(self._started_s))
        kept = ("--checkpoint", str(self._folder / f"checkpoint-{merge}-{plan}"), "--checkpoint-every", "0.3")
        return replica_process(self._folder, self._merges[merge][0], *places, *pace, *kept)

    def kill_replica(self, merge: str, plan: str) -> None:
        """Kill a replica and start it again: it goes on from its checkpoint, and catches up."""
        self._end(self.replicas[merge, plan])
        self.replicas[merge, plan] = self._run(merge, plan)

    def kill_server(self, number: int) -> None:
        """Kill a server and start it again at its address, with nothing in its memory."""
        server = self.servers[number]
        self._end(server.process)
        self.servers[number] = self._serve(number, "--port", str(server.ports["port"]))

    def wait_until_redundant(self, merge: str) -> bool:
        """Wait until all servers count two replicas or more, so that no kill takes the last one.

        False if a server has the whole stream before that, as on a machine that starts processes slowly.
        """
        while True:
            found = [describe_merge(server.target, merge) for server in self.servers]
            if any(one.summary.stable_point == INF for one in found):
                return False
            if all(sum(given.state == "joined" for given in one.inputs) >= 2 for one in found):
                return True
            assert all(server.process.poll() is None for server in self.servers)

    def assert_all_ended(self) -> None:
        """Wait until every replica has published everything."""
        for replica in self.replicas.values():
            errors = replica.communicate(timeout=60)[1]
            assert replica.returncode == 0, errors

    def end(self) -> None:
        for process in [*self.replicas.values(), *(server.process for server in self.servers)]:
            self._end(process)

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[Plans, int], KilledPlans]]:
    """Return a function that starts servers and replicas, which end with the test."""
    with ExitStack() as ending:

        def start(merges: Plans, servers: int) -> KilledPlans:
            made = KilledPlans(tmp_path, merges, servers)
            ending.callback(made.end)
            return made

        yield start


def test_every_replica_and_every_server_is_killed_and_the_table_is_that_of_the_query(
    started: Callable[[Plans, int], KilledPlans], tmp_path: Path
) -> None:
    write_csv(tmp_path / "flights.csv", flight_rows(ROWS, seed=3))
    write_query(tmp_path)
    world = started({MERGE: ("query.py", FORMS)}, 2)
    with Reading(world.targets, MERGE) as reading:
        kills: list[Callable[[], None]] = [partial(world.kill_replica, MERGE, form) for form in FORMS]
        kills += [partial(world.kill_server, number) for number in range(2)]
        for turn, kill in enumerate(kills, 1):
            reading.until(ROWS * turn // (len(kills) + 2))
            if not world.wait_until_redundant(MERGE):
                break
            kill()
        assert reading.table() == counts_by_window(flight_rows(ROWS, seed=3))
        world.assert_all_ended()


# Several queries, whose plans are rewritten.

COMMON = """
    from lmerge.replica import CsvFile, Query, after
    from lmerge.temporal.expressions.surface import col
    from lmerge.temporal.plan.stream import aggregate, count, source

    flights = source("flights", {"origin": "string", "delay": "int?"})
    sources = {"flights": CsvFile(path="flights.csv", time="at", progress=after(20))}
"""
DECLARED = {
    "together.py": """
    late, early = flights.where(col.delay > 36).set_duration(40), flights.where(col.delay < 2).set_duration(25)
    plan = late.join(early, "origin").where(col.delay_right > 0).select("origin", "delay")
    query = Query({"pushed": plan.rewritten(), "turned": plan.rewritten("join-sides")}, sources)
""",
    "present.py": """
    plan = flights.set_duration(30).group_by("origin").apply(
        lambda group: group.snapshot().agg(n=count(), worst=aggregate("max", col.delay))
    )
    query = Query({"windows": plan.rewritten(), "eager": plan.rewritten("form-eager")}, sources)
""",
    "worst.py": """
    plan = flights.where(col.delay > 3).group_by("origin").tumbling(50).top(2, by=col.delay.desc())
    query = Query({"as-it-is": plan, "eager": plan.rewritten("form-eager")}, sources)
""",
}
LATE = spans.with_duration("(SELECT * FROM flights WHERE delay > 36)", 40)
EARLY = spans.with_duration("(SELECT * FROM flights WHERE delay < 2)", 25)
SHOWN = [("origin", "l.origin"), ("delay", "l.delay")]
TOGETHER = joins.inner(f"({LATE})", f"({EARLY})", SHOWN, "l.origin = r.origin AND r.delay > 0")
PRESENT = windows.snapshot(
    f"({spans.with_duration('flights', 30)})", ["origin"], [("n", "count(*)"), ("worst", "max(delay)")]
)
MEMBERS = windows.in_hopping("(SELECT * FROM flights WHERE delay > 3)", 50, 50, 0, 2**62)
WORST = windows.aligned(
    "SELECT origin, delay, rank, window_start, window_end FROM "
    f"({windows.ranked(MEMBERS, ['origin'], 'delay DESC NULLS LAST', 2)})"
)
QUERIES = {
    "together": ("together.py", ("pushed", "turned"), TOGETHER),
    "present": ("present.py", ("windows", "eager"), PRESENT),
    "worst": ("worst.py", ("as-it-is", "eager"), WORST),
}


def answer(query: str, rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Return the events of a query over the flights, by DuckDB."""
    columns = {name: [row[name] for row in rows] for name in ("origin", "delay")}
    starts = [row["at"] for row in rows]
    with duckdb.connect() as connection:
        connection.register("flights", pa.table(columns | {"vs": starts, "ve": [start + 1 for start in starts]}))
        return Counter(connection.execute(query).fetchall())


def test_replicas_of_several_queries_with_rewritten_plans_are_killed_and_each_table_is_that_of_sql(
    started: Callable[[Plans, int], KilledPlans], tmp_path: Path
) -> None:
    rows = flight_rows(count := 3_000, seed=4)
    write_csv(tmp_path / "flights.csv", rows)
    for name, text in DECLARED.items():
        write_query(tmp_path, COMMON + text, name)
    world = started({merge: (module, plans) for merge, (module, plans, _) in QUERIES.items()}, 1)
    with ExitStack() as open_readings:
        readings = {merge: open_readings.enter_context(Reading(world.targets, merge)) for merge in QUERIES}
        for turn, (merge, (_, plans, _)) in enumerate(QUERIES.items(), 1):
            readings[merge].until(count * turn // 5)
            if world.wait_until_redundant(merge):
                world.kill_replica(merge, plans[turn % len(plans)])
        for merge, (_, _, query) in QUERIES.items():
            assert readings[merge].table() == answer(query, rows), merge
        world.assert_all_ended()
