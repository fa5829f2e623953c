"""Starts, kills and restarts Spark replicas, their merge and its judge. ``spark_kills`` decides when.

A replica is a driver with its JVM, Python workers and the agent that connects to the server. Either all its processes
are killed, as a machine would fail, or only its driver: then the other processes have to notice. It starts again from
its checkpoint at a low priority, because a replica on a machine of its own would not use the processor of the other
one. The priority is the ordinary one again when the replica has joined.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Final

import psutil

from bench.rig.fleet import serve
from bench.rig.judge import StreamVerdict
from bench.rig.processes import RigProcess, executed
from bench.rig.spark_gates import gate, reached
from bench.rig.spark_replica import LIFE, SparkReplicaSpec
from bench.rig.spark_table import TableReference
from lmerge.client import describe_merge
from lmerge.core.elements import NEG_INF
from lmerge.errors import LmergeError

MERGE: Final = "bench"
JUDGE: Final = "judge"
START_S_MAX: Final = 600.0  # a JVM, a session and a first batch, on a machine with other load
JOINED: Final = "joined"
LOW: Final = 10
_QUERY_S: Final = 0.2  # between two queries of whether a replica has joined


@dataclass
class ReplicaLife:
    """One incarnation of a replica."""

    process: RigProcess
    mark: str
    began_s: float
    batches: int = 0
    batch_ms: list[float] = field(default_factory=list)


class SparkFleet:
    """The processes of a benchmark with Spark replicas. Use it in a ``with``: at its end every process has ended."""

    def __init__(self, folder: Path, replicas: tuple[str, ...], events_per_s: int, every_ms: int) -> None:
        self.replicas, self.every_ms = replicas, every_ms
        self.reference = TableReference(events_per_s)
        self.lives: dict[str, ReplicaLife] = {}
        self.batch_ms: list[float] = []  # of all incarnations
        self._folder = folder
        self._marks: list[str] = []
        self._epoch_s = 0.0

    def __enter__(self) -> SparkFleet:
        self._server, port = serve("server", self._folder)
        self._target = f"127.0.0.1:{port}"
        self._epoch_s = time.monotonic()
        given = (self._target, MERGE, self.reference, self._epoch_s)
        self._judge = executed(JUDGE, self._folder, "bench.rig.spark_judge", given=given)
        try:
            for name in self.replicas:
                self.start(name)
            for name in self.replicas:
                self.await_joined(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        for one in _processes(self._marks):
            _kill(one.pid)
        for process in (*(life.process for life in self.lives.values()), self._judge, self._server):
            process.kill()

    # Incarnations.

    def start(self, name: str, *, low: bool = False) -> None:
        """Start a replica, from its checkpoint if it has one. ``low``: at a low priority until it joins."""
        self._marks.append(f"{os.getpid()}-{id(self)}-{len(self._marks)}")
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        spec = SparkReplicaSpec(
            name,
            self._target,
            MERGE,
            folder,
            self.reference.events_per_s,
            self._epoch_s,
            self.every_ms,
            self._marks[-1],
        )
        process = executed(name, self._folder, "bench.rig.spark_replica", given=spec)
        if low:
            os.setpriority(os.PRIO_PROCESS, process.pid, LOW)
        self.lives[name] = ReplicaLife(process, spec.life, time.monotonic())

    def kill(self, name: str, *, driver_only: bool = False) -> float:
        """Kill a replica with SIGKILL and return the time. ``driver_only``: only the driver's Python and its JVM."""
        life = self.lives.pop(name)
        pids = [life.process.pid, *(one.pid for one in _processes([life.mark]) if not driver_only or _is_java(one))]
        at_s = time.monotonic()
        for pid in pids:
            _kill(pid)
        life.process.kill()
        return at_s

    def close_gate(self, name: str, place: str) -> None:
        """Make the replica stop at this place from now on."""
        gate(self._folder / name, place).touch()

    def open_gate(self, name: str, place: str) -> None:
        """Let the next incarnation pass."""
        for file in (gate(self._folder / name, place), reached(self._folder / name, place)):
            file.unlink(missing_ok=True)

    def await_gate(self, name: str, place: str) -> None:
        """Wait until the replica has stopped there. Raises RuntimeError."""
        file = reached(self._folder / name, place)
        self._await(file.exists, f"{name} to come to {place!r}")

    # State.

    def await_joined(self, name: str) -> float:
        """Wait until the replica has joined and has had two batches. Return the seconds since its start."""
        life = self.lives[name]
        self._await(lambda: life.batches >= 2 and self._is_joined(name), f"{name} to join", pause_s=_QUERY_S)
        for pid in (life.process.pid, *(one.pid for one in _processes([life.mark]))):
            _raise(pid)
        return time.monotonic() - life.began_s

    def read_messages(self, seconds: float) -> None:
        """Read the messages of the replicas for some time. Raises RuntimeError if one has ended by itself."""
        until_s = time.monotonic() + seconds
        while (wait_s := until_s - time.monotonic()) > 0:
            pipes = {life.process.pipe: life for life in self.lives.values() if life.process.pipe is not None}
            for pipe in connection.wait(list(pipes), wait_s):
                life = pipes[pipe]  # type: ignore[index]
                *_, milliseconds = life.process.receive()
                life.batches += 1
                if life.batches > 2:  # in the first two, workers start and missed rows are read
                    self.batch_ms.append(milliseconds)

    def stable_point(self) -> int:
        """Return the stable point of the judge."""
        self._judge.send(("at",))
        return int(self._judge.receive()[1])

    def verdict(self) -> StreamVerdict:
        """Wait until everything up to now is frozen and return the judge's verdict. The judge stops reading then."""
        due = self._due()
        self._await(lambda: self.stable_point() >= due, "the output to come to the present moment")
        self._judge.send(("verdict",))
        verdict = self._judge.receive()[1]
        assert isinstance(verdict, StreamVerdict)
        return verdict

    def _due(self) -> int:
        events = int((time.monotonic() - self._epoch_s) * self.reference.events_per_s)
        return self.reference.event(events)[0]

    def _is_joined(self, name: str) -> bool:
        try:
            inputs = describe_merge(self._target, MERGE).inputs
        except LmergeError:
            return False
        return any(one.replica == name and one.state == JOINED and one.stable_point > NEG_INF for one in inputs)

    def _await(self, is_reached: Callable[[], bool], what: str, pause_s: float = 0.002) -> None:
        until_s = time.monotonic() + START_S_MAX
        while not is_reached():
            if time.monotonic() > until_s:
                raise RuntimeError(f"waited {START_S_MAX:.0f} s for {what}")
            self.read_messages(pause_s)


def _processes(marks: Collection[str]) -> list[psutil.Process]:
    """Return all processes with these marks. The Python of a driver has none: it was started without it."""
    found = []
    for one in psutil.process_iter():
        try:
            if one.environ().get(LIFE) in marks:
                found.append(one)
        except psutil.Error:  # it has ended, or belongs to another user
            continue
    return found


def _is_java(process: psutil.Process) -> bool:
    try:
        return "java" in process.name()
    except psutil.Error:
        return False


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _raise(pid: int) -> None:
    """Set the benchmark's own priority for all threads of a process, where that is allowed."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(task), own)
