"""Windows whose module declares what the output then promises: the run checks it (IV.G, M14).

Over a grid and an input that only inserts, a module that declares ``insert_only`` takes no result away. If events come
in order as well, one that declares ``preserves_order`` makes no result that starts before one that was emitted. What a
plan promises to a merge relies on both, so a module that breaks its declaration ends the query before the merge does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lmerge.core.elements import NEG_INF
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.errors import ModuleViolation
from lmerge.temporal.values import OrderKey, Values
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.window_operator import WindowOperator


class DeclaredWindows(WindowOperator):
    """Windows of a module that declares ``insert_only``. ``is_ordered``: it declares ``preserves_order``, too.

    ``is_ordered`` is for one group of disjoint windows to which results are clipped.
    """

    takes_columns = False

    def __init__(
        self,
        name: str,
        rules: WindowRules,
        output_key: OrderKey,
        key_of: Callable[[Values], Values] | None = None,
        key_order: OrderKey = tuple,
        is_ordered: bool = False,
    ) -> None:
        super().__init__(name, rules, output_key, key_of, key_order)
        self._is_ordered = is_ordered
        self._only_inserts = self._in_order = True  # the input, so far
        self._latest = self._latest_result = NEG_INF  # start

    def _step(self, deltas: Sequence[Delta]) -> Delta:
        for delta in deltas:
            self._note(delta.changes)
        found = super()._step(deltas)
        if self._only_inserts:
            self._check_results(found.changes)
        return found

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values."""
        return super().state() | {"input": [self._only_inserts, self._in_order, self._latest, self._latest_result]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        super().restore(state)
        self._only_inserts, self._in_order, self._latest, self._latest_result = state["input"]

    def _note(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._only_inserts = self._only_inserts and change.is_insert
            self._in_order = self._in_order and change.vs >= self._latest
            self._latest = max(self._latest, change.vs)

    def _check_results(self, changes: Sequence[Change]) -> None:
        shown = self._rules.module.shown
        for change in changes:
            if not change.is_insert:
                raise ModuleViolation(
                    f"{self.name}: {shown} is declared insert_only, and more events have made it {change}"
                )
            if self._is_ordered and self._in_order and change.vs < self._latest_result:
                raise ModuleViolation(
                    f"{self.name}: {shown} is declared preserves_order, and a later event has made it {change}, behind "
                    f"a result from {self._latest_result} on"
                )
            self._latest_result = max(self._latest_result, change.vs)
