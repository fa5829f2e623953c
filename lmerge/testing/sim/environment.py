"""The environment of the code under test during a run: wall clock, randomness, channels, log.

Everything is restored when the run is over. One run at a time in a process.
"""

from __future__ import annotations

import logging
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, Final

from lmerge import clock
from lmerge.client.connection import channels
from lmerge.loopback import host_of
from lmerge.service.output import session_recorder
from lmerge.testing.sim import disk
from lmerge.testing.sim.calls import Channel
from lmerge.testing.sim.loop import PROCESS
from lmerge.testing.sim.network import Network
from lmerge.testing.sim.processes import SimulatedProcess
from lmerge.testing.sim.trace import Trace

#: The wall clock at the beginning of every run, in microseconds since the epoch.
EPOCH_US: Final = 1_700_000_000_000_000


class Blocks(Exception):
    """The code under test would block the thread."""


@contextmanager
def simulated(network: Network, random: Random, trace: Trace) -> Iterator[None]:
    """Replace the machine by the simulation for the code under test."""
    loop = network.loop

    def wall_us() -> int:
        process = PROCESS.get()
        skew = process.skew_us if isinstance(process, SimulatedProcess) else 0
        return EPOCH_US + int(loop.time() * 1e6) + skew

    def channel(target: str, _certificates: Any = None) -> Channel:
        process = PROCESS.get()
        assert isinstance(process, SimulatedProcess), "only a process can connect"
        return Channel(network, process, host_of(target))

    with ExitStack() as stack:
        for module in _users_of(clock.wall_us):
            stack.enter_context(replaced(module, "wall_us", wall_us))
        stack.enter_context(replaced(channels, "open_channel", channel))
        stack.enter_context(replaced(sqlite3, "connect", disk.connect))
        stack.enter_context(replaced(session_recorder, "FileIO", disk.File))
        stack.enter_context(replaced(time, "sleep", _refusing(time.sleep)))
        stack.enter_context(_log_to(trace))
        clock.random.seed(random.getrandbits(64))
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set ``owner.name`` to ``value`` inside the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _users_of(function: Any) -> list[Any]:
    """Return the modules of lmerge that have bound a name to the wall clock."""
    return [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "lmerge" and getattr(module, "wall_us", None) is function
    ]


def _refusing(sleep: Any) -> Any:
    """Return a ``sleep`` that raises Blocks in this thread and works in others."""
    mine = threading.get_ident()

    def refuse(seconds: float) -> None:
        if threading.get_ident() == mine:
            raise Blocks("time.sleep blocks; wait with asyncio")
        sleep(seconds)

    return refuse


class _TraceHandler(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.INFO)
        self.trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        self.trace.note(process if process is not None else "-", text)


@contextmanager
def _log_to(trace: Trace) -> Iterator[None]:
    """Send lmerge's log to the trace and nowhere else."""
    logger = logging.getLogger("lmerge")
    before = logger.propagate, logger.level, logger.handlers[:], logger.disabled
    logger.propagate, logger.handlers[:] = False, [_TraceHandler(trace)]
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.propagate, level, logger.handlers[:], logger.disabled = before
        logger.setLevel(level)
