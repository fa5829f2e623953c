"""Aggregates of windows: several in one window are one module, whose row is their results in order.

An aggregate is one value for each window that has events. It is kept up by an accumulator, or computed over the set of
the window's events. If all of a window are of the first kind, so is the module (``AggregateList``), and equal parts are
kept once. Otherwise all of them are computed over the set (``AggregateSet``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.columns import RowBlock
from lmerge.temporal.modules.accumulators import Accumulator
from lmerge.temporal.values import Values, order_key
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.temporal.windows.module import IncrementalModule, MergeableModule, ModuleState, WindowModule
from lmerge.wire.schema import Column, Schema

Finish: TypeAlias = Callable[[Any, WindowDescriptor], Any]
"""From an accumulator's state and the window to the result."""


class WindowAggregate(ABC):
    """An aggregate in a window. ``result``: the column of its results. ``shown``: its call, for messages.

    The rest is as in ``WindowModule``.
    """

    reads_events = False
    starts_only = False
    reads_window = False
    takes_blocks = False

    def __init__(self, result: Column, shown: str) -> None:
        self.result = result
        self.shown = shown

    @abstractmethod
    def over(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Any:
        """Return the result for a set of events, in the order of ``WindowModule.compute`` for what it reads.

        Raises ModuleViolation, which names the aggregate and the window.
        """

    def over_blocks(self, blocks: Sequence[RowBlock], window: WindowDescriptor) -> Any:
        """Return what ``over`` returns for events that came as columns. Only with ``takes_blocks``."""
        raise NotImplementedError


class AccumulatedAggregate(WindowAggregate):
    """An aggregate from the state of an accumulator. ``finish`` raises ModuleViolation."""

    def __init__(self, result: Column, shown: str, accumulator: Accumulator, finish: Finish) -> None:
        super().__init__(result, shown)
        self.accumulator = accumulator
        self.finish = finish
        self.reads_events, self.starts_only = accumulator.reads_events, accumulator.starts_only
        self.reads_window = accumulator.reads_window
        self.takes_blocks = not accumulator.reads_events

    def over(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Any:
        """Return the result, by adding every event."""
        state = self.accumulator.begin()
        for event in events:
            state = self.accumulator.add(state, event)
        return self.finish(state, window)

    def over_blocks(self, blocks: Sequence[RowBlock], window: WindowDescriptor) -> Any:
        """Return the result, by adding every block."""
        state = self.accumulator.begin()
        for block in blocks:
            state = self.accumulator.add_block(state, block)
        return self.finish(state, window)


def aggregate_module(aggregates: Sequence[WindowAggregate], schema: Schema) -> WindowModule:
    """Return the module of the aggregates of one window, over rows of ``schema``."""
    kept = [aggregate for aggregate in aggregates if isinstance(aggregate, AccumulatedAggregate)]
    if len(kept) < len(aggregates):
        return AggregateSet(aggregates, schema)
    is_mergeable = all(aggregate.accumulator.is_mergeable for aggregate in kept)
    return MergeableAggregateList(kept) if is_mergeable else AggregateList(kept)


class AggregateSet(WindowModule):
    """Aggregates over the set of a window's events."""

    def __init__(self, aggregates: Sequence[WindowAggregate], schema: Schema) -> None:
        self._aggregates = aggregates
        self.takes_blocks = all(one.takes_blocks for one in aggregates)
        self._key = order_key(schema)
        self.shown, self.reads_events, self.starts_only, self.reads_window = _facts(aggregates)

    def compute(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Sequence[Values]:
        """Return one row. Each aggregate gets the events in the order for what it reads, and not for what others do."""
        key = self._key
        by_row = by_start = events
        if self.reads_events:
            by_row = sorted(events, key=lambda event: key(event.row))
            by_start = sorted(by_row, key=lambda event: event.vs)
        orders = [by_start if one.starts_only else events if one.reads_events else by_row for one in self._aggregates]
        return [tuple(one.over(ordered, window) for one, ordered in zip(self._aggregates, orders, strict=True))]

    def compute_blocks(self, blocks: Sequence[RowBlock], window: WindowDescriptor) -> Sequence[Values]:
        """Return one row, as ``compute`` for events that came as columns."""
        return [tuple(one.over_blocks(blocks, window) for one in self._aggregates)]


class AggregateList(IncrementalModule):
    """Aggregates from states. The state of a window is a list, with one for each distinct accumulator."""

    def __init__(self, aggregates: Sequence[AccumulatedAggregate]) -> None:
        self.shown, self.reads_events, self.starts_only, self.reads_window = _facts(aggregates)
        kept: dict[Hashable, Accumulator] = {}
        for aggregate in aggregates:
            accumulator = aggregate.accumulator
            before = kept.get(accumulator.identity)
            kept[accumulator.identity] = accumulator if before is None else before.joined(accumulator)
        self._kept = list(kept.values())
        self.is_users = any(accumulator.is_users for accumulator in self._kept)
        self._adds = [accumulator.add for accumulator in self._kept]
        self._removes = [accumulator.remove for accumulator in self._kept]
        places = list(kept)
        self._finishes = [(places.index(one.accumulator.identity), one.finish) for one in aggregates]

    @property
    def accumulators(self) -> Sequence[Accumulator]:
        """What is kept for a window."""
        return self._kept

    def begin(self) -> ModuleState:
        """Return the states of no events."""
        return [accumulator.begin() for accumulator in self._kept]

    def add(self, state: ModuleState, event: Lifetime) -> ModuleState:
        """Add an event to every state."""
        for place, add in enumerate(self._adds):
            state[place] = add(state[place], event)
        return state

    def add_rows(self, state: ModuleState, rows: Sequence[Values]) -> ModuleState:
        """Add rows to every state."""
        return [one.add_rows(part, rows) for one, part in zip(self._kept, state, strict=True)]

    def add_block(self, state: ModuleState, block: RowBlock) -> ModuleState:
        """Add rows as columns to every state."""
        return [one.add_block(part, block) for one, part in zip(self._kept, state, strict=True)]

    def remove(self, state: ModuleState, event: Lifetime) -> ModuleState:
        """Remove an event from every state."""
        for place, remove in enumerate(self._removes):
            state[place] = remove(state[place], event)
        return state

    def result(self, state: ModuleState, window: WindowDescriptor) -> Sequence[Values]:
        """Return one row."""
        return [tuple(finish(state[place], window) for place, finish in self._finishes)]

    def copied(self, state: ModuleState) -> ModuleState:
        """Return states that change independently."""
        return [one.copied(part) for one, part in zip(self._kept, state, strict=True)]

    def state_of(self, state: ModuleState) -> Any:
        """Return the states as plain values."""
        return [one.state_of(part) for one, part in zip(self._kept, state, strict=True)]

    def restore(self, plain: Any) -> ModuleState:
        """Return the states of plain values."""
        return [one.restore(part) for one, part in zip(self._kept, plain, strict=True)]


class MergeableAggregateList(AggregateList, MergeableModule):
    """Aggregates all of whose states can be merged."""

    def merge(self, state: ModuleState, other: ModuleState) -> ModuleState:
        """Return the states of the events of both."""
        return [one.merge(a, b) for one, a, b in zip(self._kept, state, other, strict=True)]


def _facts(aggregates: Sequence[WindowAggregate]) -> tuple[str, bool, bool, bool]:
    """Return name, and what is read of lifetimes and window, of several aggregates together."""
    shown = ", ".join(one.shown for one in aggregates)
    readers = [one for one in aggregates if one.reads_events]
    starts_only = bool(readers) and all(one.starts_only for one in readers)
    return shown, bool(readers), starts_only, any(one.reads_window for one in aggregates)
