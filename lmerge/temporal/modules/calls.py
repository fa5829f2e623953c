"""Calls of users' modules: which rows they get for a window, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.columns import RowBlock
from lmerge.temporal.errors import PlanError
from lmerge.temporal.modules.arguments import Argument
from lmerge.temporal.modules.edge import BlockRows, Given, RowMaker, guarded
from lmerge.temporal.modules.kinds import UserModule
from lmerge.temporal.modules.properties import Window
from lmerge.temporal.python_values import python_form
from lmerge.temporal.windows.kinds import WindowDescriptor, WindowKind
from lmerge.wire.schema import Column


@dataclass(frozen=True)
class WindowContext:
    """What a module learns of its windows beside their ends: their kind, and the columns of their group's key.

    ``keeps_empty``: whether windows without events can have results.
    """

    kind: WindowKind | None = None
    key: Sequence[Column] = ()
    keeps_empty: bool = False


NO_EMPTY_WINDOWS: Final = "there are such windows only on a grid with since= that has no groups"


class ModuleCalls:
    """Calls of a module for windows of one kind, with arguments over rows of one schema. Raises PlanError."""

    def __init__(self, module: UserModule, arguments: Sequence[Argument], context: WindowContext) -> None:
        if not module.properties.deterministic:
            raise PlanError(f"{module.shown} is declared not deterministic: replicas of a plan would differ")
        self.takes_empty = not module.properties.empty_preserving
        if self.takes_empty and not context.keeps_empty:
            raise PlanError(f"{module.shown} declares results of windows without events: {NO_EMPTY_WINDOWS}")
        self.maker = RowMaker(module, arguments)
        self.arguments = tuple(arguments)
        self._module: Any = module
        self._is_timed = module.is_timed
        self._kind = context.kind
        self._key_forms = [python_form(column) for column in context.key]
        self.reads_window = module.is_timed and "window" in module.properties.reads
        self.reads_events = self.maker.reads_start or self.maker.reads_end
        self.starts_only = self.reads_events and not self.maker.reads_end

    def over(self, events: Sequence[Lifetime], window: WindowDescriptor, finish: Callable[[Any], Any]) -> Any:
        """Return ``finish`` of what the module computes over a set of events, or None if none of them is for it."""
        if self._is_timed:
            given: Sequence[Given] = [one for one in map(self.maker.given, events) if one is not None]
        else:
            given = self.maker.given_of_rows([event.row for event in events])
        return self.computed(self.maker.rows(given), window, events, finish) if given or self.takes_empty else None

    def over_blocks(self, blocks: Sequence[RowBlock], window: WindowDescriptor, finish: Callable[[Any], Any]) -> Any:
        """Return what ``over`` returns for events that came as columns."""
        given = BlockRows(self.maker, blocks)
        return self.computed(self.maker.rows(given), window, given, finish)

    def computed(
        self, given: Any, window: WindowDescriptor, events: Sequence[Given], finish: Callable[[Any], Any]
    ) -> Any:
        """Return ``finish`` of what the module computes from rows or a state. Raises ModuleViolation."""
        module = self._module
        arguments = (given, self._window(window)) if module.is_timed else (given,)
        return guarded(module.shown, f" in window {window}", events, lambda: finish(module.compute(*arguments)))

    def _window(self, window: WindowDescriptor) -> Window:
        """Return what the module gets to see of a window."""
        key = window.key
        if any(self._key_forms):
            pairs = zip(self._key_forms, key, strict=True)
            key = tuple(value if form is None else form(value) for form, value in pairs)
        if not self.reads_window:
            return Window(kind=self._kind, key=key)
        return Window(window.start, window.end, self._kind, key)
