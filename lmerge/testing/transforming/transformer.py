"""From a scenario to concrete trees: the rows of a covering array, each filled from the seed; then random rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Final

from lmerge.errors import UsageError
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.stream import Stream
from lmerge.testing.intents.fluent import EVERY_STREAM, IntentScenario
from lmerge.testing.streams.facets import FACET_LEVELS, FURTHER_LEVELS, Facets, facet_misfit, fitting_levels
from lmerge.testing.transforming.concrete import ConcreteTree, SourceData
from lmerge.testing.transforming.covering import CoverageLedger, covering_rows, random_row
from lmerge.testing.transforming.expanding import Cell
from lmerge.testing.transforming.filling import Filling
from lmerge.testing.transforming.promising import with_promises
from lmerge.testing.transforming.row_operators import ROW_FILLS
from lmerge.testing.transforming.spaces import TestSpace, space_of
from lmerge.testing.transforming.speculation import SHAPES, shaped
from lmerge.testing.transforming.window_operators import WINDOW_FILLS

FILLS: Final = {**ROW_FILLS, **WINDOW_FILLS}
SPECULATION: Final = "speculation"
"""The word of data that puts operators above the sources."""
RUN_LEVELS: Final[Mapping[str, Sequence[str]]] = {"implementation": ("python", "native"), "target": ("json", "python")}
"""How a tree runs, by the words of each choice."""


@dataclass
class Transformer:
    """Makes the concrete trees of one scenario.

    ``strength``: 2 for every pair of words, 3 for every triple. ``run_levels``: how the system under test can run, by
    the words of each choice. ``ledger`` counts what ``judged`` trees have covered.
    """

    scenario: IntentScenario
    seed: int = 0
    strength: int = 2
    run_levels: Mapping[str, Sequence[str]] = field(default_factory=lambda: RUN_LEVELS)

    def __post_init__(self) -> None:
        self.space: TestSpace = space_of(self.scenario, self._levels(), facet_misfit)
        self.ledger = CoverageLedger(self.space, self.strength)

    def trees(self, most: int | None = None) -> Iterator[ConcreteTree]:
        """Yield the trees of the covering array, then random ones without an end, or ``most`` in all.

        Raises UsageError for an intent that no tree satisfies.
        """
        rows = covering_rows(self.space, self.strength, self.seed)
        for number in count() if most is None else range(most):
            random = Random(f"{self.scenario.name}/{self.seed}/{number}")
            cell = rows[number] if number < len(rows) else random_row(self.space, random)
            yield self.tree(cell, number)

    def covering_trees(self) -> list[ConcreteTree]:
        """Return the trees of the covering array."""
        rows = covering_rows(self.space, self.strength, self.seed)
        return [self.tree(cell, number) for number, cell in enumerate(rows)]

    def tree(self, cell: Cell, number: int) -> ConcreteTree:
        """Return the tree of a cell. ``number``: of the row, from which all else is drawn."""
        random = Random(f"{self.scenario.name}/{self.seed}/{number}/tree")
        facets = {name: level for name, level in cell.items() if name in FACET_LEVELS}
        shape = cell[SPECULATION]

        def over_source(stream: Stream, draw: Random) -> Stream:
            return shaped(shape, stream, draw)

        filling = Filling(
            self.scenario,
            cell,
            random,
            is_extreme=facets.get("values") == "extreme",
            over_source=over_source,
            fills=FILLS,
        )
        outputs = {name: stream.node for name, stream in filling.outputs().items()}
        run = {name: cell[name] for name in self.run_levels}
        data = self._data(outputs, facets, number)
        promising = with_promises(outputs, data, random)
        return ConcreteTree(self.scenario.name, promising, data, run, self.seed, number, dict(cell))

    def _data(self, outputs: Mapping[str, PlanNode], facets: Mapping[str, str], number: int) -> dict[str, SourceData]:
        tree = ConcreteTree(self.scenario.name, outputs, {}, {})
        found = {}
        for at, source in enumerate(tree.sources):
            own = {name: value for name, value in self._stated(source).items() if name != SPECULATION}
            fitting = fitting_levels(own)
            drawn = {
                name: level if level in fitting.get(name, (level,)) else fitting[name][0]
                for name, level in facets.items()
            }
            made = Facets.from_json({**drawn, **own})
            found[source] = SourceData(made.to_json(), (self.seed * 1_000_003 + number) * 16 + at)
        return found

    def _stated(self, source: str) -> dict[str, Any]:
        """Return what the scenario states of the data of a source."""
        return {**self.scenario.facets.get(EVERY_STREAM, {}), **self.scenario.facets.get(source, {})}

    def _levels(self) -> dict[str, Sequence[str]]:
        """Return the factors beside the tree. What the scenario states for all streams is fixed."""
        stated = self.scenario.facets.get(EVERY_STREAM, {})
        found: dict[str, Sequence[str]] = {**FACET_LEVELS, SPECULATION: SHAPES, **self.run_levels}
        found.update(fitting_levels(stated))
        for name, value in stated.items():
            if name == SPECULATION:
                found[name] = (_shape_of(value),)
            elif isinstance(value, str) and name in FACET_LEVELS:
                levels = (*FACET_LEVELS[name], *FURTHER_LEVELS.get(name, ()))
                if value not in levels:
                    raise UsageError(f"{name} is {value!r:.64}; it is one of {', '.join(levels)}")
                found[name] = (value,)
            elif name in FACET_LEVELS:
                found.pop(name)
        return found


def _shape_of(value: Any) -> str:
    """Return a word of ``SHAPES``; True and False stand for speculative data and for none."""
    if isinstance(value, bool):
        return "speculative" if value else "none"
    if value not in SHAPES:
        raise UsageError(f"speculation is {value!r:.64}; it is true, false or one of {', '.join(SHAPES)}")
    return str(value)


def transform(
    scenario: IntentScenario, seed: int = 0, strength: int = 2, most: int | None = None
) -> Iterator[ConcreteTree]:
    """Yield the concrete trees of a scenario (``Transformer.trees``): equal seeds, equal trees."""
    return Transformer(scenario, seed, strength).trees(most)
