"""The live events of every stream of a run, for queries that are attached to it later."""

from __future__ import annotations

from typing import Any

from lmerge.core.elements import NEG_INF
from lmerge.temporal.changes import Change, Delta, ordered
from lmerge.temporal.open_events import OpenEvents
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.values import order_key


class PlaceTable:
    """The live events of one stream, its stable point and its watermark (``mark``)."""

    def __init__(self, node: PlanNode, live: OpenEvents | None = None) -> None:
        self.live = OpenEvents(node.title) if live is None else live
        self.mark = NEG_INF
        self._key = order_key(node.schema)

    def apply(self, delta: Delta) -> None:
        """Take a batch of the stream."""
        for change in delta.changes:
            self.live.apply(change)
        if delta.stable is not None:
            self.live.move_stable(delta.stable)
        if delta.mark is not None:
            self.mark = max(self.mark, delta.mark)

    def whole(self) -> Delta:
        """Return the live events as a first batch: what a reader gets that begins now."""
        changes = ordered((Change(row, vs, vs, ve) for row, vs, ve in self.live), self._key)
        stable, mark = self.live.stable, self.mark
        return Delta(changes, None if stable == NEG_INF else stable, None if mark == NEG_INF else mark)

    def state(self) -> dict[str, Any]:
        """Return the table as plain values."""
        return {"live": self.live.state(self._key), "mark": self.mark}

    def restore(self, state: dict[str, Any]) -> None:
        """Take what ``state`` has returned. The table is a new one."""
        self.live.restore(state["live"])
        self.mark = state["mark"]
