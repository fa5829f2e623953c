"""The relation of keys: in whatever order events of several keys come in a step, the same is emitted, or fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from lmerge.core.elements import INF
from lmerge.core.engines.selection import NATIVE, PYTHON, native_problem
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Change
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.groups import GroupApplyNode
from lmerge.temporal.plan.sources import SourceNode
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

Grouped = WindowNode | GroupApplyNode

IN_ROW: Final = ", in row "
"""What the message of a row that fails by itself has. The first one is named, so another order names another one."""
TABLES: Final = 4
"""Over how many tables it is tried: in few of them several keys fail."""


def other_key_order(related: RelatedRun) -> Iterator[tuple[Events, Events]]:
    """Give an operator by key its events in one step, key by key, and once more with the keys in reverse.

    The rows are at the ends of their types, so that several keys may fail: it is always the same one that is named.
    Raises CannotHold, and SystemFailure.
    """
    grouped = [
        node
        for node in in_order(list(related.tree.outputs.values()))
        if isinstance(node, Grouped) and node.keys and isinstance(node.reads[0], SourceNode)
    ]
    if not grouped:
        raise CannotHold("no operator by key reads a source")
    node = related.random.choice(grouped)
    source = node.reads[0]
    assert isinstance(source, SourceNode)
    free = replace(source, promises=frozenset())  # another order of events may break a promise
    plan = replaced(node, {source: free})
    implementations = (PYTHON,) if native_problem() else (PYTHON, NATIVE)
    for seed in range(TABLES):
        by_key = _by_key(related, node, free, seed)
        for implementation in implementations:
            found = []
            for keys in (by_key, by_key[::-1]):
                run = QueryRun({"result": plan}, implementation=implementation)
                found.append(
                    _comparable(taken(run, source.label, [*(one for key in keys for one in key), INF], "result"))
                )
            if found[0] != found[1]:
                raise SystemFailure(
                    f"{node.title}, {implementation}: {shown_text(found[0])}; with its keys in another order "
                    f"{shown_text(found[1])}"
                )
    yield related.expected, related.expected


def _by_key(related: RelatedRun, node: Grouped, source: SourceNode, seed: int) -> list[list[Item]]:
    """Return the events of a source, each key's by itself. Raises CannotHold if a key cannot be computed."""
    data, forms = related.tree.data[source.label], RowForms(source.columns)
    facets = Facets.from_json({**data.facets, "values": "extreme"})
    found: dict[Any, list[Item]] = {}
    for vs, payload, ve in table(facets, source.columns, data.seed + seed):
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
