"""Output policies (V.A): when the merge shows an event, and when it shows a change of its end.

Algorithm R3 leaves two locations open. Location 2 is the first insert of an event: it is shown at once, when enough
inputs have it, when the leading input has it, when it is half frozen, or when it is final. Location 1 is an adjust: it
is shown only when compatibility requires it (lazy), or at once. In addition, the output's stable point can stay behind
by a lag, which saves adjusts, and a bound can limit by how much one input leads (``lead``). A policy is a choice of
each; ``docs/policies.md`` is the reference.

``adjusts`` shows the adjusts of the inputs whose inserts are shown: of the leading input; of any input where the first
insert or the half-frozen event is shown; with a quorum, an end that enough inputs have. Final-only shows no adjusts.

Only joined inputs lead and make a quorum: a joining input may be wrong about events that end before its join_at.

A policy is a small value. It is valid for R3 and R4. R0-R2 keep no events, so they support only lazy and eager, which
are the same for them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import UsageError


class Show(enum.Enum):
    """Location 2: when an event appears in the output. Except for FINAL, at the latest when it is half frozen."""

    FIRST = "first"  # the first input that inserts it
    QUORUM = "quorum"  # enough joined inputs have it
    LEADING = "leading"  # the leading input inserts it
    HALF_FROZEN = "half-frozen"  # no input can remove it, so the output never removes it
    FINAL = "final"  # its end cannot change any more, so the output has no adjusts


class Leader(enum.Enum):
    """Which of the joined inputs leads; of equals the longest attached."""

    STABLE = "furthest-stable"  # the largest stable point
    INSERT = "highest-insert"  # the largest Vs of an insert, including the current one
    UNFROZEN = "most-unfrozen"  # the most events that can still be removed, including the current one


@dataclass(frozen=True)
class Policy:
    """An output policy.

    ``show``: location 2. ``leader``: for LEADING. ``reflects_adjusts``: location 1. ``lag``: time units, >= 0.
    ``lead_max``: time units, > 0, that one input may be ahead of the next; None: no bound. For QUORUM, ``quorum``
    joined inputs are enough, or ``quorum_percent`` per cent of them, rounded up.
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
        """Whether the leader is determined by elements, of which a shard gets only a part."""
        return self.show is Show.LEADING and self.leader is not Leader.STABLE

    def enough(self, joined: int) -> int:
        """Return how many of ``joined`` inputs make a quorum: at least one, at most all."""
        if self.quorum_percent:
            return max(1, -(-self.quorum_percent * joined // 100))
        return max(1, min(self.quorum, joined))

    def held_back(self, t: int) -> int:
        """Return the stable point that the output may have when an input has delivered stable(``t``)."""
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


_NAMES: Final = {Show.LEADING: "leading-input-only", Show.HALF_FROZEN: "half-frozen-only", Show.FINAL: "final-only"}

LAZY: Final = Policy()
EAGER: Final = Policy(reflects_adjusts=True)
HALF_FROZEN_ONLY: Final = Policy(Show.HALF_FROZEN)
FINAL_ONLY: Final = Policy(Show.FINAL)
LEADING_INPUT_ONLY: Final = Policy(Show.LEADING)

_SIMPLE: Final = {str(p): p for p in (LAZY, EAGER, HALF_FROZEN_ONLY, FINAL_ONLY, LEADING_INPUT_ONLY)}
# The policies that +adjusts does not change, and why.
_WITHOUT_ADJUSTS: Final = {
    EAGER: "eager shows every adjust already",
    LAZY: "lazy shows no adjust at once; with adjusts it is eager",
    FINAL_ONLY: "what final-only shows has no adjusts any more",
}
_LEADERS: Final = {leader.value: leader for leader in Leader}
POLICY_NAMES: Final = (*_SIMPLE, f"leading-input-only:{'|'.join(_LEADERS)}", "quorum:K", "quorum:P%")
# For --help. It lists all policies, and has no text without a space that is wider than its column.
POLICY_HELP: Final = (
    "When the output shows an event: lazy, eager, half-frozen-only, final-only, quorum:K, quorum:P% or "
    f"leading-input-only, optionally with {', '.join(f':{leader}' for leader in _LEADERS)}; then optionally +adjusts, "
    "+lag:T, +lead:T. See docs/policies.md."
)


def parse_policy(text: str) -> Policy:
    """Return the policy of one of POLICY_NAMES and its modifiers, in any order, each at most once.

    ``+adjusts``: a change of an end is shown at once. ``+lag:T``: the stable point stays T time units behind.
    ``+lead:T``: no input leads the next one by more than T time units. Raises UsageError for any other text, and for a
    combination without meaning.
    """
    name, *modifiers = text.split("+")
    policy = _parse_show(name, text)
    values: dict[str, int] = {}
    for modifier in modifiers:
        kind, _, value = modifier.partition(":")
        if modifier != "adjusts" and (kind not in ("lag", "lead") or kind == modifier):
            raise UsageError(f"unknown policy {text!r}: +{modifier} is not one of +adjusts, +lag:T, +lead:T")
        if kind in values:
            raise UsageError(f"policy {text!r} is not valid: it has {kind} twice")
        values[kind] = 1 if kind == "adjusts" else _parse_positive(value, f"the {kind} of policy {text!r}")
    if "adjusts" in values and policy in _WITHOUT_ADJUSTS:
        raise UsageError(f"policy {text!r} is not valid: {_WITHOUT_ADJUSTS[policy]}")
    adjusts = policy.reflects_adjusts or "adjusts" in values
    return replace(policy, reflects_adjusts=adjusts, lag=values.get("lag", 0), lead_max=values.get("lead"))


def _parse_show(name: str, text: str) -> Policy:
    kind, colon, which = name.partition(":")
    if name in _SIMPLE:
        return _SIMPLE[name]
    if kind == str(LEADING_INPUT_ONLY) and colon:
        if which not in _LEADERS:
            raise UsageError(f"unknown policy {text!r}: the leading input is that with {', '.join(_LEADERS)}")
        return Policy(Show.LEADING, leader=_LEADERS[which])
    if kind == Show.QUORUM.value and colon:
        number = _parse_positive(which.removesuffix("%"), f"the quorum of policy {text!r}")
        if not which.endswith("%"):
            return Policy(Show.QUORUM, quorum=number)
        if number > 100:
            raise UsageError(f"policy {text!r} is not valid: there is no more than 100% of the inputs")
        return Policy(Show.QUORUM, quorum_percent=number)
    names = ", ".join(POLICY_NAMES)
    raise UsageError(f"unknown policy {text!r}; it is {names}, each optionally with +adjusts, +lag:T, +lead:T")


@dataclass(frozen=True)
class Closing:
    """How many joined inputs must have delivered stable(+inf) before the output emits it (law 5, docs/laws.md).

    ``needed`` None means all of them (``all``); 1 is ``any``, the paper's listing; k is ``quorum:k``. A number larger
    than that of the inputs means all.
    """

    needed: int | None = None

    def agreed(self, closed: int, joined: int) -> bool:
        """Return whether ``closed`` of ``joined`` inputs are enough."""
        if closed == 0:
            return False
        return closed >= (joined if self.needed is None else min(self.needed, joined))

    def __str__(self) -> str:
        if self.needed is None:
            return "all"
        return "any" if self.needed == 1 else f"quorum:{self.needed}"


def parse_closing(text: str) -> Closing:
    """Return the closing policy ``all``, ``any`` or ``quorum:K``. Raises UsageError for any other text."""
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
