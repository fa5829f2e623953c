"""The query of each kind of node, and of plans: a sequence of queries, each over the tables before it (6.1).

A node that is not here is one that a package registers under ``lmerge.testing.queries`` by its kind, or is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.groups import GroupApplyNode, GroupInputNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.row_forms import RowForms
from lmerge.testing.canonical import groups
from lmerge.testing.judging import row_queries
from lmerge.testing.judging.functions import BLOB
from lmerge.testing.judging.tables import EventTable, Sequences
from lmerge.testing.judging.unjudged import NotJudged
from lmerge.testing.judging.window_queries import windowed
from lmerge.testing.registry import PartRegistry
from lmerge.wire.schema import Schema


class NodeQuery(Protocol):
    """The query of one kind of node."""

    def __call__(self, node: Any, reads: Sequence[EventTable], made: Sequences) -> EventTable:
        """Append the queries of a node over the tables that it reads; return the table of its results.

        Raises NotJudged for a node whose results its table does not decide.
        """


def applied(node: GroupApplyNode, reads: Sequence[EventTable], made: Sequences) -> EventTable:
    """Return the table of a sub-plan over all groups at once: each event has the key of its group."""
    (events,) = reads
    name = f"group_{len(events.groups) + 1}"
    forms = RowForms(Schema(node.bound_keys.columns)) if node.keys else None
    key = "'' :: BLOB"
    if forms is not None:
        key = f"{key_function(node, forms, made)}(payload)"
    keyed = made.add("grouped", groups.keyed(events.name, [(name, key)]), [*events.groups, name], events.begun)
    found = sequence([node.plan], {node.group: keyed}, made)[node.plan]
    query = f"SELECT * FROM {found.name}"
    if node.has_keys and forms is not None:
        values, payload = made.functions.rows(node.plan.schema).values, made.functions.rows(node.schema).payload
        key_of = forms.of_payload
        with_key = made.functions.add(
            "with the group's key", lambda own, row: payload((*key_of(own), *values(row))), [BLOB, BLOB], BLOB
        )
        query = f"SELECT * REPLACE ({with_key}({name}, payload) AS payload) FROM {found.name}"
    return made.add("of_groups", groups.without_keys(f"({query})", [name]), events.groups, found.begun)


def key_function(node: GroupApplyNode, forms: RowForms, made: Sequences) -> str:
    """Return the function of the key of a group: the row of its columns."""
    evaluate, values = node.bound_keys.evaluate, made.functions.rows(node.input_schema).values
    listed = ", ".join(shown(one) for _, one in node.keys)
    return made.functions.add(
        f"group by {listed}", lambda payload: forms.payload(evaluate(values(payload))), [BLOB], BLOB
    )


QUERIES: Final[PartRegistry[NodeQuery]] = PartRegistry(
    "lmerge.testing.queries",
    "query of an operator",
    {
        "filter": row_queries.filtered,
        "select": row_queries.selected,
        "lifetime": row_queries.altered,
        "union": row_queries.united,
        "edges": row_queries.edges,
        "coalesce": row_queries.coalesced,
        "cleanse": row_queries.cleansed,
        "join": row_queries.joined,
        "as_of": row_queries.as_of,
        "aggregate": windowed,
        "top": windowed,
        "apply": windowed,
        "group_apply": applied,
    },
)


def sequence(
    roots: Sequence[PlanNode], tables: Mapping[PlanNode, EventTable], made: Sequences
) -> dict[PlanNode, EventTable]:
    """Append the queries of all nodes above ``tables``; return the table of each node.

    Raises NotJudged, which names the first node that cannot be judged.
    """
    found = dict(tables)
    for node in in_order(roots, tables):
        if node in found:
            continue
        if isinstance(node, GroupInputNode) or not node.reads:
            raise NotJudged(f"{node.title} is a source, and its table is not there")
        if node.kind not in QUERIES.names():
            raise NotJudged(f"{node.title}: there is no query of {node.kind!r}; register one (lmerge.testing.queries)")
        found[node] = QUERIES.find(node.kind)(node, [found[read] for read in node.reads], made)
    return found
