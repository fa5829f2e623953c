"""The space of tests of a scenario: the factors that are open, their words, and which words cannot be together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, TypeAlias

from lmerge.errors import UsageError
from lmerge.testing.intents.fluent import CLIPS, FORMS, OUTPUTS, IntentScenario
from lmerge.testing.intents.placeholders import Placeholder, PlaceholderKind
from lmerge.testing.intents.trees import IntentNode, in_order
from lmerge.testing.transforming.choices import AGGREGATES, MODULES, OPERATORS, PLACES, WINDOWS, unfit

Misfit: TypeAlias = Callable[[str, str, str, str], "str | None"]
"""Returns why the words of two factors, each by its name and word, cannot be together, or None."""

TREE_PARTS: Final[Mapping[str, Sequence[str]]] = {
    "operator": OPERATORS,
    "place": PLACES,
    "window": WINDOWS,
    "form": FORMS,
    "output": OUTPUTS,
    "clip": CLIPS,
}
"""What is open in an open sub-tree, by the words of each part."""


@dataclass(frozen=True)
class Factor:
    """Something that is chosen. ``name``: in cells; ``label``: for people; ``operator``: whose part it is, if any.

    ``part``: what it is of that operator, such as ``window``. A factor of one word is fixed by the scenario.
    """

    name: str
    label: str
    levels: tuple[str, ...]
    operator: str = ""
    part: str = ""


@dataclass(frozen=True)
class Unfit:
    """Two words that cannot be together, by the names of their factors."""

    one: str
    level: str
    other: str
    other_level: str
    reason: str


@dataclass(frozen=True)
class TestSpace:
    """Factors, and the pairs of words that cannot be together."""

    __test__ = False  # for pytest, which takes classes of this name for tests

    factors: tuple[Factor, ...]
    unfit: tuple[Unfit, ...]

    @property
    def open_factors(self) -> tuple[Factor, ...]:
        """The factors of several words."""
        return tuple(factor for factor in self.factors if len(factor.levels) > 1)


def space_of(scenario: IntentScenario, levels: Mapping[str, Sequence[str]], misfit: Misfit) -> TestSpace:
    """Return the space of a scenario.

    ``levels``: the factors beside those of the tree, such as the facets of data, with their words; a word that the
    scenario has fixed for all streams must be the only one. ``misfit``: which of these cannot be together.

    Raises UsageError for words of one operator that the scenario states, and that cannot be together.
    """
    factors = [*_tree_factors(scenario), *(Factor(name, name, tuple(of)) for name, of in levels.items())]
    return TestSpace(tuple(factors), tuple(_misfits(factors, misfit)))


def _tree_factors(scenario: IntentScenario) -> Iterator[Factor]:
    """Yield the factors of the placeholders of a tree that are choices of words, each once."""
    seen: set[str] = set()
    labels: dict[str, int] = {}
    for at, node in enumerate(_all_nodes(list(scenario.results().values()))):
        for part, value in node.parameters:
            if isinstance(value, Placeholder) and value.name not in seen:
                seen.add(value.name)
                for factor in _factors_of(f"{node.operator}#{at}", node.operator, part, value):
                    labels[factor.label] = labels.get(factor.label, 0) + 1
                    number = labels[factor.label]
                    label = factor.label if number == 1 else f"{factor.label} {number}"
                    yield Factor(factor.name, label, factor.levels, factor.operator, factor.part)
            elif part in ("output", "clip", "form", "window") and value is not None:
                level = _level_of_window(dict(value)) if part == "window" else str(value)
                place = f"{node.operator}#{at}"
                yield Factor(f"{place}.{part}", f"{node.operator} {part}", (level,), place, part)


def _level_of_window(fields: Mapping[str, Any]) -> str:
    """Return the word of windows that the scenario states; their numbers can be open."""
    kind = fields["kind"]
    if kind == "hopping":
        return "tumbling" if fields["size"] == fields["hop"] else "hopping"
    return f"count-{fields['by']}" if kind == "count" else str(kind)


def _all_nodes(roots: Sequence[IntentNode]) -> Iterator[IntentNode]:
    for node in in_order(roots):
        yield node
        if isinstance(node.get("plan"), IntentNode):
            yield from _all_nodes([node.get("plan")])


def _factors_of(place: str, operator: str, part: str, opened: Placeholder) -> Iterator[Factor]:
    if opened.kind is PlaceholderKind.CHOICE:
        yield Factor(opened.name, f"{operator} {part}", opened.choices, place, part)
    elif opened.kind is PlaceholderKind.WINDOW:
        yield Factor(opened.name, f"{operator} window", WINDOWS, place, "window")
    elif opened.kind is PlaceholderKind.MODULE:
        yield Factor(opened.name, f"{operator} module", MODULES, place, "module")
    elif opened.kind is PlaceholderKind.CALLS:
        yield Factor(opened.name, "aggregate", tuple(AGGREGATES), place, "calls")
    elif opened.kind is PlaceholderKind.TREE:
        for name, levels in TREE_PARTS.items():
            yield Factor(f"{opened.name}.{name}", name, tuple(levels), place, name)


def _misfits(factors: Sequence[Factor], misfit: Misfit) -> Iterator[Unfit]:
    for one, other in combinations(factors, 2):
        is_one_operator = bool(one.operator) and one.operator == other.operator
        if not is_one_operator and (one.operator or other.operator):
            continue
        rule, names = (unfit, (one.part, other.part)) if is_one_operator else (misfit, (one.name, other.name))
        for level in one.levels:
            for other_level in other.levels:
                reason = rule(names[0], level, names[1], other_level)
                if reason is not None and is_one_operator and len(one.levels) == len(other.levels) == 1:
                    both = f"{one.label} {level} with {other.label} {other_level}"
                    raise UsageError(f"no tree satisfies {both}: {reason}")
                if reason is not None:
                    yield Unfit(one.name, level, other.name, other_level, reason)
