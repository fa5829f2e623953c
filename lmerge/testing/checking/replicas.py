"""Whether replicas can stand in for each other: plans and systems over one table in different physical streams.

Each round has a table of each source; each replica gets it in another order, with other revisions and stables. The
outputs must be legal streams of one table: what a stable point freezes can never be put right. Then they are merged, in
interleavings that are drawn, with inputs killed at points that are drawn, and the merge is checked after every step
(``lmerge.testing.oracle``). Rounds begin with few events, so what is found first is small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from lmerge.core.elements import INF, Element, Event, show_time
from lmerge.core.properties import NOTHING
from lmerge.core.tdb import Tdb
from lmerge.errors import LmergeError, UsageError
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.stream import Stream
from lmerge.temporal.row_forms import RowForms
from lmerge.testing.decided import Events
from lmerge.testing.evidence.timeline import DrawnEvent, timeline
from lmerge.testing.judging.verdict import RowDifference, differing
from lmerge.testing.merges.replicas import WrongMerge, drawn_kills, merged, promised_by_all, shown_kills
from lmerge.testing.streams.batches import batched
from lmerge.testing.streams.facets import FACET_LEVELS, Facets
from lmerge.testing.streams.generator import presented, table
from lmerge.testing.systems.engine import EngineSystem
from lmerge.testing.systems.inputs import TreeInputs
from lmerge.testing.systems.system import TIMEOUT_S, EmittedBatch, System, SystemFailure
from lmerge.testing.transforming.concrete import ConcreteTree, SourceData

ROUNDS: Final = 20
MERGES: Final = 6
EVENTS_FIRST, EVENTS_LAST = 2, 24
ARRIVAL: Final = ("disorder", "liveliness", "revisions", "batching", "interleaving")
"""The facets in which the streams of one table differ."""
CLOSED: Final = tuple(level for level in FACET_LEVELS["liveliness"] if level != "open")
ATTEMPTS_MAX: Final = 200


@dataclass(frozen=True)
class ReplicaFinding:
    """What is wrong with a replica, or with the merge of all (``replica`` empty). ``round``: its number.

    ``inputs``: what each replica got; ``outputs``: what it gave.
    """

    replica: str
    problem: str
    round: int
    differences: Sequence[RowDifference] = ()
    inputs: Mapping[str, TreeInputs] | None = None
    outputs: Mapping[str, Sequence[Element]] | None = None
    stable: int = INF

    def __str__(self) -> str:
        who = f"replica {self.replica!r}" if self.replica else "the merge of all"
        lines = [f"round {self.round}, {who}: {self.problem}", *(f"  {one}" for one in self.differences)]
        if self.differences:
            marks = [
                DrawnEvent("+" if one.found > one.expected else "-", one.row, one.vs, one.ve)
                for one in self.differences
            ]
            lines.append(timeline(marks, None if self.stable == INF else self.stable))
        return "\n".join(lines)


@dataclass(frozen=True)
class ReplicasVerdict:
    """The verdict over replicas. ``rounds``, ``merges``: how many were judged; ``findings``: what is wrong, if any."""

    names: Sequence[str]
    rounds: int
    merges: int
    findings: Sequence[ReplicaFinding] = ()

    @property
    def is_bad(self) -> bool:
        """Whether something is wrong."""
        return bool(self.findings)

    def __str__(self) -> str:
        counts = f"{', '.join(self.names)}: {self.rounds} rounds, {self.merges} merges"
        return "\n".join([f"{counts}: {'different' if self.is_bad else 'one table'}", *map(str, self.findings)])


def check_replicas(
    replicas: Mapping[str, Stream | System],
    *,
    data: Mapping[str, object] | None = None,
    rounds: int = ROUNDS,
    merges: int = MERGES,
    seed: int = 0,
    timeout_s: float = TIMEOUT_S,
) -> ReplicasVerdict:
    """Check that replicas mean one table, and merge to it. Stops at the first round that finds something.

    ``replicas``: by name plans, or systems that compute the same query; the first plan has the sources and the columns
    of the result. ``data``: facets that all tables have, such as ``{"keys": "zipf"}``.

    Raises UsageError for fewer than two replicas, none of which is a plan, or plans of other sources or columns.
    """
    trees = _trees(replicas)
    count = 0
    for number in range(1, rounds + 1):
        checking = _Round(trees, replicas, Random(f"replicas {seed} {number}"), number, dict(data or {}), timeout_s)
        events = EVENTS_FIRST + (EVENTS_LAST - EVENTS_FIRST) * (number - 1) // max(1, rounds - 1)
        findings = list(checking.findings(events))
        if not findings:
            for _ in range(merges):
                count += 1
                findings = list(checking.merged())
                if findings:
                    break
        if findings:
            return ReplicasVerdict(list(replicas), number, count, findings)
    return ReplicasVerdict(list(replicas), rounds, count)


def _trees(replicas: Mapping[str, Stream | System]) -> dict[str, ConcreteTree]:
    """Return what each replica runs: its own plan, or the first one."""
    if len(replicas) < 2:
        raise UsageError(f"{len(replicas)} replica; two or more can stand in for each other")
    plans: dict[str, PlanNode] = {name: one.node for name, one in replicas.items() if isinstance(one, Stream)}
    if not plans:
        raise UsageError("none of the replicas is a plan, which has the sources and the columns of the result")
    first_name, first = next(iter(plans.items()))
    found = {}
    for name in replicas:
        node = plans.get(name, first)
        tree = ConcreteTree("replicas", {"result": node}, {}, {"implementation": "auto", "target": "json"})
        found[name] = replace(tree, data={source: SourceData({}, 0) for source in tree.sources})
        if node.schema != first.schema:
            raise UsageError(
                f"replica {name!r:.64} has the columns ({node.schema}), {first_name!r:.64} ({first.schema})"
            )
    needed = {name: node.columns for name, node in found[first_name].sources.items()}
    for name, tree in found.items():
        own = {source: node.columns for source, node in tree.sources.items()}
        if own != needed:
            shown = ", ".join(own)
            raise UsageError(f"replica {name!r:.64} reads {shown}, and {first_name!r:.64} {', '.join(needed)}")
    return found


class _Round:
    """One round: a table of each source, a stream of it for each replica, and what the replicas make of them."""

    def __init__(
        self,
        trees: Mapping[str, ConcreteTree],
        replicas: Mapping[str, Stream | System],
        random: Random,
        number: int,
        data: Mapping[str, object],
        timeout_s: float,
    ) -> None:
        self._trees, self._replicas, self._random, self._number = trees, replicas, random, number
        self._data, self._timeout_s = data, timeout_s
        self._outputs: dict[str, list[Element]] = {}
        self._inputs: dict[str, TreeInputs] = {}
        self._expected: Events = Counter()
        is_planned = all(isinstance(one, Stream) for one in replicas.values())
        self._promises = promised_by_all(tree.outputs["result"] for tree in trees.values()) if is_planned else NOTHING
        self._forms = RowForms(next(iter(trees.values())).outputs["result"].schema)

    def findings(self, events: int) -> Iterator[ReplicaFinding]:
        """Run every replica; yield what is wrong with each."""
        tables = self._tables(events)
        for name in self._replicas:
            try:
                self._outputs[name] = self._output(name, tables)
            except SystemFailure as problem:
                yield self._finding(name, str(problem))
        if len(self._outputs) < len(self._replicas):
            return
        finals = {}
        for name, elements in self._outputs.items():
            final = Tdb(name)
            try:
                for element in elements:
                    final.apply(element)
            except LmergeError as problem:
                yield self._finding(name, f"its output is no legal stream: {problem}")
                continue
            if final.stable_point < INF:
                yield self._finding(
                    name, f"its sources have ended, and it is at stable({show_time(final.stable_point)})"
                )
            finals[name] = Counter((event.payload, event.vs, event.ve) for event in final.events())
        if len(finals) == len(self._outputs):
            yield from self._compared(finals)

    def _compared(self, finals: Mapping[str, Events]) -> Iterator[ReplicaFinding]:
        """Yield the replicas whose table is not that of most, and the stables that froze what is wrong."""
        tables = [frozenset(one.items()) for one in finals.values()]
        most = max(tables, key=tables.count)
        self._expected = next(one for one in finals.values() if frozenset(one.items()) == most)
        for name, final in finals.items():
            if final != self._expected:
                differences, count = differing(self._expected, final, INF, self._forms)
                yield self._finding(name, f"its table differs in {count} events", differences)

    def merged(self) -> Iterator[ReplicaFinding]:
        """Merge the outputs in an order that is drawn, with inputs killed; yield what the oracle finds."""
        killed = drawn_kills(self._random, {name: len(elements) for name, elements in self._outputs.items()})
        try:
            found = merged(self._random, self._outputs, killed, self._promises)
        except WrongMerge as problem:
            yield self._finding(problem.replica, str(problem))
            return
        table = Counter((event.payload, event.vs, event.ve) for event in found.events)
        if table != self._expected:
            differences, count = differing(self._expected, table, INF, self._forms)
            yield self._finding("", f"its table differs in {count} events (killed: {shown_kills(killed)})", differences)

    def _finding(self, replica: str, problem: str, differences: Sequence[RowDifference] = ()) -> ReplicaFinding:
        return ReplicaFinding(replica, problem, self._number, differences, self._inputs, self._outputs)

    # What replicas get.

    def _tables(self, events: int) -> dict[str, list[Event]]:
        """Return the events of each source."""
        facets = self._drawn({"events": events}, [name for name in FACET_LEVELS if name not in ARRIVAL])
        sources = next(iter(self._trees.values())).sources
        seeds = {name: self._random.randrange(2**31) for name in sources}
        return {name: table(facets, node.columns, seeds[name]) for name, node in sources.items()}

    def _drawn(self, given: Mapping[str, object], names: Sequence[str]) -> Facets:
        """Return facets with levels that are drawn and fit each other. What the caller states is kept."""
        stated = {**given, **self._data}
        for _ in range(ATTEMPTS_MAX):
            drawn: dict[str, object] = {}
            for name in names:
                levels = CLOSED if name == "liveliness" else FACET_LEVELS[name]
                drawn[name] = levels[self._random.randrange(len(levels))]
            if "values" in drawn and self._random.random() < 0.8:
                drawn["values"] = "plain"
            try:
                return Facets.from_json({**drawn, **stated})
            except UsageError:
                continue
        return Facets.from_json(stated)

    def _output(self, name: str, tables: Mapping[str, Sequence[Event]]) -> list[Element]:
        """Run a replica over a stream of its own of each table. Raises SystemFailure."""
        tree = self._trees[name]
        facets = self._drawn({}, ARRIVAL)
        seed = self._random.randrange(2**31)
        streams = {
            source: presented(tables[source], facets, node.columns, seed + at)
            for at, (source, node) in enumerate(tree.sources.items())
        }
        inputs = TreeInputs(batched(self._random, streams, facets.interleaving, facets.batching))
        self._inputs[name] = inputs
        replica = self._replicas[name]
        system: System = EngineSystem() if isinstance(replica, Stream) else replica
        batches: Sequence[EmittedBatch] = system.run(tree, inputs, self._timeout_s).outputs["result"]
        return [element for batch in batches for element in batch.elements]
