"""The election of a leader over one Lease: the shell around ``lease_rules``.

It survives an API server that restarts or cannot be reached, a Lease that is missing, and its own freezing. The
elector of the official client does not: it ends when the Lease is missing, and has no term.

A leader acts through ``guard()``: it gives the term, or raises when the leadership has ended. Time is that of the
machine's steady clock, which also counts while the machine is suspended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, Final

from lmerge import __version__
from lmerge.clock import random, wall_us
from lmerge.errors import Unavailable
from lmerge.time_limit import time_limit
from lmerge_controller.kubernetes.api import LEASES, Api, Json
from lmerge_controller.kubernetes.api_errors import ApiProblem, ObjectExists, ObjectMissing, WriteConflict
from lmerge_controller.kubernetes.lease_rules import Candidacy, LeaseTimes, term_of

log = logging.getLogger(__name__)

DEFAULT_TIMES: Final = LeaseTimes()
# Candidates look at different moments, so that they do not all try at once.
_JITTER: Final = 0.2


class LeadershipLost(Unavailable):
    """This process does not lead at present, so it must not act."""


def steady_s() -> float:
    """Return the seconds of the steady clock. On Linux it goes on while the machine is suspended."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime(boot) if boot is not None else time.monotonic()


class Election:
    """Takes part in an election until ``stop``.

    It runs ``lead(term)`` as a task while it leads, and cancels it at the end. ``floor()`` returns the highest term
    that any object carries. It is called when the Lease is missing or has no term.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        *,
        lead: Callable[[int], Awaitable[None]],
        floor: Callable[[], Awaitable[int]],
        times: LeaseTimes = DEFAULT_TIMES,
        now: Callable[[], float] = steady_s,
        version: str = __version__,
    ) -> None:
        self._api = api
        self._namespace, self._name = namespace, name
        self._lead, self._floor = lead, floor
        self._times, self._now = times, now
        self._rules = Candidacy(identity, times, version)
        self._version_noted: str | None = None
        self._lease: Json | None = None
        self._stopping = asyncio.Event()
        self._leading: asyncio.Task[None] | None = None
        self.problem = "the lease was not read yet"  # what keeps it from taking part, for people; empty: nothing
        self._rest_until = float("-inf")
        self.acquisitions = 0
        self.losses = 0

    @property
    def term(self) -> int:
        """Return the term in which this process leads now, 0 if it does not."""
        leadership = self._rules.leadership
        if leadership is None or not leadership.is_confirmed or self._now() >= leadership.until:
            return 0
        return leadership.term

    @property
    def left_s(self) -> float:
        """Return for how many seconds the leadership is certain."""
        leadership = self._rules.leadership
        return max(0.0, leadership.until - self._now()) if leadership is not None else 0.0

    def guard(self) -> int:
        """Return the term. Raises LeadershipLost if this process does not lead now."""
        term = self.term
        if not term:
            raise LeadershipLost(f"{self._rules.identity} does not lead at present")
        return term

    def stop(self) -> None:
        """Have ``run`` end: a leader stops acting, then releases the Lease."""
        self._stopping.set()

    async def run(self) -> None:
        """Take part until ``stop``."""
        try:
            while not self._stopping.is_set():
                await self._turn()
                await self._pause()
        finally:
            await self._end_leading()
            if self._rules.leadership is not None and self._lease is not None:
                with suppress(ApiProblem):
                    await self._write(self._rules.release(self._lease, _wall()))

    async def _turn(self) -> None:
        try:
            if self._rules.leadership is not None and self._lease is not None:
                await self._renew(self._lease)
            else:
                await self._try_to_acquire()
            self._note_problem("")
        except ApiProblem as problem:
            self._note_problem(str(problem))
        if self._rules.expire(self._now()):
            log.warning("%s could not renew the lease in time; it stops acting", self._rules.identity)
        if self._rules.leadership is None:
            await self._end_leading()

    async def _look(self) -> Json | None:
        """Read the Lease as it is now. A leader that finds it changed by another has lost it. Raises ApiProblem."""
        sent = self._now()
        try:
            lease: Json | None = await self._api.get(LEASES, self._namespace, self._name, timeout_s=self._call_s())
        except ObjectMissing:
            lease = None
        self._rules.observe(lease, sent, self._now())
        self._note_version(self._rules.other_version(lease))
        self._lease = lease
        return lease

    async def _try_to_acquire(self) -> None:
        lease = await self._look()
        if self._now() < self._rest_until or not self._rules.may_acquire(lease, self._now()):
            return
        has_term = lease is not None and term_of(lease) > 0
        body, term = self._rules.acquisition(lease, 0 if has_term else await self._floor(), _wall())
        sent = self._now()
        try:
            written = await self._create(body) if lease is None else await self._write(body)
        except (ObjectExists, WriteConflict):
            return  # another candidate was faster
        self._lease = written
        self._rules.written(written, sent, self._now(), is_created=lease is None)
        log.info("%s holds the lease in term %d", self._rules.identity, term)
        self._begin_leading()

    async def _renew(self, lease: Json) -> None:
        sent = self._now()
        try:
            self._lease = await self._write(self._rules.renewal(lease, _wall()))
        except (WriteConflict, ObjectMissing):
            # An own write without an answer may have taken effect, or another candidate leads. The Lease decides.
            current = await self._look()
            if self._rules.leadership is None or current is None:
                log.warning("%s has lost the lease to another", self._rules.identity)
                return
            sent = self._now()
            self._lease = await self._write(self._rules.renewal(current, _wall()))
        if self._rules.expire(self._now()) or self._rules.leadership is None:
            return  # what led in this term has stopped; the next turn acquires a new one
        self._rules.written(self._lease, sent, self._now())
        self._begin_leading()

    def _begin_leading(self) -> None:
        if self._leading is None and self.term:
            self.acquisitions += 1
            log.info("%s leads in term %d", self._rules.identity, self.term)
            self._leading = asyncio.create_task(self._act(self.term), name=f"leader of term {self.term}")

    async def _act(self, term: int) -> None:
        """Run what a leader does. If it fails, the leadership is given up: another process may do better."""
        try:
            await self._lead(term)
        except asyncio.CancelledError:
            raise
        except LeadershipLost as problem:
            log.warning("%s", problem)
        except Exception:
            log.exception("%s failed as the leader of term %d", self._rules.identity, term)
            self._rest_until = self._now() + 2 * self._times.lease_s
        else:
            return
        self._rules.leadership = None

    async def _end_leading(self) -> None:
        """Cancel what the leader does, and wait until it has ended."""
        task, self._leading = self._leading, None
        if task is None:
            return
        self.losses += 1
        task.cancel()
        await asyncio.wait([task])

    async def _write(self, body: Json) -> Json:
        return await self._api.replace(LEASES, body, timeout_s=self._call_s())

    async def _create(self, body: Json) -> Json:
        body["metadata"] |= {"name": self._name, "namespace": self._namespace}
        whole = {"apiVersion": LEASES.api_version, "kind": LEASES.kind} | body
        return await self._api.create(LEASES, whole, timeout_s=self._call_s())

    def _call_s(self) -> float:
        """Return the longest wait for a write, in seconds: a leader must be able to try again in time."""
        return self._times.renew_s / 2

    async def _pause(self) -> None:
        """Wait for the next turn, or until a leader must have stopped, or until ``stop``."""
        pause = self._times.retry_s * (1 + _JITTER * random.random())
        if self._rules.leadership is not None:
            pause = min(pause, max(0.0, self.left_s))
        with suppress(asyncio.TimeoutError):
            async with time_limit(pause):
                await self._stopping.wait()

    def _note_version(self, other: str | None) -> None:
        """Log that a candidate of another version leads, once for each such version."""
        if other is not None and other != self._version_noted:
            log.warning(
                "a controller of version %s leads, and %s has version %s; only the leader acts, and this one takes "
                "over when it ends",
                other,
                self._rules.identity,
                self._rules.version,
            )
        self._version_noted = other

    def _note_problem(self, problem: str) -> None:
        """Log a problem when it begins, changes or ends, not at every attempt."""
        if problem and problem != self.problem:
            log.warning("the election goes on, but %s", problem)
        self.problem = problem


def _wall() -> str:
    """Return the time as a Lease shows it. No decision depends on it."""
    moment: Any = datetime.fromtimestamp(wall_us() / 1_000_000, timezone.utc)
    return str(moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
