"""Span operators: filter, project, map, and other lifetimes, event by event (II.D.1; sheets O1, O2, O11, O12).

A chain of them runs in one pass. Predicates and functions see rows alone: with a predicate on lifetimes an adjust
could change what is in the output below the stable point. Alterations see lifetimes alone. So a chain is two pipelines,
one of rows and one of lifetimes, and the order between the two makes no difference.

The lifetime comes first: after feedback an event whose result ends too early is left out before any function is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, TypeAlias

from lmerge.core.elements import NEG_INF
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.errors import ModuleViolation
from lmerge.temporal.operators.lifetimes import AlterLifetime
from lmerge.temporal.operators.skipping import SkippedEvents, SkippingOperator
from lmerge.temporal.operators.truth import is_kept
from lmerge.temporal.user_code import is_interrupt
from lmerge.temporal.values import OrderKey, Values


class NotDeterministic(ModuleViolation):
    """A function gave two results for one row. It ends the query, whatever becomes of rows that fail."""


@dataclass(frozen=True)
class KeepRows:
    """A filter. ``predicate`` returns True, False or None, which is false. ``shown``: it, for messages.

    ``drops_failed``: a row for which it raises is dropped and counted; else the step fails. ``together``: the same for
    several rows at once, if that is cheaper and no row is dropped.
    """

    predicate: Callable[[Values], Any]
    shown: str = "a predicate"
    drops_failed: bool = False
    together: Callable[[Sequence[Values]], list[Any]] | None = None


@dataclass(frozen=True)
class MapRows:
    """A projection or a map: one row for each row; equal results stay several events. As ``KeepRows``."""

    function: Callable[[Values], Values]
    shown: str = "a function"
    drops_failed: bool = False
    together: Callable[[Sequence[Values]], list[Values]] | None = None


def rechecked(evaluate: Callable[[Values], Any], name: str, functions: Sequence[str]) -> Callable[[Values], Any]:
    """Return what computes ``evaluate`` twice. It raises ModuleViolation, with ``functions``, if the results differ."""

    def compute(row: Values) -> Any:
        found, again = evaluate(row), evaluate(row)
        if repr(found) != repr(again):
            called = f"function{'s' * (len(functions) > 1)} {', '.join(map(repr, functions))}"
            raise NotDeterministic(
                f"{name}: {called} declared deterministic gave {found!r:.100} and {again!r:.100} for the row {row}"
            )
        return found

    return compute


SpanPart: TypeAlias = KeepRows | MapRows | AlterLifetime


class SpanOperator(SkippingOperator):
    """A chain of span operators. ``failed``: how many events were dropped because a function raised.

    Raises ModuleViolation from ``step`` if a function raises, or a predicate returns what is no truth value. A row
    that is dropped is dropped with every change of its event, which is counted once.
    """

    def __init__(self, name: str, input_key: OrderKey, output_key: OrderKey, parts: Sequence[SpanPart]) -> None:
        self._alterations = [part for part in parts if isinstance(part, AlterLifetime)]
        self._row_parts = [part for part in parts if not isinstance(part, AlterLifetime)]
        skip = SkippedEvents(input_key, self._altered if self._alterations else None)
        super().__init__(name, output_key, [skip])
        self._drops = any(part.drops_failed for part in self._row_parts)
        self._failed = 0

    @property
    def failed(self) -> int:
        """How many events were dropped because a function raised."""
        return self._failed

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values."""
        return super().state() | ({"failed": self._failed} if self._drops else {})

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        super().restore(state)
        self._failed = state.get("failed", 0)

    def _step(self, deltas: Sequence[Delta]) -> Delta:
        (delta,) = deltas
        changes = self._results(self._lifetimes(delta.changes))
        stable = delta.stable
        if stable is not None:
            for part in self._alterations:
                stable = part.stable(stable)
        return self._emit_merged(changes, stable)

    def fast_forward(self, t: int) -> list[int]:
        """Learn that the consumer needs no event that ends before ``t``; return the same for the input."""
        (needed,) = super().fast_forward(t)
        for part in reversed(self._alterations):
            needed = part.needed(needed) if needed > NEG_INF else needed
        return [needed]

    def mark_of(self, mark: int) -> int:
        """Return the watermark of the output: as much later as the stable point."""
        for part in self._alterations:
            mark = part.stable(mark)
        return mark

    def _lifetimes(self, changes: Sequence[Change]) -> Sequence[Change]:
        """Return changes with the lifetimes of results, and the rows that came."""
        if not self._alterations:
            return changes
        return [Change(row, *moved) for row, vs, old, new in changes for moved in self._moved(vs, old, new)]

    def _results(self, changes: Sequence[Change]) -> list[Change]:
        """Return changes with the rows of results, less those that are filtered out.

        If some rows fail together, the first that fails alone decides.
        """
        if any(part.together is not None for part in self._row_parts):
            try:
                return self._together(changes)
            except ModuleViolation:
                found = self._one_by_one(changes)
                if self._drops:
                    return found
                raise
        return self._one_by_one(changes)

    def _one_by_one(self, changes: Sequence[Change]) -> list[Change]:
        found = []
        for row, vs, old, new in changes:
            result = self._row(row, is_new=old == vs)
            if result is not None:
                found.append(Change(result, vs, old, new))
        return found

    def _together(self, changes: Sequence[Change]) -> list[Change]:
        """Take each part for all rows that are left: a vectorised function is called once for them."""
        rows, kept = [change.row for change in changes], changes
        for part in self._row_parts:
            if isinstance(part, MapRows):
                rows = list(map(part.function, rows)) if part.together is None else part.together(rows)
                continue
            truths = list(map(part.predicate, rows)) if part.together is None else part.together(rows)
            is_left = [is_kept(truth, self.name, part.shown, row) for truth, row in zip(truths, rows, strict=True)]
            rows, kept = list(compress(rows, is_left)), list(compress(kept, is_left))
        return [Change(row, vs, old, new) for row, (_, vs, old, new) in zip(rows, kept, strict=True)]

    def _altered(self, vs: int, ve: int) -> tuple[int, int]:
        for part in self._alterations:
            if ve > vs:
                vs, ve = part.altered(vs, ve)
        return vs, max(vs, ve)

    def _moved(self, vs: int, old: int, new: int) -> Iterator[tuple[int, int, int]]:
        """Yield what an adjust becomes as (start, end before, end after); nothing if the result stays as it is."""
        start, before = self._altered(vs, old) if old > vs else (vs, vs)
        later, after = self._altered(vs, new) if new > vs else (vs, vs)
        if start == later:
            if before != after:
                yield start, before, after
            return
        if before > start:
            yield start, before, start
        if after > later:
            yield later, later, after

    def _row(self, row: Values, *, is_new: bool) -> Values | None:
        """Return the result for a row, or None if it is filtered out. ``is_new``: whether its event is."""
        for part in self._row_parts:
            is_filter = isinstance(part, KeepRows)
            try:
                result = part.predicate(row) if isinstance(part, KeepRows) else part.function(row)
            except NotDeterministic:
                raise
            except BaseException as error:
                if is_interrupt(error):
                    raise
                if part.drops_failed and (isinstance(error, ModuleViolation) or not isinstance(error, LmergeError)):
                    self._failed += is_new
                    return None
                if isinstance(error, LmergeError):
                    raise
                raise ModuleViolation(f"{self.name}: {part.shown} raised {error!r} for the row {row}") from error
            if not is_filter:
                row = result
            elif not is_kept(result, self.name, part.shown, row):
                return None
        return row
