"""The schedule of kills of `lmerge demo`: when to kill, when to start again, how far the replay may go. Pure.

Called by `run` ten times a second with what it observes. `KillSchedule.next` returns what is to be done. The rules,
each a property in the tests:

- Nothing is killed while a replica is not in the merge, or while a server is down or not read by the subscriber.
- The kills come one after another. The replay does not pass the mark of the next kill before the present one is over,
  nor the last mark before all processes are back. Its clock stands still there, so that on a slow machine the
  processes that start get all of it. A fast machine never reaches the marks early.
- A process that is away for ``BACK_S_MAX`` is waited for no longer: the replay goes to its end without further kills.
"""

from __future__ import annotations

from typing import NamedTuple

REPLICA = "replica"
SERVER = "server"
KILL = "kill"
START = "start"
# A process, its imports, the table and a join take 3 s of a free core. A minute of it is a core shared by twenty.
BACK_S_MAX = 120.0
WHOLE_S_MIN = 2.0  # long enough to see that all are back, and to measure which replica leads
DOWN_S_MAX = 10.0  # long enough to see the others carry the output, also on a slow machine


class PlannedKill(NamedTuple):
    """A kill of the leading replica or of a server, when the replay has reached the part ``at`` of its length.

    The process starts again at ``back_at``, on a slow machine after ``DOWN_S_MAX`` already.
    """

    victim: str
    at: float
    back_at: float


PLANNED_KILLS = (PlannedKill(REPLICA, 0.20, 0.34), PlannedKill(SERVER, 0.40, 0.48), PlannedKill(REPLICA, 0.55, 0.68))


class Situation(NamedTuple):
    """The run at monotonic time ``now_s``. ``progress``: of the output, 0 to 1. ``is_whole``: no process is away."""

    now_s: float
    progress: float
    is_whole: bool


class Step(NamedTuple):
    """What to do now.

    ``action``: KILL, START or empty; ``victim``: REPLICA, SERVER or empty. ``until``: the part of the replay that its
    clock may not pass; None: it may go to the end.
    """

    action: str
    victim: str
    until: float | None


class KillSchedule:
    """The planned kills, one after another. ``last``: the part of the replay at which all must be back."""

    def __init__(self, kills: tuple[PlannedKill, ...], last: float = 1.0) -> None:
        self.has_given_up = False  # a process was away for too long
        self._kills = kills
        self._last = last
        self._number = 0  # of the present kill
        self._has_begun = False  # the present kill
        self._down_since_s: float | None = None
        self._away_since_s: float | None = None
        self._whole_since_s: float | None = None

    @property
    def may_end(self) -> bool:
        """Whether every kill is over and all processes are back, or none is waited for any more."""
        return self.has_given_up or self._number > len(self._kills)

    def next(self, situation: Situation) -> Step:
        """Return what to do now. Call it again only after that is done, with a situation that shows it."""
        if self._down_since_s is None:
            self._wait(situation)
            if situation.is_whole and (self._has_begun or self._number == len(self._kills)):
                self._number, self._has_begun = self._number + 1, False
        kill = self._kills[self._number] if self._number < len(self._kills) else None
        action = self._action(kill, situation) if kill is not None else ""
        if action == KILL:
            self._has_begun, self._down_since_s, self._whole_since_s = True, situation.now_s, None
        elif action == START:
            self._down_since_s = None
        return Step(action, kill.victim if kill is not None and action else "", self._until())

    def _action(self, kill: PlannedKill, situation: Situation) -> str:
        if self._down_since_s is not None:
            is_time = situation.progress >= kill.back_at or situation.now_s - self._down_since_s >= DOWN_S_MAX
            return START if is_time else ""
        if self._whole_since_s is None or self.has_given_up:
            return ""
        return KILL if situation.progress >= kill.at and situation.now_s - self._whole_since_s >= WHOLE_S_MIN else ""

    def _wait(self, situation: Situation) -> None:
        """Note since when all processes have been there, or since when one that should be there has been away."""
        if situation.is_whole:
            self._away_since_s = None
            self._whole_since_s = situation.now_s if self._whole_since_s is None else self._whole_since_s
            return
        self._whole_since_s = None
        if self.may_end:
            return
        self._away_since_s = situation.now_s if self._away_since_s is None else self._away_since_s
        self.has_given_up = situation.now_s - self._away_since_s >= BACK_S_MAX

    def _until(self) -> float | None:
        if self.may_end:
            return None
        return min([kill.at for kill in self._kills[self._number + 1 :]] + [self._last])


def planned_kills(kills: int, server_kills: int) -> tuple[PlannedKill, ...]:
    """Return the schedule with so many kills of replicas and of servers."""
    left = {REPLICA: kills, SERVER: server_kills}
    planned = []
    for kill in PLANNED_KILLS:
        if left[kill.victim]:
            left[kill.victim] -= 1
            planned.append(kill)
    return tuple(planned)
