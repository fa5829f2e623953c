"""Every short stream in every cut into batches, through plans on each implementation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product

from operator_world import every_stream
from temporal_world import Item, StreamTable
from window_definition import DefinedWindow, WindowDefinition

from lmerge.core.elements import INF
from lmerge.temporal.changes import NOTHING_CHANGES, Delta, Lifetime
from lmerge.temporal.entrance import StreamEntrance
from lmerge.temporal.plan.compiling import CompiledPlan
from lmerge.temporal.values import Values
from lmerge.temporal.windows.policies import Form

Stream = Sequence[tuple[int, Item]]
"""Elements with the places of their sources."""

EVERY_CUT_UP_TO = 4
"""Longer streams come in some of their cuts."""


@cache
def streams(rows: tuple[tuple[Values, ...], ...], elements: int) -> list[Stream]:
    """Return every stream of up to so many elements. ``rows``: for each source what its events have."""
    return [
        [(place, delta.changes[0] if delta.changes else _stable(delta)) for place, delta in stream]
        for stream in every_stream(rows, elements, 1)
    ]


def _stable(delta: Delta) -> int:
    assert delta.stable is not None
    return delta.stable


def cuts(elements: int) -> Iterator[tuple[bool, ...]]:
    """Yield where streams of so many elements are cut: behind which of all but the last.

    All ways for short ones. For others: everywhere, nowhere, and behind every second, from the first or second on.
    """
    if elements <= EVERY_CUT_UP_TO:
        yield from product((True, False), repeat=elements - 1)
        return
    yield (True,) * (elements - 1)
    yield (False,) * (elements - 1)
    yield tuple(at % 2 == 0 for at in range(elements - 1))
    yield tuple(at % 2 == 1 for at in range(elements - 1))


def pieces(stream: Stream, cut: Sequence[bool]) -> list[Stream]:
    """Return a stream in the pieces of a cut."""
    found: list[list[tuple[int, Item]]] = [[]]
    for at, element in enumerate(stream):
        found[-1].append(element)
        if at < len(cut) and cut[at]:
            found.append([])
    return list(found)


def outcome(plan: CompiledPlan, implementation: str, stream: Stream, cut: Sequence[bool]) -> StreamTable:
    """Return the output's table behind a stream in a cut: a piece is one step, if the entrances allow it."""
    graph = plan.graph(implementation)
    entrances = [StreamEntrance(source.label) for source in plan.sources]
    output = StreamTable()
    for piece in pieces(stream, cut):
        taken = [entrance.take([item for place, item in piece if place == at]) for at, entrance in enumerate(entrances)]
        for step in range(max(map(len, taken))):
            deltas = [of_one[step] if step < len(of_one) else NOTHING_CHANGES for of_one in taken]
            output.apply(graph.step(deltas)[0])
    graph.check()
    if all(entrance.live.stable == INF for entrance in entrances):
        assert graph.live() == 0, stream
    return output


def alike(plan: CompiledPlan, implementations: Iterable[str], stream: Stream) -> StreamTable:
    """Return the table behind a stream, which is the same in every cut on each implementation (L4, L6)."""
    first = None
    for implementation in implementations:
        for cut in cuts(len(stream)):
            found = outcome(plan, implementation, stream, cut)
            first = first or found
            assert found.events == first.events, (implementation, stream, cut)
            assert found.stable == first.stable, (implementation, stream, cut)
    assert first is not None
    return first


def tables_of(stream: Stream, names: Sequence[str]) -> Mapping[str, Counter[Lifetime]]:
    """Return what each source has behind a stream."""
    tables = {name: StreamTable() for name in names}
    for place, item in stream:
        tables[names[place]].apply(Delta([], item) if isinstance(item, int) else Delta([item], None))
    return {name: table.events for name, table in tables.items()}


class TimeBoundDefinition(WindowDefinition):
    """Windows whose results do not change before a change of the input (V.F.1), so that they hold no stable point."""

    def _must(self, window: DefinedWindow, windows: Sequence[DefinedWindow]) -> bool:
        return self.rules.form is Form.SETTLED or super()._must(window, windows)

    def _is_settled(self, window: DefinedWindow) -> bool:
        return self.rules.form is not Form.FINAL or super()._is_settled(window)

    def _results(self, window: DefinedWindow) -> list[Lifetime]:
        found, stable = super()._results(window), self.table.stable
        if self.rules.form is not Form.SETTLED or self._is_closed(window):
            return found
        return [one for one in found if one.vs < stable]

    def _stable(self, held: Iterable[int]) -> int:
        return min([self.table.stable, *held])
