"""A trace of a run: what went into each operator and came out of it, step by step (S16).

A trace keeps a bounded number of records, the latest ones. It can be of some operators, or of some rows: then it has
the changes of these rows alone, and the steps that have any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from lmerge.core.elements import show_time
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.runs.parts import RunPart
from lmerge.wire.schema import Schema

RowFilter: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""Whether a row, by its columns, is looked for. A row without a column that it reads (KeyError) is not."""

RECORDS_MAX: Final = 1000
_SHOWN_MAX: Final = 20


class TraceRecord(NamedTuple):
    """A step of an operator. ``step``: its number in the run; ``name``: of the operator; ``read``: by its inputs."""

    step: int
    name: str
    read: tuple[Delta, ...]
    found: Delta

    def __str__(self) -> str:
        lines = [f"step {self.step}, {self.name}"]
        for at, delta in enumerate(self.read, 1):
            lines.append(f"    in{f' {at}' if len(self.read) > 1 else ''}: {_shown(delta)}")
        return "\n".join([*lines, f"    out: {_shown(self.found)}"])


class RunTrace:
    """The latest ``records``, at most ``most``. ``operators``: names, or None for all; ``row``: which rows."""

    def __init__(
        self, most: int = RECORDS_MAX, operators: Collection[str] | None = None, row: RowFilter | None = None
    ) -> None:
        self.records: deque[TraceRecord] = deque(maxlen=most)
        self.dropped = 0
        self._operators = None if operators is None else frozenset(operators)
        self._row = row

    def note(self, step: int, part: RunPart, read: Sequence[Delta], found: Delta) -> None:
        """Take a step of an operator into the trace, if it is looked for."""
        if self._operators is not None and part.name not in self._operators:
            return
        if self._row is not None:
            read = [self._selected(delta, node.schema) for delta, node in zip(read, part.reads, strict=True)]
            found = self._selected(found, part.result.schema)
            if not any(delta.changes for delta in (*read, found)):
                return
        self.dropped += len(self.records) == self.records.maxlen
        self.records.append(TraceRecord(step, part.name, tuple(read), found))

    def __str__(self) -> str:
        lines = [f"({self.dropped} earlier steps were dropped)"] if self.dropped else []
        return "\n".join([*lines, *map(str, self.records)])

    def _selected(self, delta: Delta, schema: Schema) -> Delta:
        names = schema.names
        return delta._replace(changes=[change for change in delta.changes if self._is_selected(names, change)])

    def _is_selected(self, names: Sequence[str], change: Change) -> bool:
        assert self._row is not None
        try:
            return bool(self._row(dict(zip(names, change.row, strict=True))))
        except KeyError:
            return False


def _shown(delta: Delta) -> str:
    shown = [str(change) for change in delta.changes[:_SHOWN_MAX]]
    if len(delta.changes) > _SHOWN_MAX:
        shown.append(f"{len(delta.changes) - _SHOWN_MAX} more")
    if delta.stable is not None:
        shown.append(f"stable({show_time(delta.stable)})")
    return ", ".join(shown) or "nothing"
