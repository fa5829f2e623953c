"""Calls of users' modules: which rows they get for a window, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.errors import PlanError
from lmerge.temporal.modules.arguments import Argument
from lmerge.temporal.modules.edge import RowMaker, guarded, window_of
from lmerge.temporal.modules.kinds import UserModule
from lmerge.temporal.values import order_key
from lmerge.temporal.windows.kinds import WindowDescriptor, WindowKind
from lmerge.wire.schema import Schema


class ModuleCalls:
    """Calls of a module for windows of one kind, over rows of one schema."""

    def __init__(
        self, module: UserModule, arguments: Sequence[Argument], schema: Schema, kind: WindowKind | None
    ) -> None:
        if not module.properties.deterministic:
            raise PlanError(f"{module.shown} is declared not deterministic: replicas of a plan would differ")
        if not module.properties.empty_preserving:
            raise PlanError(f"{module.shown} declares results of windows without events, which no window has")
        self.maker = RowMaker(module, arguments)
        self.arguments = tuple(arguments)
        self._module: Any = module
        self._kind = kind
        self._key = order_key(schema)
        self.reads_window = module.is_timed and "window" in module.properties.reads
        self.reads_events = self.maker.reads_start or self.maker.reads_end
        self.starts_only = self.reads_events and not self.maker.reads_end

    def over(self, events: Sequence[Lifetime], window: WindowDescriptor, finish: Callable[[Any], Any]) -> Any:
        """Return ``finish`` of what the module computes over a set of events, or None if none of them is for it."""
        seen = [self.maker.seen(event) for event in events]
        if self.maker.reads_end and not self.maker.reads_start:
            seen = self.ordered(seen)
        rows = self.maker.rows(seen)
        return self.computed(rows, window, events, finish) if rows else None

    def ordered(self, events: Iterable[Lifetime]) -> list[Lifetime]:
        """Return events in canonical order."""
        key = self._key
        return sorted(events, key=lambda event: (event.vs, event.ve, key(event.row)))

    def computed(
        self, given: Any, window: WindowDescriptor, events: Sequence[Lifetime], finish: Callable[[Any], Any]
    ) -> Any:
        """Return ``finish`` of what the module computes from rows or a state. Raises ModuleViolation."""
        module = self._module
        arguments = (given, window_of(module, window, self._kind)) if module.is_timed else (given,)
        return guarded(module.shown, f" in window {window}", events, lambda: finish(module.compute(*arguments)))
