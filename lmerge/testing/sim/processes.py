"""Processes of a simulation: they can be paused and killed, and each has a clock and a disk of its own.

A process is all tasks and callbacks that began in its context. Killing it is SIGKILL: no step of it runs any more,
no ``finally`` and no destructor, and nothing is flushed. Pausing it is SIGSTOP: its steps wait, in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from enum import Enum
from random import Random
from typing import Any

from lmerge.testing.sim.disk import Disk
from lmerge.testing.sim.loop import PROCESS, VirtualLoop


class ProcessState(Enum):
    """The states of a process."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class SimulatedProcess:
    """One life of one process. ``host`` is its machine: partitions are between hosts."""

    def __init__(self, loop: VirtualLoop, host: str, name: str, random: Random) -> None:
        self.loop = loop
        self.host = host
        self.name = name
        self.state = ProcessState.RUNNING
        self.skew_us = 0  # the error of its wall clock
        self.disk_s = (0.0001, 0.002)  # the least and most time of a function in a thread
        self.disk: Disk | None = None
        self.when_dead: dict[Callable[[], None], None] = {}  # called when it is killed
        self._random = random
        self._held: list[asyncio.Handle] = []

    def __repr__(self) -> str:
        return self.name

    @property
    def is_alive(self) -> bool:
        """Whether the process is running or paused."""
        return self.state is not ProcessState.DEAD

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str = "") -> asyncio.Task[Any]:
        """Run a coroutine as a task of this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        task: asyncio.Task[Any] = context.run(self.loop.create_task, coroutine)
        task.set_name(f"{self.name}: {name or task.get_name()}")
        return task

    def kill(self) -> None:
        """Stop the process for ever, as SIGKILL does."""
        if self.state is ProcessState.DEAD:
            return
        self.state = ProcessState.DEAD
        for callback in list(self.when_dead):
            callback()

    def pause(self) -> None:
        """Hold the process's steps, as SIGSTOP does."""
        if self.state is ProcessState.RUNNING:
            self.state = ProcessState.PAUSED

    def go_on(self) -> None:
        """Run the held steps, as SIGCONT does."""
        if self.state is ProcessState.PAUSED:
            self.state = ProcessState.RUNNING
            held, self._held = self._held, []
            self.loop.release(held)

    def unwind(self) -> None:
        """Release the held steps at the end of the run, so that they can be cancelled."""
        held, self._held = self._held, []
        self.loop.release(held)

    # The loop's side.

    def holds(self, handle: asyncio.Handle) -> bool:
        if self.state is ProcessState.RUNNING:
            return False
        self._held.append(handle)
        return True

    def executor_delay_s(self) -> float:
        return self._random.uniform(*self.disk_s)

    def function_begins(self) -> None:
        if self.disk is not None:
            self.disk.function_begins()

    def function_ends(self) -> None:
        if self.disk is not None and self.is_alive:
            self.disk.function_ends()
