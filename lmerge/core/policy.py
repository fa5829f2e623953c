"""Output policies (V.A): when the merge shows an event, and when it shows a change of its end.

Algorithm R3 leaves two locations free. Location 2 is the first insert of an event: show it at once, when enough
inputs have it, when the leading input has it, when it is half frozen, or when it is final. Location 1 is an
adjust: show it only when compatibility demands it (lazy), or at once (eager). Apart from that the output's
stable point can be held back by a lag, which saves adjusts, and one input may not lead by more than a bound (``lead``).

A policy is a small value; it holds for R3 and R4. R0-R2 keep no events, so they know lazy and eager only, which
are the same for them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import UsageError


class Show(enum.Enum):
    """Location 2: when an event appears in the output; at the latest when it is half frozen, but for FINAL."""

    FIRST = "first"  # the first input that inserts it
    QUORUM = "quorum"  # k inputs have inserted it
    LEADING = "leading"  # the input with the largest stable point has inserted it
    HALF_FROZEN = "half-frozen"  # no input can take it back: it is never removed from the output
    FINAL = "final"  # its end cannot change any more: the output has no adjusts at all


@dataclass(frozen=True)
class Policy:
    """``show``: location 2. ``reflects_adjusts``: location 1. ``quorum``: k. ``lag``: time units, >= 0.
    ``lead_max``: time units, > 0, that one input may be ahead of the next; None: any.
    """

    show: Show = Show.FIRST
    reflects_adjusts: bool = False
    quorum: int = 0
    lag: int = 0
    lead_max: int | None = None

    @property
    def needs_index(self) -> bool:
        """Whether only R3 and R4 can follow this policy."""
        return self.show is not Show.FIRST or self.lead_max is not None

    def held_back(self, t: int) -> int:
        """The stable point that the output may say when an input says ``t``."""
        if self.lag == 0 or t in (INF, NEG_INF):
            return t
        return max(t - self.lag, NEG_INF)

    def __str__(self) -> str:
        if self.show is Show.FIRST:
            name = "eager" if self.reflects_adjusts else "lazy"
        elif self.show is Show.QUORUM:
            name = f"quorum:{self.quorum}"
        else:
            name = _NAMES[self.show]
        name += f"+lag:{self.lag}" if self.lag else ""
        return name if self.lead_max is None else f"{name}+lead:{self.lead_max}"


_NAMES: Final = {
    Show.LEADING: "leading-input-only",
    Show.HALF_FROZEN: "half-frozen-only",
    Show.FINAL: "final-only",
}

LAZY: Final = Policy()
EAGER: Final = Policy(reflects_adjusts=True)
HALF_FROZEN_ONLY: Final = Policy(Show.HALF_FROZEN)
FINAL_ONLY: Final = Policy(Show.FINAL)
LEADING_INPUT_ONLY: Final = Policy(Show.LEADING)

_SIMPLE: Final = {str(p): p for p in (LAZY, EAGER, HALF_FROZEN_ONLY, FINAL_ONLY, LEADING_INPUT_ONLY)}
POLICY_WORDS: Final = (*_SIMPLE, "quorum:K")


def parse_policy(text: str) -> Policy:
    """The policy named ``lazy``, ``eager``, ``half-frozen-only``, ``final-only``, ``leading-input-only``, ``quorum:K``.

    Each can be followed by ``+lag:T``, and then by ``+lead:T`` (T time units). Raises UsageError for anything else.
    """
    rest, leads, lead_text = text.partition("+lead:")
    lead_max = _parse_positive(lead_text, f"the lead of policy {text!r}") if leads else None
    name, plus, lag_text = rest.partition("+lag:")
    lag = _parse_positive(lag_text, f"the lag of policy {text!r}") if plus else 0
    if name.startswith("quorum:"):
        quorum = _parse_positive(name.removeprefix("quorum:"), f"the quorum of policy {text!r}")
        return Policy(Show.QUORUM, quorum=quorum, lag=lag, lead_max=lead_max)
    if name not in _SIMPLE:
        words = ", ".join(POLICY_WORDS)
        raise UsageError(f"unknown policy {text!r}; it is {words}, each with +lag:T and +lead:T if wanted")
    simple = _SIMPLE[name]
    return Policy(simple.show, simple.reflects_adjusts, lag=lag, lead_max=lead_max)


@dataclass(frozen=True)
class Closing:
    """Law 5: how many joined inputs must have said stable(+inf) before the output says it.

    ``needed`` None means all of them (``all``); 1 is ``any``, the paper's listing; k is ``quorum:k``. More than there
    are inputs means all.
    """

    needed: int | None = None

    def agreed(self, closed: int, joined: int) -> bool:
        """Whether ``closed`` of ``joined`` inputs are enough."""
        if closed == 0:
            return False
        return closed >= (joined if self.needed is None else min(self.needed, joined))

    def __str__(self) -> str:
        if self.needed is None:
            return "all"
        return "any" if self.needed == 1 else f"quorum:{self.needed}"


def parse_closing(text: str) -> Closing:
    """The closing policy named ``all``, ``any`` or ``quorum:K``. Raises UsageError for anything else."""
    if text == "all":
        return Closing()
    if text == "any":
        return Closing(1)
    if text.startswith("quorum:"):
        return Closing(_parse_positive(text.removeprefix("quorum:"), f"the quorum of closing {text!r}"))
    raise UsageError(f"unknown closing {text!r}; it is all, any or quorum:K")


def _parse_positive(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= INF:
        raise UsageError(f"{what} must be a positive whole number, not {text!r}")
    return int(text)
