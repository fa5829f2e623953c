"""Spark replicas, their merge and its judge: started, killed and started again. Decides nothing; ``spark_kills`` does.

A replica is a driver with its JVM, Python workers and the agent that speaks to the server. It is killed as a whole, as
its machine would be, or its driver only: then what is left has to notice by itself. It starts again from its checkpoint
at a low priority, as one on a machine of its own would not take the other's processor; the priority is an ordinary one
again when it has joined.
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
START_S_MAX: Final = 600.0  # a JVM, a session and a first batch, on a machine that does something else as well
JOINED: Final = "joined"
LOW: Final = 10
_ASK_S: Final = 0.2  # between two questions whether a replica has joined


@dataclass
class ReplicaLife:
    """One life of a replica."""

    process: RigProcess
    mark: str
    began_s: float
    batches: int = 0
    batch_ms: list[float] = field(default_factory=list)


class SparkFleet:
    """Use it in a ``with``: at the end every process has gone."""

    def __init__(self, folder: Path, replicas: tuple[str, ...], events_per_s: int, every_ms: int) -> None:
        self.replicas, self.every_ms = replicas, every_ms
        self.reference = TableReference(events_per_s)
        self.lives: dict[str, ReplicaLife] = {}
        self.batch_ms: list[float] = []  # of all lives
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

    # Lives.

    def start(self, name: str, *, low: bool = False) -> None:
        """A new life of the replica, from its checkpoint if it has one. ``low``: at a low priority until it joins."""
        self._marks.append(f"{os.getpid()}-{id(self)}-{len(self._marks)}")
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        spec = SparkReplicaSpec(
            name, self._target, MERGE, folder, self.reference.events_per_s, self._epoch_s, self.every_ms,
            self._marks[-1],
        )
        process = executed(name, self._folder, "bench.rig.spark_replica", given=spec)
        if low:
            os.setpriority(os.PRIO_PROCESS, process.pid, LOW)
        self.lives[name] = ReplicaLife(process, spec.life, time.monotonic())

    def kill(self, name: str, *, driver_only: bool = False) -> float:
        """SIGKILL; the moment of it. ``driver_only``: its Python and its JVM."""
        life = self.lives.pop(name)
        pids = [life.process.pid, *(one.pid for one in _processes([life.mark]) if not driver_only or _is_java(one))]
        at_s = time.monotonic()
        for pid in pids:
            _kill(pid)
        life.process.kill()
        return at_s

    def close_gate(self, name: str, place: str) -> None:
        """From here on the replica stands still at this place."""
        gate(self._folder / name, place).touch()

    def open_gate(self, name: str, place: str) -> None:
        """The next life goes on."""
        for file in (gate(self._folder / name, place), reached(self._folder / name, place)):
            file.unlink(missing_ok=True)

    def await_gate(self, name: str, place: str) -> None:
        """Until the replica stands there. Raises RuntimeError."""
        file = reached(self._folder / name, place)
        self._await(file.exists, f"{name} to come to {place!r}")

    # What is.

    def await_joined(self, name: str) -> float:
        """Until the present life of the replica counts and has had two batches; seconds since it began."""
        life = self.lives[name]
        self._await(lambda: life.batches >= 2 and self._is_joined(name), f"{name} to join", pause_s=_ASK_S)
        for pid in (life.process.pid, *(one.pid for one in _processes([life.mark]))):
            _raise(pid)
        return time.monotonic() - life.began_s

    def listen(self, seconds: float) -> None:
        """Take in what the replicas tell for so long. Raises RuntimeError if one has gone that nobody killed."""
        until_s = time.monotonic() + seconds
        while (wait_s := until_s - time.monotonic()) > 0:
            pipes = {life.process.told: life for life in self.lives.values() if life.process.told is not None}
            for pipe in connection.wait(list(pipes), wait_s):
                life = pipes[pipe]  # type: ignore[index]
                *_, milliseconds = life.process.hear()
                life.batches += 1
                if life.batches > 2:  # in the first ones workers start, and what was missed is read
                    self.batch_ms.append(milliseconds)

    def stable_point(self) -> int:
        """How far the judge has come."""
        self._judge.say(("at",))
        return int(self._judge.hear()[1])

    def verdict(self) -> StreamVerdict:
        """What the judge has to say of everything up to now, once that is frozen. It reads no more then."""
        due = self._due()
        self._await(lambda: self.stable_point() >= due, "the output to come to the present moment")
        self._judge.say(("verdict",))
        verdict = self._judge.hear()[1]
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

    def _await(self, claim: Callable[[], bool], what: str, pause_s: float = 0.002) -> None:
        until_s = time.monotonic() + START_S_MAX
        while not claim():
            if time.monotonic() > until_s:
                raise RuntimeError(f"waited {START_S_MAX:.0f} s for {what}")
            self.listen(pause_s)


def _processes(marks: Collection[str]) -> list[psutil.Process]:
    """All processes of these lives but their drivers' Python itself, which had no mark when it began."""
    found = []
    for one in psutil.process_iter():
        try:
            if one.environ().get(LIFE) in marks:
                found.append(one)
        except psutil.Error:  # it has gone, or is another user's
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
    """The benchmark's own priority, where that is allowed; each thread has its own."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(task), own)
