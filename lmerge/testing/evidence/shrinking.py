"""Smaller cases: the blamed operator alone on what it really got, then fewer events, stables and times (Hypothesis).

The choices of a smaller case are a sequence of small numbers: what of each history of an event is kept, and which
stables. Hypothesis begins at the case that was found, as if it were in its database, and shrinks the sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase, choices_to_bytes
from hypothesis.errors import NoSuchExample

from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Insert, Stable
from lmerge.temporal.changes import Delta
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.running import ElementWriter
from lmerge.testing.checking.full_checks import check_fully
from lmerge.testing.checking.relations import check_tree
from lmerge.testing.checking.tree_verdict import TreeVerdict
from lmerge.testing.judging.operator_run import OperatorRun
from lmerge.testing.judging.verdict import Judge
from lmerge.testing.streams.batches import InputBatch
from lmerge.testing.systems.inputs import TreeInputs, moved, times_of
from lmerge.testing.systems.system import System
from lmerge.testing.transforming.concrete import ConcreteTree, SourceData, replaced

SECONDS: Final = 20.0
EXAMPLES_MAX: Final = 5000
DRAWS: Final = 4
"""How many other draws of a relation are tried on a case that is smaller."""
_KEY: Final = b"case"
DROPPED, PLAIN, WHOLE = 0, 1, 2
"""What is kept of the history of an event: nothing, an insert with its final end, or all of its changes."""


@dataclass(frozen=True)
class SmallCase:
    """A tree with inputs, and its verdict."""

    tree: ConcreteTree
    inputs: TreeInputs
    verdict: TreeVerdict

    @property
    def elements(self) -> int:
        """The number of elements that are not stables."""
        return sum(not isinstance(one, Stable) for batch in self.inputs.batches for one in batch.elements)

    @property
    def operators(self) -> int:
        """The number of operators, those of sub-plans included."""
        nodes = in_order(list(self.tree.outputs.values()))
        inner = [one for node in nodes if node.inner is not None for one in in_order([node.inner])]
        return sum(not isinstance(node, SourceNode) for node in nodes) + sum(bool(one.reads) for one in inner)


class Shrinker:
    """Makes a bad case smaller, for ``seconds`` at most. What it gives is as bad: of the same outcome."""

    def __init__(self, system: System, judge: Judge, seconds: float = SECONDS) -> None:
        self._system = system
        self._judge = judge
        self._deadline = monotonic() + seconds

    def shrunk(self, verdict: TreeVerdict, inputs: TreeInputs) -> SmallCase:
        """Return the smallest case that was found. It begins with ``verdict`` over ``inputs``."""
        case = SmallCase(verdict.tree, inputs, verdict)
        case = self._first(case, self._alone(case))
        case = self._first(case, self._without_operators(case))
        case = self._first(case, self._in_one_batch(case))
        case = self._with_fewer(case)
        case = self._first(case, self._at_smaller_times(case))
        return self._with_fewer(case)

    def _first(self, case: SmallCase, others: Iterator[tuple[ConcreteTree, TreeInputs]]) -> SmallCase:
        """Return the first of others that is as bad, or the case."""
        for tree, inputs in others:
            found = self._bad(tree, inputs, case)
            if found is not None:
                return found
        return case

    def _bad(self, tree: ConcreteTree, inputs: TreeInputs, like: SmallCase) -> SmallCase | None:
        if monotonic() > self._deadline:
            return None
        was = like.verdict
        relations = (was.relation,) if was.relation else ()
        if was.relation:
            bad = self._with_broken_relation(tree, inputs, was.relation)
            if bad is None:
                return None
            tree = bad
        verdict = check_fully(tree, self._system, self._judge, inputs, relations=relations)
        is_alike = verdict.outcome is was.outcome and verdict.relation == was.relation
        return SmallCase(tree, inputs, verdict) if is_alike and bool(verdict.failure) == bool(was.failure) else None

    def _with_broken_relation(self, tree: ConcreteTree, inputs: TreeInputs, relation: str) -> ConcreteTree | None:
        """Return the tree with a number for which the relation does not hold: what it draws follows from that."""
        for row in (tree.row, *range(DRAWS)):
            numbered = replace(tree, row=row)
            if monotonic() < self._deadline and any(one.is_bad for one in check_tree(numbered, inputs, [relation])):
                return numbered
        return None

    # Fewer operators.

    def _alone(self, case: SmallCase) -> Iterator[tuple[ConcreteTree, TreeInputs]]:
        """Yield the blamed operator alone, on the streams that it really got; of a relation, each operator."""
        blamed, run = case.verdict.blamed, case.verdict.run
        for operator in () if run is None else run.operators:
            if case.verdict.relation or (blamed is not None and operator.name == blamed.name):
                yield alone(case.tree, operator)

    def _without_operators(self, case: SmallCase) -> Iterator[tuple[ConcreteTree, TreeInputs]]:
        """Yield trees in which one operator is left out, where what it reads has its columns."""
        nodes = in_order(list(case.tree.outputs.values()))
        for node in nodes:
            for read in node.reads:
                if read.schema == node.schema and not isinstance(node, SourceNode):
                    outputs = {name: replaced(one, {node: read}) for name, one in case.tree.outputs.items()}
                    if all(one.reads for one in outputs.values()):
                        yield replace(case.tree, outputs=outputs), case.inputs

    def _in_one_batch(self, case: SmallCase) -> Iterator[tuple[ConcreteTree, TreeInputs]]:
        """Yield all elements of each source as one batch, then each element as a batch."""
        names = dict.fromkeys(batch.name for batch in case.inputs.batches)
        yield case.tree, TreeInputs([InputBatch(name, case.inputs.elements(name)) for name in names])
        singles = [InputBatch(batch.name, [one]) for batch in case.inputs.batches for one in batch.elements]
        yield case.tree, TreeInputs(singles)

    # Fewer events.

    def _with_fewer(self, case: SmallCase) -> SmallCase:
        """Return a case with fewer histories and stables, by Hypothesis."""
        histories = histories_of(case.inputs)
        best = [case]
        known: dict[tuple[int, ...], bool] = {}

        def is_bad(kept: tuple[int, ...]) -> bool:
            if kept not in known:
                found = self._bad(case.tree, only(case.inputs, histories, kept), case)
                known[kept] = found is not None
                if found is not None:
                    best[0] = found
            return known[kept]

        whole = (WHOLE,) * len(histories)
        known[whole] = True
        database = InMemoryExampleDatabase()
        # What is in the first corpus counts as shrunk already; the second one holds cases on the way.
        database.save(_KEY + b".secondary", choices_to_bytes(whole))
        every: Any = st.tuples(*(st.integers(DROPPED, WHOLE) for _ in histories))
        quiet = settings(
            database=database,
            phases=[Phase.reuse, Phase.shrink],
            max_examples=EXAMPLES_MAX,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        try:
            smallest = find(every, is_bad, settings=quiet, database_key=_KEY)
        except NoSuchExample:
            return best[0]
        found = self._bad(case.tree, only(case.inputs, histories, smallest), case)
        return best[0] if found is None else found

    # Smaller times.

    def _at_smaller_times(self, case: SmallCase) -> Iterator[tuple[ConcreteTree, TreeInputs]]:
        """Yield the case with its times put one behind the other, then moved so that the first is 0."""
        times = sorted({t for batch in case.inputs.batches for one in batch.elements for t in times_of(one)})
        finite = [t for t in times if NEG_INF < t < INF]
        if not finite:
            return
        yield case.tree, moved(case.inputs, {t: at for at, t in enumerate(finite)})
        yield case.tree, moved(case.inputs, {t: t - finite[0] for t in finite})


def alone(tree: ConcreteTree, operator: OperatorRun) -> tuple[ConcreteTree, TreeInputs]:
    """Return an operator as a tree of its own, over sources that give what it got."""
    sources: dict[PlanNode, PlanNode] = {}
    writers = []
    for read in operator.reads:
        if read not in sources:
            sources[read] = SourceNode((), f"input{len(sources) + 1}", read.schema)
        writers.append((sources[read].label, ElementWriter(read)))
    result = replaced(operator.result, sources)
    batches = []
    for _, taken, _ in operator.steps:
        seen: set[str] = set()
        for delta, (label, writer) in zip(taken, writers, strict=True):
            if label not in seen and (delta.changes or delta.stable is not None):
                batches.append(InputBatch(label, list(writer.batch([Delta(delta.changes, delta.stable)]).elements())))
            seen.add(label)
    data = {source.label: SourceData({}, 0) for source in sources.values()}
    return replace(tree, outputs={"result": result}, data=data), TreeInputs(batches)


History = tuple[str, bytes, int] | tuple[str, int]
"""What elements belong together: those of an event of a source, by payload and start; a stable by its place."""


def _history(name: str, place: int, element: Element) -> History:
    return (name, place) if isinstance(element, Stable) else (name, element.payload, element.vs)


def histories_of(inputs: TreeInputs) -> list[History]:
    """Return the histories of inputs, each once, in the order in which they begin; ends of streams are left out."""
    found: dict[History, None] = {}
    for place, (name, element) in enumerate(_placed(inputs)):
        if element != Stable(INF):
            found.setdefault(_history(name, place, element))
    return list(found)


def _placed(inputs: TreeInputs) -> list[tuple[str, Element]]:
    return [(batch.name, one) for batch in inputs.batches for one in batch.elements]


def only(inputs: TreeInputs, histories: Sequence[History], kept: Sequence[int]) -> TreeInputs:
    """Return inputs in which of each history only so much is kept as ``kept`` has for it. What is left is legal."""
    keep = dict(zip(histories, kept, strict=True))
    final = _final_ends(inputs)
    batches, place = [], 0
    done: set[History] = set()
    for batch in inputs.batches:
        left: list[Element] = []
        for element in batch.elements:
            history = _history(batch.name, place, element)
            place += 1
            how = keep.get(history, WHOLE)
            if how == WHOLE:
                left.append(element)
            elif how == PLAIN and history not in done and not isinstance(element, Stable):
                done.add(history)
                left += [Insert(element.payload, element.vs, end) for end in final[history]]
            elif how == PLAIN and isinstance(element, Stable):
                left.append(element)
        if left:
            batches.append(InputBatch(batch.name, left))
    return TreeInputs(batches)


def _final_ends(inputs: TreeInputs) -> dict[History, list[int]]:
    """Return the ends that the events of each history have at last."""
    found: dict[History, list[int]] = {}
    for place, (name, element) in enumerate(_placed(inputs)):
        if isinstance(element, Stable):
            continue
        ends = found.setdefault(_history(name, place, element), [])
        if isinstance(element, Adjust):
            if element.vold in ends:
                ends.remove(element.vold)
            if element.ve == element.vs:
                continue
        if element.ve > element.vs:
            ends.append(element.ve)
    return found
