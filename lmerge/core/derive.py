"""Properties derived from a query plan (IV.G), rule by rule, with the derivation shown to the user.

A plan is a list of operators from the source to the output. Each rule says what an operator does to the properties
of its input; the derivation records every step and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from lmerge.core import properties as props
from lmerge.core.properties import DETERMINISTIC_TIES, INSERT_ONLY, KEY, ORDERED, STRICTLY_ORDERED, Properties, closure
from lmerge.errors import UsageError


class Step(NamedTuple):
    """One operator of a derivation: what holds after it, and the rule that says so."""

    operator: str
    properties: Properties
    because: str


_Rule = Callable[[Properties], tuple[Properties, str]]


def _filter(p: Properties) -> tuple[Properties, str]:
    return p, "dropping events keeps order, keys and kinds"


def _project(p: Properties) -> tuple[Properties, str]:
    kept = p if STRICTLY_ORDERED in p else p - {KEY}
    return kept, "two payloads can become equal, so (Vs, payload) need not be a key"


def _union(p: Properties) -> tuple[Properties, str]:
    return p & {INSERT_ONLY}, "streams interleave as they arrive: no order, and keys can repeat"


def _cleanse(p: Properties) -> tuple[Properties, str]:
    kept = {INSERT_ONLY, ORDERED, DETERMINISTIC_TIES} | (p & {KEY, STRICTLY_ORDERED})
    return frozenset(kept), "IV.G.2: buffers until final and releases in order of Vs and payload"


def _aggregate(p: Properties) -> tuple[Properties, str]:
    if {INSERT_ONLY, ORDERED} <= p:
        return frozenset({INSERT_ONLY, STRICTLY_ORDERED}), "IV.G.3: one event per strictly increasing timestamp"
    return frozenset({KEY}), "over disorder or revisions the aggregate is revised; one value per Vs is a key"


def _top_k(p: Properties) -> tuple[Properties, str]:
    if {INSERT_ONLY, ORDERED} <= p:
        return frozenset({INSERT_ONLY, ORDERED, DETERMINISTIC_TIES}), "IV.G.4: equal timestamps come in rank order"
    return frozenset(), "ranks are revised, and equal payloads can hold several ranks"


def _grouped_aggregate(p: Properties) -> tuple[Properties, str]:
    if {INSERT_ONLY, ORDERED} <= p:
        return frozenset({INSERT_ONLY, ORDERED, KEY}), "IV.G.5: groups of one Vs come in any order; the group is a key"
    return frozenset({KEY}), "IV.G.6: over disorder the aggregate is revised; (Vs, group) is a key"


def _join(p: Properties) -> tuple[Properties, str]:
    return p & {INSERT_ONLY}, "matches come out as either side arrives, and equal pairs can repeat"


def _alter_lifetime(p: Properties) -> tuple[Properties, str]:
    return p, "a fixed change of every end keeps starts, order and keys"


OPERATORS: Final[dict[str, _Rule]] = {
    "filter": _filter,
    "project": _project,
    "union": _union,
    "join": _join,
    "cleanse": _cleanse,
    "aggregate": _aggregate,
    "top-k": _top_k,
    "grouped-aggregate": _grouped_aggregate,
    "alter-lifetime": _alter_lifetime,
}


def derive(source: Iterable[str], plan: Iterable[str]) -> list[Step]:
    """The properties after each operator of ``plan`` on a source that promises ``source``.

    The last step's properties are what the query may promise. Raises UsageError for an unknown operator or property.
    """
    current = closure(props.parse_properties(source))
    steps = [Step("source", current, "as the source promises")]
    for operator in plan:
        if operator not in OPERATORS:
            raise UsageError(f"no rule for operator {operator!r}; there are rules for {', '.join(OPERATORS)}")
        after, because = OPERATORS[operator](current)
        current = closure(after)
        steps.append(Step(operator, current, because))
    return steps


def explain(steps: Iterable[Step]) -> str:
    """The derivation, one line a step, for people."""
    lines = []
    for step in steps:
        words = ", ".join(word for word in props.PROPERTY_WORDS if word in step.properties) or "nothing"
        lines.append(f"{step.operator}: {words} ({step.because})")
    return "\n".join(lines)
