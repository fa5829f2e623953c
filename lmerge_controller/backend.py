"""The contract of a backend: what runs the processes of one merged query. Called by ``loop``.

There are two: local processes (``local``) and Kubernetes (``kubernetes``). One object of the class is for one query.
The loop calls it like this, again and again:

    running()  ->  ask the servers  ->  plan  ->  persist()  ->  act() each  ->  report()  ->  wait()

Rules that a backend keeps:

- ``running`` reads and changes nothing, so `lmerge plan` calls it too.
- ``act`` begins a change and does not wait for its end: the next ``running`` shows it (STARTING, STOPPING). The action
  names one life of a process; if that life is over, ``act`` does nothing and returns. It raises LmergeError for what a
  person should read; the loop reports it, goes on with the other actions, and repeats it after a time.
- ``persist`` is done when it returns: the next ``running``, also of another process, has this record.
- The data path depends on none of it. A backend that dies leaves the processes running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lmerge_controller.plan.actions import Action, ProcessAction
from lmerge_controller.plan.conditions import QueryPlan
from lmerge_controller.plan.observed import RunningParts
from lmerge_controller.plan.record import Record


@dataclass(frozen=True)
class ActionOutcome:
    """What became of an action. ``error``: for people; empty: it was done."""

    action: Action
    error: str = ""


class Backend(Protocol):
    """What runs the processes of one merged query. See the module's documentation."""

    async def running(self) -> RunningParts:
        """Return what runs now, and the record. Raises LmergeError if it cannot be found out."""

    async def persist(self, record: Record) -> None:
        """Store the record. Raises LmergeError; nothing is acted upon then."""

    async def act(self, action: ProcessAction) -> None:
        """Begin one change. Raises LmergeError."""

    async def report(self, plan: QueryPlan, outcomes: Sequence[ActionOutcome]) -> None:
        """Show decisions and conditions: log, status, Events. Called also when nothing has changed."""

    async def wait(self, timeout_s: float) -> None:
        """Return when something may have changed, such as a process that has ended, or after ``timeout_s`` seconds."""
