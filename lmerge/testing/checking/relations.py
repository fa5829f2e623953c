"""Relations that need no oracle: how the results of two runs of a query must belong together, whatever it computes.

A relation changes the inputs, or the query, or how it runs, and states what the result must be then. A user lists those
that hold for a query; one that cannot hold is refused with the reason. Others register under
``lmerge.testing.relations``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from random import Random
from typing import Final

from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Insert, Stable, show_time
from lmerge.core.tdb import Tdb
from lmerge.errors import LmergeError
from lmerge.temporal.expressions.surface import Expression, lit
from lmerge.temporal.expressions.tree import ColumnReference
from lmerge.temporal.plan.stream import Stream
from lmerge.temporal.plan.windows import WindowNode
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.windows.kinds import Hopping
from lmerge.testing.checking.engine_relations import OF_ENGINE
from lmerge.testing.checking.related import CannotHold, RelatedRun, Relation, every_node
from lmerge.testing.decided import Events
from lmerge.testing.judging.verdict import RowDifference, differing
from lmerge.testing.registry import PartRegistry
from lmerge.testing.streams.batches import InputBatch
from lmerge.testing.streams.facets import FACET_LEVELS, Facets
from lmerge.testing.streams.generator import table
from lmerge.testing.systems.engine import EngineSystem
from lmerge.testing.systems.inputs import TreeInputs, forms_of, moved, times_of
from lmerge.testing.systems.system import TIMEOUT_S, System, SystemFailure
from lmerge.testing.transforming.concrete import ConcreteTree, SourceData

ROUNDS: Final = 10
_ARRIVALS: Final = ("disorder", "revisions", "batching", "interleaving")


# Other streams of the same tables.


def _arriving(name: str) -> Relation:
    def relation(related: RelatedRun) -> Iterator[tuple[Events, Events]]:
        _check_ends(related)
        for level in FACET_LEVELS[name]:
            if level != "open":
                facets = Facets.from_json({name: level})
                yield related.expected, related.run(related.tree, related.presented(facets))

    return relation


def _check_ends(related: RelatedRun) -> None:
    """Raise CannotHold for a grid over events without an end: where its windows stop depends on the stream (D13)."""
    hopping = _grids(related.tree)
    if hopping and any(event.ve == INF for events in related.events.values() for event in events):
        raise CannotHold("events without an end have windows on a grid for ever: where they stop depends on the stream")


def _grids(tree: ConcreteTree) -> list[Hopping]:
    found = []
    for node in every_node(list(tree.outputs.values())):
        if isinstance(node, WindowNode) and isinstance(node.window, Hopping):
            found.append(node.window)
    return found


# Other times.


def _shifted(related: RelatedRun) -> Iterator[tuple[Events, Events]]:
    """Shift all times by a multiple of every hop: the result is shifted as well."""
    hops = [window.hop for window in _grids(related.tree)]
    step = lcm(*hops) if hops else 1
    if step > 2**40:
        raise CannotHold(f"the hops {', '.join(map(str, hops))} have no common multiple that times can be shifted by")
    amount = step * (1 + related.random.randrange(5))
    times = {t for batch in related.inputs.batches for one in batch.elements for t in times_of(one)}
    shift = {t: t + amount for t in times if NEG_INF < t < INF}
    found = related.run(related.tree, moved(related.inputs, shift))
    expected: Events = Counter()
    for (payload, vs, ve), count in related.expected.items():
        expected[payload, _later(vs, amount), _later(ve, amount)] += count
    yield expected, found


def _later(t: int, amount: int) -> int:
    return t + amount if NEG_INF < t < INF else t


# Parts of the whole.


def _split(related: RelatedRun) -> Iterator[tuple[Events, Events]]:
    """Split the sources by the key, and unite the results of the parts."""
    if not related.key:
        raise CannotHold("a split by key needs the column that is the key (key=)")
    found: Events = Counter()
    forms = forms_of(related.tree.sources)
    places = {}
    for name, node in related.tree.sources.items():
        if related.key not in node.columns.names:
            raise CannotHold(f"source {name!r:.64} has no column {related.key!r:.64}, so it cannot be split by it")
        places[name] = node.columns.names.index(related.key)

    def part_of(name: str, element: Element) -> int | None:
        if not isinstance(element, (Insert, Adjust)):
            return None
        return sum(repr(forms[name].of_payload(element.payload)[places[name]]).encode()) % 2

    for part in (0, 1):
        batches = [
            InputBatch(batch.name, [one for one in batch.elements if part_of(batch.name, one) in (None, part)])
            for batch in related.inputs.batches
        ]
        found += related.run(related.tree, TreeInputs([batch for batch in batches if batch.elements]))
    yield related.expected, found


def _ternary(related: RelatedRun) -> Iterator[tuple[Events, Events]]:
    """Unite the results for which a predicate is true, false and missing: that is the whole."""
    ((name, node),) = related.tree.outputs.items()
    forms = RowForms(node.schema)
    rows = [forms.of_payload(payload) for payload, _, _ in sorted(related.expected)]
    for at, column in enumerate(node.schema.columns):
        values = [row[at] for row in rows if isinstance(row[at], (int, str)) and not isinstance(row[at], bool)]
        if column.type not in ("int", "string") or not values:
            continue
        holds = Expression(ColumnReference(column.name)) <= values[related.random.randrange(len(values))]
        found: Events = Counter()
        for predicate in (holds, ~holds, holds.is_null()):
            tree = replace(related.tree, outputs={name: Stream(node).where(predicate).node})
            found += related.run(tree, related.inputs)
        yield related.expected, found
        return
    if not any(column.type in ("int", "string") for column in node.schema.columns):
        raise CannotHold("the result has no column of numbers or texts that a predicate compares")


def _with_nothing(related: RelatedRun) -> Iterator[tuple[Events, Events]]:
    """Unite the result with a stream that has no event: that is the result."""
    ((name, node),) = related.tree.outputs.items()
    nothing = Stream(node).where(lit(False))
    tree = replace(related.tree, outputs={name: Stream(node).union(nothing).node})
    yield related.expected, related.run(tree, related.inputs)


# Parts of a run: for the engine.


RELATIONS: Final[PartRegistry[Relation]] = PartRegistry(
    "lmerge.testing.relations",
    "relation",
    {
        **{f"other-{name}": _arriving(name) for name in _ARRIVALS},
        "other-liveliness": _arriving("liveliness"),
        "time-shift": _shifted,
        "split-by-key": _split,
        "ternary": _ternary,
        "with-nothing": _with_nothing,
        **OF_ENGINE,
    },
)


@dataclass(frozen=True)
class RelationVerdict:
    """The verdict over one relation. ``refused``: why it cannot hold; ``problem``: what differs, if it does."""

    name: str
    rounds: int
    problem: str = ""
    refused: str = ""
    differences: Sequence[RowDifference] = ()
    inputs: TreeInputs | None = None

    @property
    def is_bad(self) -> bool:
        """Whether the relation does not hold."""
        return bool(self.problem)

    def __str__(self) -> str:
        if self.refused:
            return f"{self.name}: refused: {self.refused}"
        lines = [f"{self.name}: {self.problem or f'holds in {self.rounds} rounds'}"]
        return "\n".join([*lines, *(f"  {one}" for one in self.differences)])


def check_relations(
    query: Stream,
    relations: Sequence[str],
    *,
    system: System | None = None,
    data: Mapping[str, object] | None = None,
    key: str = "",
    rounds: int = ROUNDS,
    seed: int = 0,
    timeout_s: float = TIMEOUT_S,
) -> list[RelationVerdict]:
    """Check relations that a query is said to have; return a verdict for each.

    ``query``: a plan; with a ``system`` that computes it elsewhere, only its sources and columns count. ``data``:
    facets that the tables of the sources have. ``key``: the column of ``split-by-key``.

    Raises UsageError for a relation that there is not.
    """
    chosen = [(name, RELATIONS.find(name)) for name in relations]
    tree = ConcreteTree("relations", {"result": query.node}, {}, {"implementation": "auto", "target": "json"})
    tree = replace(tree, data={name: SourceData({}, 0) for name in tree.sources})
    found = []
    for name, relation in chosen:
        checking = _Checking(tree, system or EngineSystem(), dict(data or {}), key, timeout_s)
        found.append(checking.verdict(name, relation, rounds, seed))
    return found


def check_tree(
    tree: ConcreteTree, inputs: TreeInputs, relations: Sequence[str] = tuple(OF_ENGINE)
) -> list[RelationVerdict]:
    """Check relations of one tree over its inputs on the engine; without an end of each input there are none.

    ``relations``: by default those of how the engine runs, which hold for every tree.
    """
    if len(tree.outputs) != 1 or not all(Stable(INF) in inputs.elements(name) for name in tree.sources):
        return []
    (node,) = tree.outputs.values()
    named = replace(tree, outputs={"result": node}, run={**tree.run, "target": "json"})
    checking = _Checking(named, EngineSystem(), {}, "", TIMEOUT_S)
    try:
        expected = checking.run(named, inputs)
    except SystemFailure as failure:
        return [RelationVerdict(name, 0, str(failure), inputs=inputs) for name in relations]
    found = []
    for name in relations:
        random = Random(f"relation {name} {tree.seed} {tree.row}")
        related = RelatedRun(named, random, {}, inputs, expected, checking.run)
        found.append(checking.judged(name, RELATIONS.find(name), related))
    return found


@dataclass(frozen=True)
class _Checking:
    tree: ConcreteTree
    system: System
    data: dict[str, object]
    key: str
    timeout_s: float

    def verdict(self, name: str, relation: Relation, rounds: int, seed: int) -> RelationVerdict:
        """Return the verdict over a relation, with the first round in which it does not hold."""
        for number in range(1, rounds + 1):
            random = Random(f"relation {name} {seed} {number}")
            try:
                related = self._related(random)
            except (SystemFailure, LmergeError) as problem:
                return RelationVerdict(name, number, f"in round {number} {problem}")
            found = self.judged(name, relation, related, number)
            if found.is_bad or found.refused:
                return found
        return RelationVerdict(name, rounds)

    def judged(self, name: str, relation: Relation, related: RelatedRun, number: int = 0) -> RelationVerdict:
        """Return the verdict over a relation in one round, which has a number if there are several."""
        where = f"in round {number} " if number else ""
        forms = RowForms(self.tree.outputs["result"].schema)
        try:
            for expected, came in relation(related):
                if expected != came:
                    differences, count = differing(expected, came, INF, forms)
                    problem = f"{where}{count} events differ"
                    return RelationVerdict(name, number, problem, "", differences, related.inputs)
        except CannotHold as reason:
            return RelationVerdict(name, number, "", str(reason))
        except (SystemFailure, LmergeError) as failure:
            return RelationVerdict(name, number, f"{where}{failure}", inputs=related.inputs)
        return RelationVerdict(name, number)

    def _related(self, random: Random) -> RelatedRun:
        facets = Facets.from_json({"duration": "short", "contact": "back-to-back", **self.data})
        seed = random.randrange(2**31)
        events = {
            name: table(facets, node.columns, seed + at) for at, (name, node) in enumerate(self.tree.sources.items())
        }
        first = RelatedRun(self.tree, random, events, TreeInputs([]), Counter(), self.run, self.key)
        inputs = first.presented(facets)
        return replace(first, inputs=inputs, expected=self.run(self.tree, inputs))

    def run(self, tree: ConcreteTree, inputs: TreeInputs) -> Events:
        """Return the table of the result. Raises SystemFailure for one that is no legal stream, or has no end."""
        batches = self.system.run(tree, inputs, self.timeout_s).outputs["result"]
        final = Tdb("result")
        try:
            for batch in batches:
                for element in batch.elements:
                    final.apply(element)
        except LmergeError as problem:
            raise SystemFailure(f"its output is no legal stream: {problem}") from None
        if final.stable_point < INF:
            raise SystemFailure(f"its sources have ended, and it is at stable({show_time(final.stable_point)})")
        return Counter((event.payload, event.vs, event.ve) for event in final.events())
