"""Cutover (II.5): one replica takes the place of another, invisibly for the subscribers of the merge.

    waiting ---> joined ---> certifying ---> promoting ---> leaving ---> done
       |            |            |              |
       |            |            |              `---> promoted, if ``from`` is kept
       `------------`------------`--------------`---> rolled-back: nothing has changed

1. `to` attaches, as an observer or active.
2. `to` is *certified* when it has delivered the same as `from` in a number of intervals in a row.
3. If `to` is an observer, the server asks it to attach again as active.
4. When `to` counts, `from` is detached.

Three things roll the cutover back: a difference between the two in an interval that was not compared before the cutover
began, the time-out, and the loss of either. `from` has never stopped, and `to` gets back the role that it had.

`from` ends with a final error, and its name is refused until it is released. Otherwise the supervisor that restarts it
would attach it again. A publisher that one server has ended leaves all others. So a cutover at several servers keeps
`from` at all but the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from lmerge.core.elements import show_time
from lmerge.core.inputs import InputRole
from lmerge.core.merge import InputStatus
from lmerge.errors import UnknownInput, UsageError
from lmerge.service.choices import DivergencePolicy
from lmerge.service.merge.divergence_policy import describe_divergence
from lmerge.service.merge.hub import Hub
from lmerge.service.merge.lifecycle import LifeState
from lmerge.service.merge.occurrences import OccurrenceKind
from lmerge.text_enum import TextEnum
from lmerge.time_limit import time_limit


class CutoverStage(TextEnum):
    """The stages of a cutover, in their order. The texts are those of the wire."""

    WAITING = "waiting"
    JOINED = "joined"
    CERTIFYING = "certifying"
    PROMOTING = "promoting"
    PROMOTED = "promoted"
    LEAVING = "leaving"
    DONE = "done"
    ROLLED_BACK = "rolled-back"


class CutoverStep(NamedTuple):
    """A report of one step of a cutover: its stage, and a sentence about it."""

    stage: CutoverStage
    text: str
    equal_intervals: int = 0


ReportStep = Callable[[CutoverStep], Awaitable[None]]


class _RolledBack(UsageError):
    """Why the cutover was rolled back. A UsageError, so that the hub returns it to the caller, and does not fail."""


class Cutover:
    """One cutover, from ``leaves`` to ``to``. ``intervals``: how many equal ones in a row certify ``to``.

    ``keeps``: ``leaves`` is not detached.
    """

    def __init__(
        self, hub: Hub, leaves: str, to: str, intervals: int, timeout_s: float, *, keeps: bool = False
    ) -> None:
        """Check that the cutover is possible. Raises UsageError, UnknownInput."""
        if leaves == to:
            raise UsageError(f"a cutover from {leaves!r} to itself changes nothing")
        if hub.state.certifier.policy is DivergencePolicy.NONE:
            raise UsageError(f"merge {hub.name!r} compares nothing (divergence policy none): nothing can be certified")
        if hub.inputs.get(leaves) is None:
            raise UnknownInput(f"cannot cut merge {hub.name!r} over from {leaves!r}: it is not attached")
        if hub.state.certifier.cutover_to:
            raise UsageError(f"merge {hub.name!r} is being cut over to {hub.state.certifier.cutover_to!r} already")
        self._hub = hub
        self._leaves, self._to = leaves, to
        self._intervals = intervals
        self._timeout_s = timeout_s
        self._keeps = keeps
        self._equal = 0
        self._is_certified = False
        self._since: int | None = None  # a difference in an interval from here on ends the attempt
        self._role_before: InputRole | None = None  # of ``to``, from the moment when it was asked to change its role

    async def run(self, report: ReportStep) -> None:
        """Run the cutover until it is done or rolled back. The last report has the result."""
        certifier = self._hub.state.certifier
        certifier.cutover_to = self._to
        done = False
        try:
            async with time_limit(self._timeout_s):
                await self._prepare(report)
            if not self._keeps:
                await self._hub.task.settled(self._detach)
            done = True
            if self._keeps:
                await self._report(report, CutoverStage.PROMOTED, f"{self._to} counts beside {self._leaves}")
            else:
                text = f"{self._to} has taken over from {self._leaves}, which is refused until it is released"
                await self._report(report, CutoverStage.DONE, text)
        except asyncio.TimeoutError:
            text = f"not done within {self._timeout_s:g} s; nothing has changed"
            await self._report(report, CutoverStage.ROLLED_BACK, text)
        except _RolledBack as reason:
            await self._report(report, CutoverStage.ROLLED_BACK, f"{reason}; nothing has changed")
        finally:
            certifier.cutover_to = ""
            if not done:
                self._give_role_back()

    async def _prepare(self, report: ReportStep) -> None:
        to, leaves = self._to, self._leaves
        with self._hub.state.certifier.watching() as news:
            await self._report(report, CutoverStage.WAITING, f"waiting for {to} to attach and join")
            await self._until(news, lambda: self._state(to) in (LifeState.JOINED, LifeState.OBSERVING))
            await self._report(report, CutoverStage.JOINED, f"{to} is {self._state(to)}")
            await self._certify(report, news)
            status = self._status(to)
            if status is not None and status.role is not InputRole.ACTIVE:
                await self._report(report, CutoverStage.PROMOTING, f"{to} attaches again as active")
                self._promote(status.role)
            await self._until(news, lambda: self._counts(to))
            if not self._keeps:
                await self._report(report, CutoverStage.LEAVING, f"{to} counts; {leaves} leaves")

    async def _certify(self, report: ReportStep, news: asyncio.Event) -> None:
        """Wait until the two inputs have been equal in enough intervals in a row."""
        reported = None
        while True:
            news.clear()
            self._look()
            if self._state(self._to) is None:
                raise _RolledBack(f"{self._to} has gone")
            if self._equal != reported:
                reported = self._equal
                text = f"{self._to} equal to {self._leaves} over {self._equal} of {self._intervals} intervals"
                await self._report(report, CutoverStage.CERTIFYING, text)
            if self._equal >= self._intervals:
                self._is_certified = True  # its next incarnation counts equal intervals from 0
                return
            await news.wait()

    async def _until(self, news: asyncio.Event, claim: Callable[[], bool]) -> None:
        while True:
            news.clear()
            self._look()
            if claim():
                return
            await news.wait()

    def _look(self) -> None:
        """Compare the two inputs as far as they have come. Raises _RolledBack."""
        monitor = self._hub.state.certifier.monitor
        assert monitor is not None
        if self._hub.inputs.get(self._leaves) is None:
            raise _RolledBack(f"{self._leaves} has gone by itself")
        why = self._hub.state.certifier.quarantined.get(self._to)
        if why is not None:
            raise _RolledBack(f"{self._to} is quarantined: {why}")
        if self._since is None:
            self._since = min(monitor.completed(self._leaves), monitor.completed(self._to))
        equal, different = monitor.beside(self._to, self._leaves, self._since)
        if not self._is_certified:
            self._equal = equal
        if different is not None:
            divergence = next(d for d in monitor.divergent() if d.interval == different)
            text = describe_divergence(divergence, self._hub.state.schema)
            raise _RolledBack(f"{self._to} and {self._leaves} differ in {text}")

    def _promote(self, role: InputRole) -> None:
        attached = self._hub.inputs.get(self._to)
        if attached is None:
            raise _RolledBack(f"{self._to} has gone")
        self._role_before = role
        attached.session.change_role(InputRole.ACTIVE)

    def _give_role_back(self) -> None:
        attached = self._hub.inputs.get(self._to)
        if self._role_before is not None and attached is not None:
            attached.session.change_role(self._role_before)

    def _detach(self) -> None:
        """Detach ``leaves``. Runs in a step of the hub, so the state that it checks is the state that it changes."""
        self._look()
        if not self._counts(self._to):
            raise _RolledBack(f"{self._to} does not count any more")
        certifier = self._hub.state.certifier
        stable_point = show_time(self._hub.state.merge.stable_point)
        ending = certifier.quarantine(self._leaves, f"{self._to} has taken its place at {stable_point}")
        self._hub.inputs.expel(self._leaves, ending)

    def _status(self, name: str) -> InputStatus | None:
        return next((status for status, _ in self._hub.state.lives if status.name == name), None)

    def _state(self, name: str) -> LifeState | None:
        return next((life.state(status) for status, life in self._hub.state.lives if status.name == name), None)

    def _counts(self, name: str) -> bool:
        status = self._status(name)
        return status is not None and status.role is InputRole.ACTIVE and self._state(name) is LifeState.JOINED

    async def _report(self, report: ReportStep, stage: CutoverStage, text: str) -> None:
        if stage is not CutoverStage.CERTIFYING:  # which is reported once per interval
            self._hub.state.occurrences.note(OccurrenceKind.CUTOVER, f"{stage}: {text}", self._to)
        await report(CutoverStep(stage, text, self._equal))
