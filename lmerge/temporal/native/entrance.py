"""Where a stream enters a plan as columns, on the native core: the same batches, errors and state as in Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lmerge._native import ColumnBatch, ColumnEntrance
from lmerge.core.properties import NOTHING, Properties, closure
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.columns import AnyDelta, as_rows
from lmerge.temporal.entrance import LatePolicy, ProgressRule, StreamEntrance
from lmerge.temporal.native.step import column_form
from lmerge.temporal.open_events import OpenEvents
from lmerge.temporal.values import OrderKey
from lmerge.wire.schema import Schema


class NativeOpenEvents(OpenEvents):
    """The live events of a native entrance, to look at: only the entrance changes them."""

    def __init__(self, name: str, native: ColumnEntrance) -> None:
        super().__init__(name)
        self._native = native

    def __len__(self) -> int:
        return self._native.live()

    def __iter__(self) -> Iterator[Lifetime]:
        for row, vs, _, ve in self._native.events().changes():
            yield Lifetime(row, vs, ve)

    def check(self) -> None:
        """Assert that live events are live and counted."""
        self._native.check()


class NativeEntrance(StreamEntrance):
    """Makes checked batches of a source's changes as columns. ``schema``: of its rows; the rest as in Python."""

    has_columns = True

    def __init__(
        self,
        name: str,
        schema: Schema,
        rule: ProgressRule | None = None,
        late: LatePolicy = LatePolicy.FAIL,
        *,
        has_points: bool = False,
        promises: Properties = NOTHING,
    ) -> None:
        super().__init__(name, rule, late, has_points=has_points, promises=promises)
        self._form = column_form(schema)
        parts = None if rule is None else (rule.delay, rule.every, rule.events)
        self._native = ColumnEntrance(name, self._form, parts, str(late), has_points, sorted(closure(promises)))
        self.live = NativeOpenEvents(name, self._native)

    def take(self, items: Iterable[Change | int]) -> list[Delta]:
        """Return the batches of changes and stable points as rows. Raises as in Python."""
        return [as_rows(batch) for batch in self.batches(items)]

    def batches(self, items: Iterable[Change | int]) -> Sequence[AnyDelta]:
        """Return the batches of changes and stable points as columns. Raises as ``take``."""
        changes: list[Change] = []
        stables: list[tuple[int, int]] = []
        for item in items:
            if isinstance(item, int):
                stables.append((len(changes), item))
            else:
                changes.append(item)
        return self._taken(self._form.batch(changes), stables)

    def take_columns(self, batch: AnyDelta) -> Sequence[AnyDelta]:
        """Return the batches of changes in any form, and of the stable point behind them. Raises as ``take``."""
        if not isinstance(batch, ColumnBatch):
            return super().take_columns(batch)
        return self._taken(batch, [] if batch.stable is None else [(len(batch), batch.stable)])

    def advance(self, latest: int) -> list[Delta]:
        """Take that the source has come to ``latest`` without events that matter; return the batch that follows."""
        found = self._native.advance(latest)
        self.live.stable = self._native.stable
        return [as_rows(batch) for batch in found]

    @property
    def mark(self) -> int:
        """The watermark: the latest start that the source has had, or its stable point if that is later."""
        return self._native.mark

    def state(self, key: OrderKey) -> dict[str, Any]:
        """Return what the entrance has to know to go on: the same plain values as in Python."""
        return self._native.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned, here or in Python. The entrance is a new one."""
        self._native.restore(state)
        self._follow()

    def packed_state(self, key: OrderKey) -> bytes:
        """Return ``state`` as MessagePack."""
        return self._native.packed_state()

    def restore_packed(self, state: bytes) -> None:
        """Take a state that ``packed_state`` has returned, here or in Python. The entrance is a new one."""
        self._native.restore_packed(state)
        self._follow()

    def _follow(self) -> None:
        self.live.stable = self._native.stable
        self.dropped, self.moved = self._native.late

    def _taken(self, changes: ColumnBatch, stables: list[tuple[int, int]]) -> list[ColumnBatch]:
        try:
            return self._native.take(changes, stables)
        finally:
            self.live.stable = self._native.stable
            self.dropped, self.moved = self._native.late
