"""Joins of several streams: pairs of pairs, in any order, with the same columns whatever the order is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.properties import columns_read, conjuncts
from lmerge.temporal.expressions.surface import Expression
from lmerge.temporal.expressions.tree import ColumnReference, Node, Operation
from lmerge.temporal.operators.join import PAIRS_MAX, JoinKind
from lmerge.temporal.plan.joins import JoinNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.spans import SelectNode
from lmerge.temporal.plan.stream import Stream


def join(
    *streams: Stream,
    on: str | Iterable[str] = (),
    where: Expression | None = None,
    order: Sequence[int] | None = None,
    pairs_max: int = PAIRS_MAX,
) -> Stream:
    """Return combinations of events, one of each stream, that are valid together.

    The columns are those of the streams one after the other. A name that an earlier stream has gets the number of its
    stream: ``a``, ``a_2``, ``a_3``. ``on``: columns that all streams have, and that are equal. ``where``: a predicate
    over all columns; its conjuncts are tested as soon as their columns are there, in their order.

    ``order``: in which order streams are joined, by their places from 0; any order gives the same events. Without it,
    the first one in which each stream is joined with those before it by a column or a conjunct. ``pairs_max``: as in
    ``Stream.join``, for each of the joins.

    Raises PlanError for fewer than two streams, and if a stream is joined with the others by nothing.
    """
    if len(streams) < 2:
        raise PlanError(f"a join of {len(streams)} streams; it takes two or more")
    if order is not None and sorted(order) != list(range(len(streams))):
        raise PlanError(
            f"{list(order)!r:.64} is no order of {len(streams)} streams: it has each of 0 to {len(streams) - 1} once"
        )
    keys = [on] if isinstance(on, str) else list(on)
    several = _Joined(streams, keys, [] if where is None else list(conjuncts(where.node)), pairs_max)
    chosen = several.first_order() if order is None else tuple(order)
    return Stream(several.in_order(chosen))


class _Joined:
    """Streams with distinct names of columns, and what joins them."""

    def __init__(self, streams: Sequence[Stream], keys: Sequence[str], tests: list[Node], pairs_max: int) -> None:
        self._keys, self._tests, self._pairs_max = keys, tests, pairs_max
        taken: dict[str, int] = {}
        self._names: list[dict[str, str]] = []  # by stream: from its own names to those of the result
        for number, stream in enumerate(streams, 1):
            missing = next((key for key in keys if key not in stream.schema.names), None)
            if missing is not None:
                raise PlanError(f"stream {number} of the join, {stream.node.title}, has no column {missing!r:.64}")
            names = {name: f"{name}_{number}" if name in taken else name for name in stream.schema.names}
            for name in names.values():
                if name in taken or list(names.values()).count(name) > 1:
                    raise PlanError(
                        f"streams {taken.get(name, number)} and {number} of the join have a column {name!r:.64}"
                    )
            taken |= dict.fromkeys(names.values(), number)
            self._names.append(names)
        unknown = next((name for test in tests for name in columns_read(test) if name not in taken), None)
        if unknown is not None:
            raise PlanError(f"the join has no column {unknown!r:.64}; it has {', '.join(taken)!s:.400}")
        self._columns = tuple(taken)
        self._nodes = [_renamed(stream.node, names) for stream, names in zip(streams, self._names, strict=True)]

    def first_order(self) -> tuple[int, ...]:
        """Return the first order in which every stream is joined with those before it by something."""
        places = range(len(self._nodes))
        if self._keys:
            return tuple(places)
        for first in places:
            order: tuple[int, ...] = (first,)
            while (following := self._following(order)) is not None:
                order = (*order, following)
            if len(order) == len(self._nodes):
                return order
        return tuple(places)

    def _following(self, order: tuple[int, ...]) -> int | None:
        """Return the first stream that is joined by something with those of an order, or None."""
        others = (place for place in range(len(self._nodes)) if place not in order)
        return next((place for place in others if self._tests_at((*order, place), len(order))), None)

    def in_order(self, order: Sequence[int]) -> PlanNode:
        """Return the joins in an order of the streams, with the columns in theirs."""
        joined = self._nodes[order[0]]
        for at, place in enumerate(order[1:], 1):
            names, first = self._names[place], self._names[order[0]]
            keys = tuple((ColumnReference(first[key]), ColumnReference(names[key])) for key in self._keys)
            tests = self._tests_at(order, at)
            if not keys and not tests:
                raise PlanError(
                    f"stream {place + 1} of the join, {self._nodes[place].title}, is joined with those before it by "
                    "nothing: it takes columns (on), a predicate (where), or another order"
                )
            predicate = None if not tests else tests[0] if len(tests) == 1 else Operation("and", tuple(tests))
            reads = (joined, self._nodes[place])
            joined = JoinNode(reads, "", keys, "_right", JoinKind.INNER, predicate, self._pairs_max)
        if joined.schema.names == self._columns:
            return joined
        return SelectNode((joined,), "", tuple((name, ColumnReference(name)) for name in self._columns))

    def _tests_at(self, order: Sequence[int], at: int) -> list[Node]:
        """Return the conjuncts that are tested when the stream at a place of the order comes.

        A conjunct can guard those behind it, so none is tested before one that stands before it.
        """
        found, latest = [], 1
        for test in self._tests:
            columns = set(columns_read(test))
            needed = [place for place, names in enumerate(self._names) if columns & set(names.values())]
            if not set(needed) <= set(order):
                break
            latest = max(latest, *map(order.index, needed), 1)
            if latest == at:
                found.append(test)
        return found


def _renamed(node: PlanNode, names: dict[str, str]) -> PlanNode:
    if all(name == other for name, other in names.items()):
        return node
    return SelectNode((node,), "", tuple((other, ColumnReference(name)) for name, other in names.items()))
