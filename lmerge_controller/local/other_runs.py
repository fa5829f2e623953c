"""What a command does with the run of another process: hand it a description, follow it, end it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from lmerge.errors import Unavailable, UsageError
from lmerge_controller.local.part_commands import SERVER_GRACE_S
from lmerge_controller.local.process_table import ProcessId, end_all, process_id
from lmerge_controller.local.progress import is_settled, progress
from lmerge_controller.local.state_folder import QueryIsUp, StateFolder
from lmerge_controller.local.status_file import LocalStatus, status_of

LOOK_S: Final = 0.05
# A request is read, checked and answered in milliseconds; a loaded machine may take many times as long.
ANSWER_S_MAX: Final = 30.0
# Replicas leave, then servers drain; after that the supervisor itself is killed.
DOWN_S_MAX: Final = SERVER_GRACE_S + 25.0


def status_in(state: StateFolder) -> LocalStatus:
    """Return the present status of a run; an empty one if there is none."""
    return status_of(state.read("status")) or LocalStatus(state.name)


def hand_over(file: Path, state: StateFolder, show: Callable[[str], None], wait_s: float) -> None:
    """Ask the run to take the description in ``file``, and show its progress until it has settled.

    Raises UsageError if it refuses, Unavailable if it does not answer, or has not settled after ``wait_s``.
    """
    holder = state.holder()
    if holder is None:
        raise Unavailable(f"{state.name} has ended in the meantime; try again")
    request, before = uuid4().hex, status_in(state)
    state.write("request", {"file": str(file.resolve()), "id": request})
    holder.signal(signal.SIGUSR1)
    for status in _statuses(state, holder, ANSWER_S_MAX):
        if status.request == request:
            if status.refusal:
                raise UsageError(f"process {holder.pid}, which runs {state.name}, refuses {file}: {status.refusal}")
            show(f"process {holder.pid}, which runs {state.name}, has taken {file}")
            follow(state, holder, before, show, wait_s)
            return
    raise Unavailable(f"process {holder.pid}, which runs {state.name}, did not answer in {ANSWER_S_MAX:.0f} s")


def start_in_background(file: Path, state: StateFolder, show: Callable[[str], None], wait_s: float) -> None:
    """Start a run that outlives this command, and show its progress until it has settled.

    Raises Unavailable with the end of its log if it ends, or has not settled after ``wait_s``; it then goes on.
    """
    state.make()
    state.write("status", LocalStatus(state.name).as_json())  # that of an earlier run would be taken for settled
    log = state.log("up")
    descriptor = log.opened()
    argv = (sys.executable, "-m", "lmerge", "up", str(file), "--state", str(state.path.parent), "--detached")
    with open(descriptor, "ab") as output:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    holder = process_id(child.pid)
    while holder is not None and state.holder() != holder:
        if child.poll() is not None:
            break
        time.sleep(LOOK_S)
    if holder is None or child.poll() is not None:
        text = "\n".join(log.last_lines(5)) or "its log is empty"
        error = UsageError if child.poll() == 2 else Unavailable
        raise error(f"{state.name} did not start: {text.removeprefix('lmerge: ')}")
    follow(state, holder, LocalStatus(state.name), show, wait_s)


def follow(
    state: StateFolder, holder: ProcessId, before: LocalStatus, show: Callable[[str], None], wait_s: float
) -> None:
    """Show what changes until the run has settled. Raises Unavailable if it ends, or takes longer than ``wait_s``."""
    for status in _statuses(state, holder, wait_s):
        for line in progress(before, status):
            show(line)
        before = status
        if is_settled(status):
            return
    if not holder.is_alive:
        text = "\n".join(state.log("up").last_lines(5))
        raise Unavailable(f"process {holder.pid}, which ran {state.name}, has ended. Its log ends with:\n{text}")
    why = before.condition("Available" if not before.is_true("Available") else "Progressing")["message"]
    raise Unavailable(f"{state.name} has not settled after {wait_s:.0f} s, and goes on: {why}")


def _statuses(state: StateFolder, holder: ProcessId, wait_s: float) -> Iterator[LocalStatus]:
    """Yield the status again and again, for ``wait_s`` seconds or until the holder ends."""
    until_s = time.monotonic() + wait_s
    while holder.is_alive and time.monotonic() < until_s:
        yield status_in(state)
        time.sleep(LOOK_S)


def end_run(state: StateFolder) -> tuple[bool, list[int]]:
    """End a run and everything that belongs to it.

    Returns whether a supervisor ran, and the processes that a killed supervisor had left behind. Raises Unavailable if
    another command holds the run.
    """
    holder = state.holder()
    if holder is not None:
        holder.signal(signal.SIGTERM)
    with _lock_of(state, holder):
        left = end_all(state.run_mark(), state.recorded())
        state.forget_run()
    return holder is not None, left


@contextmanager
def _lock_of(state: StateFolder, holder: ProcessId | None) -> Iterator[None]:
    """Hold the lock in the block: nothing starts meanwhile. A holder that does not give it up is killed."""
    until_s = time.monotonic() + DOWN_S_MAX
    while True:
        try:
            with state.locked():
                yield
                return
        except QueryIsUp:
            if time.monotonic() > until_s + ANSWER_S_MAX:
                raise
            if holder is not None and time.monotonic() > until_s:
                holder.signal(signal.SIGKILL)
            time.sleep(LOOK_S)
