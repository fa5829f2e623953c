"""Output policies (V.A): when the merge shows an event, and when it shows a change of its end.

Algorithm R3 leaves two locations free. Location 2 is the first insert of an event: show it at once, when enough
inputs have it, when the leading input has it, when it is half frozen, or when it is final. Location 1 is an
adjust: show it only when compatibility demands it (lazy), or at once. Apart from that the output's stable point can
be held back by a lag, which saves adjusts, and one input may not lead by more than a bound (``lead``). A policy is a
choice of each; ``docs/policies.md`` is the reference.

``adjusts`` means the adjusts of those whose inserts are shown: of the leading input, of any input where the first
insert or the half-frozen event is shown, and with a quorum an end that enough inputs have. Final-only has none to show.

Only joined inputs lead and make a quorum: one that is joining may be wrong about what ends before its join_at.

A policy is a small value; it holds for R3 and R4. R0-R2 keep no events, so they know lazy and eager only, which
are the same for them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import UsageError


class Show(enum.Enum):
    """Location 2: when an event appears in the output; at the latest when it is half frozen, but for FINAL."""

    FIRST = "first"  # the first input that inserts it
    QUORUM = "quorum"  # enough joined inputs have it
    LEADING = "leading"  # the leading input inserts it
    HALF_FROZEN = "half-frozen"  # no input can take it back: it is never removed from the output
    FINAL = "final"  # its end cannot change any more: the output has no adjusts at all


class Leader(enum.Enum):
    """Which of the joined inputs leads; of equals the longest attached."""

    STABLE = "furthest-stable"  # the largest stable point
    INSERT = "highest-insert"  # the largest Vs of an insert, the one at hand included
    UNFROZEN = "most-unfrozen"  # the most events that can still be taken back, the one at hand included


@dataclass(frozen=True)
class Policy:
    """``show``: location 2; ``leader``: of LEADING. ``reflects_adjusts``: location 1. ``lag``: time units, >= 0.
    ``lead_max``: time units, > 0, that one input may be ahead of the next; None: any.

    Of QUORUM, ``quorum`` joined inputs are enough, or ``quorum_percent`` per cent of them, rounded up.
    """

    show: Show = Show.FIRST
    reflects_adjusts: bool = False
    quorum: int = 0
    lag: int = 0
    quorum_percent: int = 0
    leader: Leader = Leader.STABLE
    lead_max: int | None = None

    @property
    def needs_index(self) -> bool:
        """Whether only R3 and R4 can follow this policy."""
        return self.show is not Show.FIRST or self.lead_max is not None

    @property
    def counts_elements(self) -> bool:
        """Whether the leader follows from elements, of which a shard sees only a part."""
        return self.show is Show.LEADING and self.leader is not Leader.STABLE

    def enough(self, joined: int) -> int:
        """How many of ``joined`` inputs make a quorum: at least one, at most all."""
        if self.quorum_percent:
            return max(1, -(-self.quorum_percent * joined // 100))
        return max(1, min(self.quorum, joined))

    def held_back(self, t: int) -> int:
        """The stable point that the output may say when an input says ``t``."""
        if self.lag == 0 or t in (INF, NEG_INF):
            return t
        return max(t - self.lag, NEG_INF)

    def __str__(self) -> str:
        if self.show is Show.FIRST:
            text = "eager" if self.reflects_adjusts else "lazy"
        elif self.show is Show.QUORUM:
            text = f"quorum:{self.quorum_percent}%" if self.quorum_percent else f"quorum:{self.quorum}"
        elif self.counts_elements:
            text = f"{_NAMES[self.show]}:{self.leader.value}"
        else:
            text = _NAMES[self.show]
        if self.reflects_adjusts and self.show is not Show.FIRST:
            text += "+adjusts"
        text += f"+lag:{self.lag}" if self.lag else ""
        return text if self.lead_max is None else f"{text}+lead:{self.lead_max}"


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
# Which policies +adjusts adds nothing to, and why.
_WITHOUT_ADJUSTS: Final = {
    EAGER: "eager shows every adjust already",
    LAZY: "lazy shows no adjust at once; with adjusts it is eager",
    FINAL_ONLY: "what final-only shows has no adjusts any more",
}
_LEADERS: Final = {leader.value: leader for leader in Leader}
POLICY_NAMES: Final = (*_SIMPLE, f"leading-input-only:{'|'.join(_LEADERS)}", "quorum:K", "quorum:P%")
# For --help, which names them all; without a word that is too long for a column of it.
POLICY_HELP: Final = (
    "When the output shows what: lazy, eager, half-frozen-only, final-only, quorum:K, quorum:P% or leading-input-only, "
    f"behind which {', '.join(f':{word}' for word in _LEADERS)} may stand; then +adjusts, +lag:T, +lead:T. "
    "See docs/policies.md."
)


def parse_policy(text: str) -> Policy:
    """The policy of one of POLICY_NAMES and its modifiers, in any order, each once.

    ``+adjusts``: a change of an end is shown at once. ``+lag:T``: the stable point stays T time units behind.
    ``+lead:T``: no input leads the next one by more than T time units. Raises UsageError for anything else, and for a
    combination that means nothing.
    """
    name, *modifiers = text.split("+")
    policy = _parse_show(name, text)
    values: dict[str, int] = {}
    for modifier in modifiers:
        word, _, value = modifier.partition(":")
        if modifier != "adjusts" and (word not in ("lag", "lead") or word == modifier):
            raise UsageError(f"unknown policy {text!r}: +{modifier} is not one of +adjusts, +lag:T, +lead:T")
        if word in values:
            raise UsageError(f"policy {text!r} means nothing: it has {word} twice")
        values[word] = 1 if word == "adjusts" else _parse_positive(value, f"the {word} of policy {text!r}")
    if "adjusts" in values and policy in _WITHOUT_ADJUSTS:
        raise UsageError(f"policy {text!r} means nothing: {_WITHOUT_ADJUSTS[policy]}")
    adjusts = policy.reflects_adjusts or "adjusts" in values
    return replace(policy, reflects_adjusts=adjusts, lag=values.get("lag", 0), lead_max=values.get("lead"))


def _parse_show(name: str, text: str) -> Policy:
    word, colon, which = name.partition(":")
    if name in _SIMPLE:
        return _SIMPLE[name]
    if word == str(LEADING_INPUT_ONLY) and colon:
        if which not in _LEADERS:
            raise UsageError(f"unknown policy {text!r}: the leading input is that with {', '.join(_LEADERS)}")
        return Policy(Show.LEADING, leader=_LEADERS[which])
    if word == Show.QUORUM.value and colon:
        number = _parse_positive(which.removesuffix("%"), f"the quorum of policy {text!r}")
        if not which.endswith("%"):
            return Policy(Show.QUORUM, quorum=number)
        if number > 100:
            raise UsageError(f"policy {text!r} means nothing: there is no more than 100% of the inputs")
        return Policy(Show.QUORUM, quorum_percent=number)
    words = ", ".join(POLICY_NAMES)
    raise UsageError(f"unknown policy {text!r}; it is {words}, each with +adjusts, +lag:T, +lead:T if wanted")


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
