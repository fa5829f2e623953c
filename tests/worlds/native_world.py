"""Plans on both implementations: after every batch they have the same output, errors, state and counters.

Each graph also takes over the state of the other one, and learns the same feedback.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any, Final

import msgpack
from temporal_world import cut, random_stream

from lmerge.core.elements import NEG_INF
from lmerge.temporal.changes import NOTHING_CHANGES, Delta
from lmerge.temporal.columns import ColumnOperator
from lmerge.temporal.graph import OperatorGraph
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.compiling import CompiledPlan, compile_plan
from lmerge.temporal.plan.stream import Stream, source
from lmerge.temporal.values import NAN, Values
from lmerge.wire.schema import Schema, parse_schema

_DAY: Final = (dt.date(2024, 2, 29) - dt.date(1970, 1, 1)).days

SOURCES: Final[dict[str, tuple[Schema, Sequence[Values]]]] = {
    "ints": (parse_schema({"k": "int", "a": "int"}), ((0, 0), (0, 1), (1, 0), (1, -7))),
    "others": (parse_schema({"k": "int", "b": "int?"}), ((0, 5), (1, None), (1, 3))),
    "scalars": (
        parse_schema(
            {"k": "int", "x": "float?", "d": "decimal(2)?", "s": "string?", "t": "timestamp", "n": "date", "y": "bytes"}
        ),
        (
            (0, 0.5, Decimal("1.50"), "x", 0, 0, b""),
            (0, NAN, Decimal("-0.01"), "", -1, _DAY, b"\x00\xff"),
            (0, None, None, None, 7, -1, b"\x00"),
            (1, float("inf"), Decimal("99999999999999999999.00"), "é\x00y", 7, 0, b"abc" * 20),
            (1, -1e300, Decimal("0.00"), "a" * 40, 7, 0, b""),
        ),
    ),
    "nested": (
        parse_schema({"k": "int", "v": "list<int?>", "w?": {"f": "bool", "g?": {"h": "decimal(7)"}}}),
        (
            (0, (), None),
            (0, (1, None), (True, None)),
            (1, (1,), (False, (Decimal("0.0000001"),))),
            (1, (None, 2), (False, (Decimal("0.0000000"),))),
        ),
    ),
}


def stream_of(name: str) -> Stream:
    """Return a source of ``SOURCES`` as a stream."""
    return source(name, SOURCES[name][0])


@dataclass
class Twins:
    """A plan on both implementations. ``natives``: how many steps the native core computes."""

    plan: CompiledPlan
    graphs: list[OperatorGraph] = field(default_factory=list)
    found: list[list[tuple[int, Delta]]] = field(default_factory=lambda: [[], []])

    def __post_init__(self) -> None:
        self.graphs = [self._graph(0), self._graph(1)]

    @property
    def natives(self) -> int:
        return sum(isinstance(step.operator, ColumnOperator) for step in self.graphs[1].steps)

    def step(self, deltas: Sequence[Delta]) -> bool:
        """Let both take a batch of each source, and compare; return whether they go on."""
        for found in self.found:
            found.clear()
        results = [graph.advance(deltas) for graph in self.graphs]
        for ours, theirs in zip(*self.found, strict=True):
            assert shown(ours) == shown(theirs), self._name(ours[0])
        assert shown(results[0]) == shown(results[1])
        failures = [
            {place: (type(error), str(error)) for place, error in graph.failures.items()} for graph in self.graphs
        ]
        assert failures[0] == failures[1]
        if not failures[0]:
            self.compare()
        return not failures[0]

    def compare(self) -> None:
        """Compare what the operators keep and count."""
        for python, native in zip(*(graph.steps for graph in self.graphs), strict=True):
            ours, theirs = python.operator, native.operator
            ours.check()
            theirs.check()
            assert packed(ours) == packed(theirs), ours.name
            assert (ours.live(), ours.skipped, ours.stable) == (theirs.live(), theirs.skipped, theirs.stable), ours.name
            assert (ours.purged, ours.sizes()) == (theirs.purged, theirs.sizes()), ours.name

    def fast_forward(self, output: int, t: int) -> None:
        """Let both learn that a result needs no event that ends before ``t``."""
        needed = [graph.fast_forward(output, t) for graph in self.graphs]
        assert needed[0] == needed[1]
        self.compare()

    def swap_states(self) -> None:
        """Let each go on in a new graph with the state of the other."""
        states = [graph.state() for graph in self.graphs]
        needed = [graph._needed for graph in self.graphs]
        self.graphs = [self._graph(0), self._graph(1)]
        for at, graph in enumerate(self.graphs):
            graph.restore(states[1 - at])
            graph._needed = list(needed[at])

    def _graph(self, at: int) -> OperatorGraph:
        graph = self.plan.graph(("python", "native")[at])
        graph.observer = lambda place, _, delta: self.found[at].append((place, delta))
        return graph

    def _name(self, place: int) -> str:
        return self.plan.steps[place - len(self.plan.sources)].name


def packed(operator: PlanOperator) -> bytes:
    """Return the state of an operator as bytes: NaN is equal to itself there, and 1 is not 1.0."""
    found: bytes = msgpack.packb(operator.state())
    return found


def shown(value: Any) -> str:
    """Return a value as text that is equal for equal values, NaN included, with its types."""
    return repr(value)


def source_steps(random_: Random, rows: Sequence[Sequence[Values]], items: int = 20) -> list[list[Delta]]:
    """Return batches of several sources, one or two sources in a step, with watermarks."""
    left = []
    for of_source in rows:
        marks, latest = [], NEG_INF
        for delta in cut(random_, random_stream(random_, items, of_source), random_.choice((0.1, 0.5, 1.0))):
            before, latest = latest, max([latest, *(change.vs for change in delta.changes)])
            marks.append(delta._replace(mark=latest if latest > before else None))
        left.append(marks[::-1])
    steps = []
    while any(left):
        chosen = [at for at, batches in enumerate(left) if batches and random_.random() < 0.6]
        steps.append(
            [batches.pop() if at in chosen and batches else NOTHING_CHANGES for at, batches in enumerate(left)]
        )
    return steps


def run_twins(random_: Random, plan: CompiledPlan, rows: dict[str, Sequence[Values]], items: int = 20) -> Twins:
    """Run a plan on both over random streams, with feedback and with each other's state; return them."""
    twins = Twins(plan)
    names = [node.label for node in twins.plan.sources]
    has_feedback, swaps = random_.random() < 0.5, random_.random() < 0.5
    for deltas in source_steps(random_, [rows[name] for name in names], items):
        if not twins.step(deltas):
            break
        if has_feedback and random_.random() < 0.2:
            twins.fast_forward(random_.randrange(len(plan.outputs)), random_.randint(-4, 14))
        if swaps and random_.random() < 0.2:
            twins.swap_states()
    return twins


def run_streams(seeds: Iterable[int], *streams: Stream, items: int = 20) -> None:
    """Run the streams of a plan on both for each seed, every step on the native core."""
    rows = {name: values for name, (_, values) in SOURCES.items()}
    plan = compile_plan([stream.node for stream in streams])
    for seed in seeds:
        twins = run_twins(Random(seed), plan, rows, items)
        assert twins.natives == len(twins.plan.steps)
