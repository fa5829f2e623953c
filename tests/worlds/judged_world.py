"""Trees that are judged in tests: one operator over given batches, and the verdict over each operator of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lmerge.core.elements import Element
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.stream import Stream
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.running import QueryRun
from lmerge.testing.checking.tree_verdict import TreeVerdict, check
from lmerge.testing.judging.operator_run import OperatorRun, recorded
from lmerge.testing.judging.verdict import Judge
from lmerge.testing.streams.batches import InputBatch
from lmerge.testing.systems.engine import EngineSystem
from lmerge.testing.systems.inputs import TreeInputs, forms_of, items_of
from lmerge.testing.transforming.concrete import ConcreteTree, SourceData

ENGINE = EngineSystem()


def tree_of(stream: Stream, implementation: str = "python") -> ConcreteTree:
    """Return a tree of one result, whose inputs are given."""
    outputs: dict[str, PlanNode] = {"result": stream.node}
    tree = ConcreteTree("by hand", outputs, {}, {"implementation": implementation, "target": "json"})
    data = {name: SourceData({}, 0) for name in tree.sources}
    return ConcreteTree("by hand", outputs, data, tree.run)


def inputs_by_hand(batches: Sequence[tuple[str, Sequence[Element]]]) -> TreeInputs:
    """Return inputs of these batches."""
    return TreeInputs([InputBatch(name, elements) for name, elements in batches])


def payload(stream: Stream, *row: object) -> bytes:
    """Return the payload of a row of a stream."""
    return RowForms(stream.schema).payload(tuple(row))


def verdict_of(
    judge: Judge, stream: Stream, batches: Sequence[tuple[str, Sequence[Element]]], implementation: str = "python"
) -> TreeVerdict:
    """Return the verdict over a query on the engine."""
    return check(tree_of(stream, implementation), ENGINE, judge, inputs_by_hand(batches))


def operators_of(stream: Stream, batches: Sequence[tuple[str, Sequence[Element]]]) -> list[OperatorRun]:
    """Return the operators of a run of a query whose nodes no target can write."""
    forms = forms_of(tree_of(stream).sources)
    items = [(name, items_of(elements, forms[name])) for name, elements in batches]
    return recorded(QueryRun({"result": stream}, implementation="python"), items)[0]


def blamed_names(verdict: TreeVerdict) -> Mapping[str, str]:
    """Return the outcome of each operator that is not equal, by its name."""
    return {one.name: str(one.outcome) for one in verdict.operators if one.outcome != "equal"}
