"""Plans step by step, for the tests of the paper's sentences and examples: elements in, and what comes out as text."""

from __future__ import annotations

from collections import Counter

from history_world import collect
from temporal_world import Item, StreamTable

from lmerge.core.elements import INF, show_time
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.graph import OperatorGraph
from lmerge.temporal.plan.stream import Stream, source
from lmerge.temporal.running import QueryRun
from lmerge.temporal.values import Values


def insert(row: object, vs: int, ve: int) -> Change:
    """Return an insert. A row of one column is its value alone."""
    return Change(_row(row), vs, vs, ve)


def adjust(row: object, vs: int, old: int, new: int) -> Change:
    """Return an adjust of the end from ``old`` to ``new``."""
    return Change(_row(row), vs, old, new)


def event(row: object, vs: int, ve: int) -> Lifetime:
    """Return an event of a table."""
    return Lifetime(_row(row), vs, ve)


def _row(row: object) -> Values:
    return row if isinstance(row, tuple) else (row,)


def names(*columns: str, name: str = "events") -> Stream:
    """Return a source of text columns."""
    return source(name, dict.fromkeys(columns or ("name",), "string"))


def numbers(*promises: str, name: str = "numbers") -> Stream:
    """Return a source with the columns ``a`` and ``b``."""
    return source(name, {"a": "int", "b": "int"}, promises=promises)


class PlanTrace:
    """A plan that runs: what comes out for each element, as text, and the table so far, which must be legal."""

    def __init__(self, stream: Stream) -> None:
        self._run = QueryRun({"it": stream.node})
        self.table = StreamTable()

    @property
    def graph(self) -> OperatorGraph:
        """The operators."""
        return self._run.graph

    def give(self, *items: Item, to: str | None = None) -> list[str]:
        """Take items of a source, by default the only one, one by one; return what came out."""
        name = next(iter(self._run.entrances)) if to is None else to
        found: list[str] = []
        for item in items:
            for step in self._run.take(name, [item]):
                found += self._took(step["it"])
        return found

    def give_together(self, *items: Item) -> list[str]:
        """Take items of the only source in as few batches as there can be."""
        found: list[str] = []
        for step in self._run.take(next(iter(self._run.entrances)), items):
            found += self._took(step["it"])
        return found

    def fast_forward(self, t: int) -> list[int]:
        """Give feedback; return what the sources need."""
        return self.graph.fast_forward(0, t)

    @property
    def stable(self) -> int:
        """The output's stable point."""
        return self.table.stable

    @property
    def events(self) -> list[Lifetime]:
        """The table in order."""
        return sorted(self.table.events.elements(), key=lambda one: (one.vs, repr(one.row), one.ve))

    def _took(self, delta: Delta) -> list[str]:
        self.table.apply(delta)
        found = [shown(change) for change in delta.changes]
        return [*found, f"stable {show_time(delta.stable)}"] if delta.stable is not None else found


def shown(change: Change) -> str:
    """Return a change as the examples of the sources write it."""
    row = ", ".join(map(str, change.row))
    if change.is_insert:
        return f"+({row})[{change.vs},{show_time(change.new)})"
    if change.new == change.vs:
        return f"({row})[{change.vs},{show_time(change.old)}) gone"
    return f"({row})[{change.vs},{show_time(change.old)}) to {show_time(change.new)}"


def result(stream: Stream, *items: Item) -> list[Lifetime]:
    """Return the table of a plan over all that its only source has."""
    return collect(stream.node, {next(iter(QueryRun({"it": stream.node}).entrances)): list(items)})


def table_of(*events: Lifetime) -> Counter[Lifetime]:
    """Return events as a multiset."""
    return Counter(events)


FOREVER = INF
