"""The relation of keys: in whatever order events of several keys come in a step, the same is emitted, or fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

from lmerge.core.elements import INF
from lmerge.core.engines.selection import available
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Change
from lmerge.temporal.expressions.surface import Expression
from lmerge.temporal.expressions.tree import ColumnReference
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.grouped import Grouped, aggregate
from lmerge.temporal.plan.groups import GroupApplyNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.plan.stream import Stream
from lmerge.temporal.plan.windows import WindowNode
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.running import QueryRun
from lmerge.temporal.runs.settings import Item
from lmerge.testing.checking.implementations import Taken, shown_text, taken
from lmerge.testing.checking.related import CannotHold, RelatedRun
from lmerge.testing.decided import Events
from lmerge.testing.streams.facets import Facets
from lmerge.testing.streams.generator import table
from lmerge.testing.systems.system import SystemFailure
from lmerge.testing.transforming.concrete import replaced

ByKey = WindowNode | GroupApplyNode

IN_ROW: Final = ", in row "
"""What the message of a row that fails by itself has. The first one is named, so another order names another one."""
CROWDED: Final = Facets(values="extreme", keys="few", overlap="high", duration="long")
"""Many events of few keys in a window."""
WINDOW: Final = 400
TABLES: Final = 2
"""Over how many tables it is tried: in few of them several keys fail."""


def other_key_order(related: RelatedRun) -> Iterator[tuple[Events, Events]]:
    """Give an operator by key events in one step, key by key, and once more with the keys in reverse.

    The rows are at the ends of their types, and sums by the same keys are tried too, so that several keys fail: it is
    always the same one that is named.
    Raises CannotHold, and SystemFailure.
    """
    nodes = in_order(list(related.tree.outputs.values()))
    grouped = [node for node in nodes if isinstance(node, ByKey) and node.keys]
    if not grouped:
        raise CannotHold("no operator has a key")
    node = related.random.choice(grouped)
    (read,) = node.reads
    source = SourceNode((), "input", read.schema)
    plans = [replaced(node, {read: source}), *_sums(node, source)]
    for _ in range(TABLES):
        by_key = _by_key(node, source, related.random.randrange(2**31))
        for plan, implementation in product(plans, available()):
            _compare(plan, implementation, source.label, by_key)
    yield related.expected, related.expected


def _sums(node: ByKey, source: SourceNode) -> Iterator[PlanNode]:
    """Yield sums by the same keys, of windows and in sub-plans: what the operator computes may never fail."""
    column = next((one.name for one in source.columns.columns if one.type == "int"), None)
    if column is None:
        return
    grouped = Grouped(source, node.keys, Stream)
    total = aggregate("sum", Expression(ColumnReference(column)))
    for form in ("final", "eager"):
        yield grouped.tumbling(WINDOW).agg(form=form, total_by_key=total).node
    yield grouped.apply(lambda group: group.tumbling(WINDOW).agg(total_by_key=total)).node


def _compare(plan: PlanNode, implementation: str, source: str, by_key: Sequence[Sequence[Item]]) -> None:
    """Run a plan with the keys in order, and in reverse. Raises SystemFailure."""
    found = []
    for keys in (by_key, by_key[::-1]):
        run = QueryRun({"result": plan}, implementation=implementation)
        found.append(_comparable(taken(run, source, [*(one for key in keys for one in key), INF], "result")))
    if found[0] != found[1]:
        texts = [shown_text(one) for one in found]
        raise SystemFailure(f"{plan.title}, {implementation}: {texts[0]}; with its keys in another order {texts[1]}")


def _by_key(node: ByKey, source: SourceNode, seed: int) -> list[list[Item]]:
    """Return events at the ends of their types, each key's by itself. Raises CannotHold if a key cannot be computed."""
    forms = RowForms(source.columns)
    found: dict[Any, list[Item]] = {}
    for vs, payload, ve in table(CROWDED, source.columns, seed):
        row = forms.of_payload(payload)
        try:
            key = node.bound_keys.evaluate(row)
        except LmergeError as failure:
            raise CannotHold(f"the key of an event fails by itself: {failure}") from None
        found.setdefault(key, []).append(Change(row, vs, vs, ve))
    return list(found.values())


def _comparable(did: Taken) -> Taken:
    """Return what a run did: the changes of each step in one order, and of a row that fails by itself only that."""
    if isinstance(did, str):
        return IN_ROW if IN_ROW in did else did
    return [(sorted(changes), stable) for changes, stable in did]
