"""What a live run over history has in the end, as a list of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.running import QueryRun
from lmerge.temporal.runs.results import ResultTable
from lmerge.temporal.runs.settings import Item, SourceSettings
from lmerge.temporal.values import order_key


def collect(
    node: PlanNode, history: Mapping[str, Iterable[Item]], settings: Mapping[str, SourceSettings] | None = None
) -> list[Lifetime]:
    """Run a query over what its sources have, to their end; return its events by start and row.

    Sources are read one after the other. Raises what ``QueryRun.take`` does.
    """
    run, table = QueryRun({"result": node}, settings), ResultTable()
    for name, items in history.items():
        for step in run.take(name, items):
            table.apply(step["result"])
    for step in run.end():
        table.apply(step["result"])
    key = order_key(node.schema)
    return sorted(table.events.elements(), key=lambda event: (event.vs, key(event.row), event.ve))
