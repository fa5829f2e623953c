"""Plans of one query in every form, merged by two servers: each replica and each server is killed in turn."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from cli_world import Served
from replica_world import Reading, counts_by_window, flight_rows, replica_process, write_csv, write_query

from lmerge.client import describe_merge

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are killed by SIGKILL")

FORMS = ("final", "settled", "watermark", "eager")
MERGE = "late"
ROWS = 9_000  # of times as many units; a run is at 1,000 units a second


class KilledPlans:
    """Two servers, and a replica of each form that publishes to both and keeps its place in a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.servers = [self._serve(number) for number in range(2)]
        self.targets = ",".join(server.target for server in self.servers)
        self._started_s = time.time()
        self.replicas = {form: self._run(form) for form in FORMS}

    def _serve(self, number: int, *options: str) -> Served:
        folder = self._folder / f"server-{number}-{time.monotonic_ns()}"
        folder.mkdir()
        return Served(folder, "--merge", MERGE, *options)

    def _run(self, form: str) -> subprocess.Popen[str]:
        places = ("--server", self.targets, "--merge", MERGE, "--replica", form, "--plan", form)
        pace = ("--speed", "0.001", "--start", repr(self._started_s))
        kept = ("--checkpoint", str(self._folder / f"checkpoint-{form}"), "--checkpoint-every", "0.3")
        return replica_process(self._folder, "query.py", *places, *pace, *kept)

    def kill_replica(self, form: str) -> None:
        """Kill a replica and start it again: it goes on from its checkpoint, and catches up."""
        self._end(self.replicas[form])
        self.replicas[form] = self._run(form)

    def kill_server(self, number: int) -> None:
        """Kill a server and start it again at its address, with nothing in its memory."""
        server = self.servers[number]
        self._end(server.process)
        self.servers[number] = self._serve(number, "--port", str(server.ports["port"]))

    def wait_until_redundant(self) -> None:
        """Wait until both servers count two replicas or more, so that no kill takes the last one."""
        for server in self.servers:
            while sum(found.state == "joined" for found in describe_merge(server.target, MERGE).inputs) < 2:
                assert server.process.poll() is None

    def end(self) -> None:
        for process in [*self.replicas.values(), *(server.process for server in self.servers)]:
            self._end(process)

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[KilledPlans]:
    write_csv(tmp_path / "flights.csv", flight_rows(ROWS, seed=3))
    write_query(tmp_path)
    made = KilledPlans(tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_every_replica_and_every_server_is_killed_and_the_table_is_that_of_the_query(world: KilledPlans) -> None:
    with Reading(world.targets, MERGE) as reading:
        kills: list[Callable[[], None]] = [partial(world.kill_replica, form) for form in FORMS]
        kills += [partial(world.kill_server, number) for number in range(2)]
        for turn, kill in enumerate(kills, 1):
            reading.until(ROWS * turn // (len(kills) + 2))
            world.wait_until_redundant()
            kill()
        assert reading.table() == counts_by_window(flight_rows(ROWS, seed=3))
        for replica in world.replicas.values():
            errors = replica.communicate(timeout=60)[1]
            assert replica.returncode == 0, errors
