"""A merge as a query loses and doubles nothing when its driver, executors and Python workers are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster_world import BACKEND, environment_of, spark_home
from local_query import IN
from merging_world import FIELDS, Output, Row, cut, rows_of
from spark_world import HERE, FileFeed

from lmerge.core.elements import INF
from lmerge.testing.streams.merge_inputs import present, reference

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are killed in groups"),
    pytest.mark.usefixtures("spark_is_here"),
]

_LOOK_S = 0.02


class KilledMerge:
    """The driver of ``merge_app``, which is started again whenever it has been killed."""

    def __init__(self, scratch: Path, batches: int, random: Random) -> None:
        self.scratch, self.random = scratch, random
        self._environment = {**os.environ, **environment_of(spark_home(scratch))}
        self.events = reference(random, 20 * batches)
        for name in ("rows", "files"):
            self._write(name, cut(random, present(random, self.events), batches))
        self._driver: subprocess.Popen[bytes] | None = None
        self.killed: dict[str, int] = {}

    def _write(self, name: str, batches: Any) -> None:
        feed = FileFeed(self.scratch / name, FIELDS)
        for number, rows in enumerate(rows_of(batches)):
            if name == "rows":
                feed.put(*self.random.sample(rows, len(rows)))
                continue
            path = feed.folder / f"{number}.parquet"
            given = [row | {"payload": row["payload"] and row["payload"].encode()} for row in rows]
            pq.write_table(pa.Table.from_pylist(given, schema=IN), path)
            os.utime(path, (number + 1, number + 1))

    def run(self, kills: int) -> None:
        """Run to the end. After every second batch something is killed, a moment later: while the next ones run."""
        while not (self.scratch / "ended").exists():
            if self._driver is None:
                self._start()
            done, left = self._done(), kills - sum(self.killed.values())
            self._wait_until(lambda: left > 0 and self._done() >= done + 2)  # noqa: B023  (called here only)
            if self._driver is not None:
                threading.Event().wait(self.random.uniform(0.0, 0.4))
                self._kill()
        self.stop()

    def _done(self) -> int:
        return len(list((self.scratch / "output").glob("*.json")))

    def _start(self) -> None:
        log = (self.scratch / "driver.log").open("ab")
        command = [sys.executable, str(HERE / "merge_app.py"), str(self.scratch)]
        with log:
            self._driver = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, start_new_session=True, cwd=self.scratch
            )

    def _wait_until(self, is_there: Callable[[], bool]) -> None:
        """Wait for something, or for the driver's end, which must be without an error."""
        assert self._driver is not None
        pause = threading.Event()
        while not is_there():
            code = self._driver.poll()
            if code is not None:
                log = (self.scratch / "driver.log").read_text(errors="replace")
                assert code == 0, log[-4_000:]
                self._driver = None
                return
            pause.wait(_LOOK_S)

    def _kill(self) -> None:
        """Kill the driver with all its processes, or an executor or a Python worker if there is one."""
        what = self.random.choice(("driver", "executor", "worker"))
        victims = self._victims(what)
        if what == "driver":
            self.stop()
        elif victims:
            self.random.choice(victims).kill()
        else:
            return
        self.killed[what] = self.killed.get(what, 0) + 1

    def _victims(self, what: str) -> list[psutil.Process]:
        assert self._driver is not None
        found = []
        for process in psutil.Process(self._driver.pid).children(recursive=True):
            try:
                line = process.cmdline()
            except psutil.NoSuchProcess:
                continue
            is_executor = BACKEND in line
            is_worker = any("pyspark.daemon" in part for part in line)
            if (what, True) in (("executor", is_executor), ("worker", is_worker)):
                found.append(process)
        return found

    def stop(self) -> None:
        """Kill the driver and all its processes."""
        if self._driver is None:
            return
        try:
            tree = psutil.Process(self._driver.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            tree = []
        for process in tree:
            if process.is_running():
                process.kill()
        if self._driver.poll() is None:
            os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()
        self._driver = None

    def rows(self) -> list[list[Row]]:
        """Return the rows of each batch."""
        paths = sorted((self.scratch / "output").glob("*.json"), key=lambda path: int(path.stem))
        return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def assert_right_after(scratch: Path, batches: int, kills: int, seed: int) -> dict[str, int]:
    merge = KilledMerge(scratch, batches, Random(seed))
    try:
        merge.run(kills)
    finally:
        merge.stop()
    output = Output()
    for rows in merge.rows():
        output.batch(row | {"payload": row["payload"] and row["payload"].encode()} for row in rows)
    assert output.ended == []
    assert output.tdb.stable_point == INF
    assert output.tdb.events() == merge.events
    return merge.killed


@pytest.mark.timeout(300)
def test_a_killed_merge_goes_on_exactly(tmp_path: Path) -> None:
    killed = assert_right_after(tmp_path, 10, 3, seed=1)
    assert sum(killed.values()) >= 1


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_a_merge_killed_fifty_times_goes_on_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed = assert_right_after(tmp_path, 150, 60, seed=2)
    with capsys.disabled():
        print(f"\nkilled: {killed}")
    assert sum(killed.values()) >= 50
    assert set(killed) == {"driver", "executor", "worker"}
