"""The fluent surface: ``flights.where(col.delay > 15).group_by(col.origin).tumbling(HOUR).agg(n=count())``.

A ``Stream`` is a node of a plan with methods that build further ones. Nothing runs. What does not fit (a column that is
not there, a type, a policy) is a PlanError at the call that builds it. Durations are in the stream's units of time,
microseconds by default; ``SECOND`` to ``DAY`` are such, and so is text: ``tumbling("1h")``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from lmerge.core.properties import parse_properties
from lmerge.temporal.durations import DAY, HOUR, MINUTE, SECOND, Duration, duration_of
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.surface import Expression, Operand, col, node_of
from lmerge.temporal.expressions.tree import ColumnReference
from lmerge.temporal.operators.edges import SampleTies
from lmerge.temporal.operators.join import PAIRS_MAX, JoinKind
from lmerge.temporal.plan.calls import WindowCall
from lmerge.temporal.plan.drawing import mime_bundle, svg
from lmerge.temporal.plan.grouped import (
    Grouped,
    Windowed,
    aggregate,
    choice_of,
    count,
    grouping_keys,
    method_of,
    module,
    named_argument,
    named_column,
    predicate_of,
)
from lmerge.temporal.plan.joins import AsOfJoinNode, JoinNode, KeyPairs
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.properties import explain
from lmerge.temporal.plan.rewriting import BETTER, rewrite
from lmerge.temporal.plan.shaping import CleanseNode, CoalesceNode, EdgesNode
from lmerge.temporal.plan.showing import tree
from lmerge.temporal.plan.sources import SourceNode, SourceShape
from lmerge.temporal.plan.spans import FilterNode, LifetimeNode, OnError, RowNode, SelectNode, UnionNode
from lmerge.temporal.windows.kinds import CountedEnd
from lmerge.wire.schema import Schema, SchemaLike, parse_schema

__all__ = (
    "DAY",
    "HOUR",
    "MINUTE",
    "SECOND",
    "GroupedStream",
    "Stream",
    "WindowCall",
    "WindowedStream",
    "aggregate",
    "count",
    "from_json",
    "method_of",
    "module",
    "source",
)
"""What query writers import from here."""


Columns: TypeAlias = "Expression | str | Iterable[Expression | str]"
"""Columns by name, or expressions, of one stream: one or several."""

Equal: TypeAlias = "str | Iterable[str] | Mapping[str, str]"
"""Columns of two streams that are equal: names that both have, or a mapping of a left to a right name."""


def source(
    name: str,
    schema: SchemaLike,
    *,
    promises: Iterable[str] = (),
    shape: SourceShape | str = SourceShape.INTERVAL,
    by: Columns = (),
) -> Stream:
    """Return the stream of a source. ``promises``: its properties, such as ``ordered``, checked when it runs.

    ``shape``: ``interval``; ``point`` for events of one unit of time; or ``edge`` for samples of signals, one for each
    value of ``by``, each of which lasts until the next one.
    """
    chosen = choice_of(SourceShape, shape, "a shape of events")
    stream = Stream(SourceNode((), name, parse_schema(schema), parse_properties(promises), chosen))
    if chosen is SourceShape.EDGE:
        return stream.edges(by)
    if _listed(by):
        raise PlanError(f"source {name!r:.64} has {chosen} events; only edge events have a signal (by)")
    return stream


@dataclass(frozen=True)
class Stream:
    """A stream of a plan. ``node``: what computes it."""

    node: PlanNode

    @property
    def schema(self) -> Schema:
        """The columns of its rows."""
        return self.node.schema

    def __getitem__(self, name: str) -> Expression:
        """Return a column of this stream. Raises PlanError if there is none."""
        if name not in self.schema.names:
            raise PlanError(f"{self.node.title} has no column {name!r:.64}; it has {', '.join(self.schema.names)}")
        return col[name]

    def named(self, label: str) -> Stream:
        """Return the same stream under a name, for pictures, messages and metrics."""
        return Stream(replace(self.node, label=label))

    def collect(self, history: Mapping[str, Any], *, vs: str = "vs", ve: str | None = "ve") -> Any:
        """Return the events of this stream over all that its sources have had, as an Arrow table.

        ``history``: by source an Arrow table, a row for each event, or changes and stable points. ``vs``, ``ve``: the
        columns of start and end; ``ve=None`` for tables of events without an end. See
        ``lmerge.temporal.arrow_tables.collect_arrow``, also for the errors. Needs pyarrow.
        """
        from lmerge.temporal.arrow_tables import collect_arrow

        return collect_arrow(self.node, history, vs=vs, ve=ve)

    def __str__(self) -> str:
        """Return the plan as a tree."""
        return self.tree()

    def tree(self) -> str:
        """Return the plan as a tree of text, the result at the top."""
        return tree(self.node)

    def explain(self) -> str:
        """Return what each step promises and why, the algorithm of a merge of such plans, and possible rewrites."""
        return explain(self.node)

    def to_json(self, name: str = "result") -> dict[str, Any]:
        """Return the plan as a document of JSON values, with one result. ``from_json`` reads it."""
        return plan_to_json({name: self.node})

    @classmethod
    def from_json(cls, document: object) -> Stream:
        """Return the stream of a document with one result. Raises PlanError, which names the part that is wrong."""
        nodes = plan_from_json(document)
        if len(nodes) != 1:
            raise PlanError(
                f"the plan has the results {', '.join(nodes)}; lmerge.temporal.from_json returns all of them"
            )
        return cls(*nodes.values())

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the plan for notebooks."""
        return mime_bundle(tree(self.node), svg({self.node.title: self.node}))

    def rewritten(self, *names: str) -> Stream:
        """Return the same stream by a plan that differs, for a replica of the same query.

        ``names``: rewrites in ``rewriting``, such as ``form-eager`` or ``join-order``; none: those that make the plan
        do less.
        """
        return Stream(rewrite(self.node, names or BETTER)[0])

    # Event by event.

    def where(self, predicate: Expression) -> Stream:
        """Return the events whose rows fulfil a predicate."""
        return Stream(FilterNode((self.node,), "", predicate_of(predicate, "where")))

    def select(self, *columns: Expression | str, **computed: Operand) -> Stream:
        """Return these columns for each event, plain ones under their own names, then computed ones."""
        pairs = [named_column(column) for column in columns] + [
            (name, node_of(value)) for name, value in computed.items()
        ]
        return Stream(SelectNode((self.node,), "", tuple(pairs)))

    def with_columns(self, **computed: Operand) -> Stream:
        """Return all columns, with these ones added or replaced."""
        kept = [name for name in self.schema.names if name not in computed]
        return self.select(*kept, **computed)

    def on_error(self, policy: OnError | str) -> Stream:
        """Return this ``where`` or ``select`` with another policy for rows that fail, such as where a function raises.

        ``fail``: such a row ends the query; ``drop``: its event is dropped, and counted in the run.
        """
        node = self._row_node("on_error")
        return Stream(replace(node, on_error=choice_of(OnError, policy, "a policy for rows that fail")))

    def rechecked(self) -> Stream:
        """Return this ``where`` or ``select``, which computes each row twice: a random function ends the query."""
        return Stream(replace(self._row_node("rechecked"), rechecks=True))

    def _row_node(self, method: str) -> RowNode:
        if not isinstance(self.node, RowNode):
            raise PlanError(f"{self.node.title}: {method}() is for where() and select(), which it stands behind")
        return self.node

    def shift(self, amount: Duration) -> Stream:
        """Return the events with ``[Vs + amount, Ve + amount)``."""
        return self._altered("shift", amount)

    def set_duration(self, amount: Duration) -> Stream:
        """Return the events with ``[Vs, Vs + amount)``."""
        return self._altered("set_duration", amount)

    def clip_duration(self, amount: Duration) -> Stream:
        """Return the events with ``[Vs, min(Ve, Vs + amount))``."""
        return self._altered("clip_duration", amount)

    def extend(self, amount: Duration) -> Stream:
        """Return the events with ``[Vs, Ve + amount)``."""
        return self._altered("extend", amount)

    def at_end(self, amount: Duration = 1) -> Stream:
        """Return an event of ``[Ve, Ve + amount)`` for each event that ends."""
        return self._altered("at_end", amount)

    def points(self) -> Stream:
        """Return an event of one unit of time at the start of each event."""
        return self.set_duration(1)

    def _altered(self, alteration: str, amount: Duration) -> Stream:
        return Stream(LifetimeNode((self.node,), "", alteration, duration_of(amount, alteration, "an amount")))

    def edges(
        self, by: Columns = (), *, lasts: Duration | None = None, ties: SampleTies | str = SampleTies.LAST
    ) -> Stream:
        """Return each event from its start to the start of the next one with equal ``by``.

        ``lasts``: how long one lasts at most. ``ties``: of two events of one start the later row is taken (``last``),
        or they are an error when the plan runs (``error``).
        """
        nodes = tuple(map(named_argument, _listed(by)))
        most = None if lasts is None else duration_of(lasts, "edges", "a limit (lasts)")
        return Stream(EdgesNode((self.node,), "", nodes, choice_of(SampleTies, ties, "a rule for ties"), most))

    def coalesce(self) -> Stream:
        """Return for each row the longest stretches of time in which it is there, once each."""
        return Stream(CoalesceNode((self.node,), ""))

    def cleanse(self) -> Stream:
        """Return each event when it is final, in order of start and row."""
        return Stream(CleanseNode((self.node,), ""))

    # Several streams.

    def union(self, *others: Stream, disjoint_by: str | Iterable[str] = ()) -> Stream:
        """Return all events of this stream and of others, which have the same columns.

        ``disjoint_by``: columns in whose values the streams differ, such as a constant of each. Then the union keeps a
        key that all of them promise; two events of one start with equal values end the query.
        """
        names = (disjoint_by,) if isinstance(disjoint_by, str) else tuple(disjoint_by)
        return Stream(UnionNode((self.node, *(_other(other, "union") for other in others)), "", names))

    def join(
        self,
        other: Stream,
        on: Equal = (),
        *,
        where: Expression | None = None,
        how: JoinKind | str = JoinKind.INNER,
        suffix: str = "_right",
        pairs_max: int = PAIRS_MAX,
    ) -> Stream:
        """Return pairs of events that are valid together.

        ``on``: columns that both have and that are equal, or a mapping of a left to a right name. ``where``: a
        predicate over the columns of both; a right one whose name is taken has ``suffix``. ``how``: inner, left, right,
        full or anti (events of this stream, where there is no partner). ``pairs_max``: how many pairs a step compares
        at most; more end the query with LimitExceeded.
        """
        kind = choice_of(JoinKind, how, "a kind of join")
        predicate = None if where is None else predicate_of(where, "join")
        reads = (self.node, _other(other, "join"))
        return Stream(JoinNode(reads, "", _equal(on), suffix, kind, predicate, pairs_max=pairs_max))

    def without(self, other: Stream, on: Equal = (), *, where: Expression | None = None) -> Stream:
        """Return this stream where no event of another one has equal columns and fulfils ``where``: an anti-join."""
        return self.join(other, on, where=where, how=JoinKind.ANTI)

    def as_of(
        self,
        other: Stream,
        on: Equal = (),
        *,
        within: Duration | None = None,
        how: JoinKind | str = JoinKind.INNER,
        suffix: str = "_right",
    ) -> Stream:
        """Return each event with the latest event of another stream that has started when it starts.

        ``on``, ``suffix``: as in ``join``. ``within``: how long ago that one started at most. ``how``: with ``left``
        also the events without one, with missing values for its columns.
        """
        kind = choice_of(JoinKind, how, "a kind of join")
        if kind not in (JoinKind.INNER, JoinKind.LEFT):
            raise PlanError(f"an as-of join is inner or left, not {kind}")
        reads = (self.node, _other(other, "as_of"))
        most = None if within is None else duration_of(within, "as_of", "a limit (within)")
        return Stream(AsOfJoinNode(reads, "", _equal(on), suffix, kind is JoinKind.LEFT, most))

    # Windows.

    def group_by(self, *keys: Expression | str, **computed: Operand) -> GroupedStream:
        """Return the stream in groups of equal keys, to be cut into windows, or for a sub-plan (``apply``)."""
        return Grouped(self.node, grouping_keys(keys, computed), Stream)

    def tumbling(self, size: Duration, *, offset: Duration = 0, since: int | None = None) -> WindowedStream:
        """Return windows of ``size``, one behind the other. ``since``: none begins before it."""
        return self.group_by().tumbling(size, offset=offset, since=since)

    def hopping(
        self, size: Duration, hop: Duration, *, offset: Duration = 0, since: int | None = None
    ) -> WindowedStream:
        """Return windows of ``size``, one every ``hop``. ``since``: none begins before it."""
        return self.group_by().hopping(size, hop, offset=offset, since=since)

    def snapshot(self) -> WindowedStream:
        """Return the windows between consecutive starts and ends of events."""
        return self.group_by().snapshot()

    def count_windows(self, count: int, *, by: str = CountedEnd.STARTS.value) -> WindowedStream:
        """Return windows over ``count`` distinct starts, or ``by="ends"`` ends."""
        return self.group_by().count_windows(count, by=by)

    def sessions(self, gap: Duration) -> WindowedStream:
        """Return the runs of events in which the next one starts at most ``gap`` behind all ends so far."""
        return self.group_by().sessions(gap)


def from_json(document: object) -> dict[str, Stream]:
    """Return the results of a plan in JSON by their names. Raises PlanError, which names the part that is wrong."""
    return {name: Stream(node) for name, node in plan_from_json(document).items()}


def _other(stream: object, operator: str) -> PlanNode:
    """Return the node of another stream. Raises PlanError, which names the operator, for what is none."""
    if not isinstance(stream, Stream):
        raise PlanError(f"{operator}: {stream!r:.64} is no stream")
    return stream.node


def _listed(columns: Columns) -> list[Expression | str]:
    return [columns] if isinstance(columns, (Expression, str)) else list(columns)


def _equal(on: Equal) -> KeyPairs:
    names = [on] if isinstance(on, str) else on
    pairs = names.items() if isinstance(names, Mapping) else [(name, name) for name in names]
    return tuple((ColumnReference(left), ColumnReference(right)) for left, right in pairs)


GroupedStream: TypeAlias = Grouped[Stream]
WindowedStream: TypeAlias = Windowed[Stream]
