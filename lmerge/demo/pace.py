"""The plot of `lmerge demo`: when it kills, when the next life starts, how far the replay may go meanwhile. Pure.

Called by `demo_run` ten times a second with what it sees; `Conductor.next` returns what is to be done. The rules, each
a property in the tests:

- Nothing is killed while anything is away: a replica that is not in the merge, a server on which nobody counts.
- The acts come one after another. The replay does not pass the mark of the next act before the present one is over, nor
  the last mark before all are back: its clock stands still there, so a machine that is slow has all of itself for what
  starts. A fast machine never reaches the marks early.
- Whoever is away for ``BACK_S_MAX`` is waited for no longer: the replay goes to its end without further kills.
"""

from __future__ import annotations

from typing import NamedTuple

REPLICA = "replica"
SERVER = "server"
KILL = "kill"
START = "start"
# A process, its imports, the table and a join take 3 s of a free core. A minute of it is a core shared by twenty.
BACK_S_MAX = 120.0
WHOLE_S_MIN = 2.0  # that all are back is to be seen, and who is winning is taken over so long
DOWN_S_MAX = 10.0  # long enough to see the others carry the output, also where the way is long or the clock stands


class Act(NamedTuple):
    """A kill of the winning replica, or of a server, at the part ``at`` of the way. The next life starts at
    ``back_at``, on a slow machine after ``DOWN_S_MAX`` already.
    """

    victim: str
    at: float
    back_at: float


ACTS = (Act(REPLICA, 0.20, 0.34), Act(SERVER, 0.40, 0.48), Act(REPLICA, 0.55, 0.68))


class Look(NamedTuple):
    """What is seen at monotonic time ``now_s``. ``progress``: of the output, 0 to 1. ``is_whole``: nobody is away."""

    now_s: float
    progress: float
    is_whole: bool


class Order(NamedTuple):
    """What to do now. ``deed``: KILL or START, or empty; ``victim``: of what kind. ``until``: the part of the way that
    the replay may not pass; None: it may end.
    """

    deed: str
    victim: str
    until: float | None


class Conductor:
    """The acts, one after another. ``last``: the part of the way from where on only the end is left."""

    def __init__(self, acts: tuple[Act, ...], last: float = 1.0) -> None:
        self.has_given_up = False  # somebody was away for too long
        self._acts = acts
        self._last = last
        self._number = 0  # of the present act
        self._has_begun = False  # the present act
        self._down_since_s: float | None = None
        self._away_since_s: float | None = None
        self._whole_since_s: float | None = None

    @property
    def may_end(self) -> bool:
        """Whether every act is over and all are back, or nobody is waited for any more."""
        return self.has_given_up or self._number > len(self._acts)

    def next(self, look: Look) -> Order:
        """What to do now. Call it again only after the deed is done, with a look that sees it."""
        if self._down_since_s is None:
            self._wait(look)
            if look.is_whole and (self._has_begun or self._number == len(self._acts)):
                self._number, self._has_begun = self._number + 1, False
        act = self._acts[self._number] if self._number < len(self._acts) else None
        deed = self._deed(act, look) if act is not None else ""
        if deed == KILL:
            self._has_begun, self._down_since_s, self._whole_since_s = True, look.now_s, None
        elif deed == START:
            self._down_since_s = None
        return Order(deed, act.victim if act is not None and deed else "", self._until())

    def _deed(self, act: Act, look: Look) -> str:
        if self._down_since_s is not None:
            is_time = look.progress >= act.back_at or look.now_s - self._down_since_s >= DOWN_S_MAX
            return START if is_time else ""
        if self._whole_since_s is None or self.has_given_up:
            return ""
        return KILL if look.progress >= act.at and look.now_s - self._whole_since_s >= WHOLE_S_MIN else ""

    def _wait(self, look: Look) -> None:
        """Note for how long all have been there, or anybody away that ought to be there."""
        if look.is_whole:
            self._away_since_s = None
            self._whole_since_s = look.now_s if self._whole_since_s is None else self._whole_since_s
            return
        self._whole_since_s = None
        if self.may_end:
            return
        self._away_since_s = look.now_s if self._away_since_s is None else self._away_since_s
        self.has_given_up = look.now_s - self._away_since_s >= BACK_S_MAX

    def _until(self) -> float | None:
        if self.may_end:
            return None
        return min([act.at for act in self._acts[self._number + 1:]] + [self._last])


def acts_of(kills: int, server_kills: int) -> tuple[Act, ...]:
    """The acts with so many kills of replicas and of servers."""
    left = {REPLICA: kills, SERVER: server_kills}
    acts = []
    for act in ACTS:
        if left[act.victim]:
            left[act.victim] -= 1
            acts.append(act)
    return tuple(acts)
