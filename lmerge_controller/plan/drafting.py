"""What the rules of the plan write into: actions, notes, deadlines and the facts that were acted upon. Pure.

A rule proposes; the draft refuses what was done a moment ago. So an observation that is older than the effect of an
action does not repeat it, and an action that had no effect is repeated after ``RETRY_S``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lmerge_controller.plan.actions import Action, ReplaceReplica, StartReplica
from lmerge_controller.plan.assessment import RETRY_S, QueryView
from lmerge_controller.plan.conditions import PlanNote
from lmerge_controller.plan.record import ActedFact

# A plan is made again after so long, whatever happens: an observation may have missed something.
CHECK_S: Final = 5.0
# A server that begins to answer, or an input that joins, is no event: what goes on is looked at again after a share of
# the time that it has taken. So it is noticed that much later at most, and what takes for ever costs no more.
SETTLING_SHARE: Final = 0.25
SETTLING_MIN_S: Final = 0.2
# Times are compared as floats; a check that comes a little early would find nothing due.
_EARLY_S: Final = 0.01


class PlanDraft:
    """A plan while it is made. ``starts_left``: how many replicas may still be started now."""

    def __init__(self, view: QueryView, starts_left: int) -> None:
        self.actions: list[Action] = []
        self.notes: list[PlanNote] = []
        self.acted = {acted.fact: acted.at_s for acted in view.record.acted}
        self.starts_s = list(view.record.starts_s)
        self.next_check_s = CHECK_S
        self._now_s = view.now_s
        self._starts_left = starts_left

    def propose(self, action: Action) -> bool:
        """Add an action, unless its fact was acted upon a moment ago. Returns whether it was added."""
        at_s = self.acted.get(action.fact)
        if at_s is not None:
            self.check_after(at_s + RETRY_S - self._now_s)
            return False
        if isinstance(action, StartReplica | ReplaceReplica) and not self._may_start():
            return False
        self.actions.append(action)
        self.acted[action.fact] = self._now_s
        return True

    def note(self, reason: str, message: str) -> None:
        """Add something that should be looked at."""
        self.notes.append(PlanNote(reason, message, is_warning=True))

    def check_after(self, seconds: float) -> None:
        """Have the next plan made after ``seconds`` at the latest."""
        self.next_check_s = max(_EARLY_S, min(self.next_check_s, seconds + _EARLY_S))

    def check_often(self, since_s: Iterable[float]) -> None:
        """Have the next plan made soon after what has begun at ``since_s``, or was acted upon: the youngest counts."""
        begun_s = max((*since_s, *self.acted.values()), default=None)
        if begun_s is not None:
            self.check_after(max(SETTLING_MIN_S, SETTLING_SHARE * (self._now_s - begun_s)))

    @property
    def acted_facts(self) -> tuple[ActedFact, ...]:
        """The facts for the record."""
        return tuple(ActedFact(fact, at_s) for fact, at_s in self.acted.items())

    def _may_start(self) -> bool:
        if self._starts_left <= 0:
            self.note("TooManyStarts", "replicas have been started too often within a minute; the next start waits")
            self.check_after(min(self.starts_s, default=self._now_s) + 60.0 - self._now_s)
            return False
        self._starts_left -= 1
        self.starts_s.append(self._now_s)
        return True
