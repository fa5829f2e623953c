"""Fills an intent: every placeholder gets a value that fits its place, and the tree becomes a plan.

What a placeholder may be is decided where it stands, with the columns of the streams there, so that the plan is one
that the engine's own checks accept. What does not fit is drawn again; an intent that nothing fits is an error that
names the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from random import Random
from typing import Any, Final

from lmerge.errors import LmergeError, UsageError
from lmerge.temporal.expressions.surface import Expression
from lmerge.temporal.expressions.tree import ColumnReference, Node
from lmerge.temporal.plan.grouped import grouping_keys
from lmerge.temporal.plan.stream import Stream, source
from lmerge.testing.intents.fluent import IntentScenario
from lmerge.testing.intents.placeholders import Placeholder, PlaceholderKind, filled, open_names
from lmerge.testing.intents.trees import IntentNode, in_order
from lmerge.testing.transforming.choices import SCHEMA_POOL
from lmerge.testing.transforming.expanding import Cell
from lmerge.testing.transforming.expressions import COMPARABLE, TYPES, ExpressionDraw
from lmerge.wire.schema import Schema

ATTEMPTS_MAX: Final = 40
SIZE_MAX: Final = 9
"""Of windows and durations that are open, in units of time: of the order of the distances of generated events."""
COLUMNS_MAX: Final = 6
FIRST_KEY: Final = 0.5


@dataclass
class Filling:
    """Fills the placeholders of a scenario once. ``cell``: the words of the open choices, by placeholder and part.

    ``over_source``: what is put above each source, such as ``speculation.speculative``.
    """

    scenario: IntentScenario
    cell: Cell
    random: Random
    is_extreme: bool = False
    over_source: Callable[[Stream, Random], Stream] | None = None
    narrows: bool = False
    fills: Mapping[str, Fill] = field(default_factory=dict)
    streams: dict[int, Stream] = field(default_factory=dict)
    chosen: dict[str, Any] = field(default_factory=dict)

    def outputs(self) -> dict[str, Stream]:
        """Return the results as plans. Raises UsageError for an intent that no tree satisfies."""
        return {name: self.stream(root) for name, root in self.scenario.results().items()}

    def stream(self, node: IntentNode) -> Stream:
        """Return the plan of a node and all below it. Raises UsageError if nothing fits."""
        found = self.streams.get(id(node))
        if found is None:
            if node.operator == "group":
                raise UsageError("the stream of a group is read outside of the sub-tree of groups")
            reads = [self.stream(read) for read in node.reads]
            found = self.streams[id(node)] = self._fitting(node, reads)
        return found

    def _fitting(self, node: IntentNode, reads: Sequence[Stream]) -> Stream:
        """Return the stream of a node, drawn until its parts fit each other."""
        fill = self._source if node.operator == "stream" else partial(self.fills[node.operator], self)
        problem = ""
        for _ in range(ATTEMPTS_MAX):
            before = dict(self.chosen)
            try:
                made = fill(node, reads)
                return _narrowed(self.random, made) if self.narrows else made
            except LmergeError as misfit:
                problem = str(misfit)
            self.chosen = before
        raise UsageError(f"scenario {self.scenario.name!r:.64}: no tree satisfies {node.operator}: {problem}")

    # Sources.

    def _source(self, node: IntentNode, reads: Sequence[Stream]) -> Stream:
        made = source(node.value("name"), self._schema(node))
        return made if self.over_source is None else self.over_source(made, self.random)

    def _schema(self, node: IntentNode) -> Mapping[str, object]:
        given = node.value("schema")
        if not isinstance(given, Placeholder):
            return dict(given)
        name = self._shared.get(given.name, given.name)
        if name not in self.chosen:
            columns: dict[str, object] = {"k": self.random.choice(("int", "string"))}
            names = list(SCHEMA_POOL)
            for _ in range(self.random.randint(1, 3)):
                column = names.pop(self.random.randrange(len(names)))
                columns[column] = SCHEMA_POOL[column]
            self.chosen[name] = columns
        found: Mapping[str, object] = self.chosen[name]
        return found

    @cached_property
    def _shared(self) -> dict[str, str]:
        """The open schemas of sources that a union reads are one: by the name of each, the first one."""
        found: dict[str, str] = {}
        for node in in_order(list(self.scenario.results().values())):
            if node.operator == "union":
                opened = [read.get("schema") for read in node.reads]
                names = [one.name for one in opened if isinstance(one, Placeholder)]
                found |= {name: found.get(names[0], names[0]) for name in names[1:]}
        return found

    # Choices.

    def value(self, given: Any, default: Any, draw: Callable[[], Any]) -> Any:
        """Return a closed value, or what has been or is now chosen for a placeholder."""
        if given is None:
            return default
        if not isinstance(given, Placeholder):
            return given
        if given.name not in self.chosen:
            self.chosen[given.name] = draw()
        return self.chosen[given.name]

    def number(self, given: Any, default: int | None = None, least: int = 1, most: int = SIZE_MAX) -> int | None:
        if isinstance(given, Placeholder):
            least = least if given.least is None else given.least
            most = max(most, least) if given.most is None else given.most
        found: int | None = self.value(given, default, lambda: self.random.randint(least, most))
        return found

    def level(self, given: Any, default: str, choices: Sequence[str]) -> str:
        def draw() -> str:
            allowed = given.choices or choices
            level = self.cell.get(given.name)
            return level if level is not None else self.random.choice(allowed)

        found: str = self.value(given, default, draw)
        return found

    def keys(self, given: Any, schema: Schema, types: Sequence[str] = COMPARABLE) -> tuple[tuple[str, Node], ...]:
        """Return columns by their names; for a placeholder one or two, or one that is computed."""

        def draw() -> tuple[tuple[str, Expression], ...]:
            names = [column.name for column in schema.columns if column.type in types]
            if not names:
                return ()
            if self.random.random() < FIRST_KEY:  # the column whose values are the keys of the generator
                return ((names[0], Expression(ColumnReference(names[0]))),)
            picked = self.random.sample(names, min(len(names), self.random.choice((1, 1, 2))))
            if self.random.random() < 0.15:
                return ((free_name("key", schema), self.drawing(schema).expression("int")),)
            return tuple((name, Expression(ColumnReference(name))) for name in picked)

        found = self.value(given, (), draw)
        return grouping_keys([], {name: self.expression(value, schema) for name, value in found})

    def drawing(self, schema: Schema) -> ExpressionDraw:
        return ExpressionDraw(self.random, schema, self.is_extreme)

    def expression(self, given: Expression, schema: Schema, of_type: str = "") -> Expression:
        """Return an expression over ``schema`` without placeholders. ``of_type``: what it must be; empty for any."""
        names = list(dict.fromkeys(open_names(given)))
        drawing = self.drawing(schema)
        for attempt in range(ATTEMPTS_MAX):
            chosen = dict(self.chosen)
            common = self.random.choice([column.type for column in schema.columns if column.type in TYPES] or ["int"])
            is_bare = isinstance(given.node, ColumnReference)
            for name in names:
                if name not in chosen:
                    needed = of_type if is_bare and of_type else common if attempt < 10 else self.random.choice(TYPES)
                    chosen[name] = self._opened(self.scenario.placeholders[name], drawing, needed)
            nodes = {name: chosen[name].node for name in names if isinstance(chosen[name], Expression)}
            made = Expression(filled(given.node, nodes))
            try:
                found = drawing.type_of(made)
            except LmergeError as problem:
                if not names:
                    raise UsageError(str(problem)) from None
                continue
            if not of_type or found.type == of_type:
                self.chosen = chosen
                return made
        raise NoFit(f"no expression of {of_type or 'a type'} is {given} over {', '.join(schema.names)}")

    def _opened(self, placeholder: Placeholder, drawing: ExpressionDraw, needed: str) -> Expression:
        if placeholder.kind is PlaceholderKind.COLUMN:
            names = drawing.columns(*([placeholder.type] if placeholder.type else TYPES))
            if not names:
                raise NoFit(f"there is no column of {placeholder.type or 'a simple type'}")
            return Expression(ColumnReference(self.random.choice(names)))
        return drawing.expression(placeholder.type or needed)


class NoFit(UsageError):
    """What was drawn does not fit; other draws may."""


Fill = Callable[[Filling, IntentNode, Sequence[Stream]], Stream]
"""Makes the stream of a node over the streams that it reads. Raises an error for a draw that does not fit."""


def has_type(schema: Schema, of_type: str) -> bool:
    """Return whether a column has a type."""
    return any(column.type == of_type for column in schema.columns)


def free_name(name: str, schema: Schema) -> str:
    """Return a name that no column has."""
    found, number = name, 2
    while found in schema.names:
        found, number = f"{name}_{number}", number + 1
    return found


def _narrowed(random: Random, stream: Stream) -> Stream:
    """Return a stream of a bounded number of columns: joins of joins would double them each time."""
    names = stream.schema.names
    if len(names) <= COLUMNS_MAX:
        return stream
    kept = set(random.sample(list(names), COLUMNS_MAX - 2))
    return stream.select(*(name for name in names if name in kept))
