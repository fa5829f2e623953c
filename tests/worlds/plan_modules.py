"""Modules for plans of any columns, registered for all tests that import this: a set of rows, and a count that runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from lmerge.temporal.modules.kinds import Operator, TimedOperator
from lmerge.temporal.modules.properties import Properties, Stamped, TimedRow, Window
from lmerge.temporal.modules.registry import MODULES
from lmerge.wire.schema import Schema, SchemaLike


class EachOnce(Operator[tuple[Any, ...]]):
    """Each row once."""

    properties = Properties(insert_only=True)

    def results_schema(self, inputs: Schema) -> Schema:
        return inputs

    def compute(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return [row for at, row in enumerate(rows) if not at or repr(rows[at - 1]) != repr(row)]


class StartedSoFar(TimedOperator[tuple[Any, ...]]):
    """How many events have started so far, from each start in the window to the next one."""

    results: ClassVar[SchemaLike] = {"seen": "int"}
    properties = Properties(reads=("start", "window"), time_bound=True)

    def compute(self, rows: Sequence[TimedRow[tuple[Any, ...]]], window: Window) -> Iterator[Stamped]:
        starts = [max(one.start, window.start) for one in rows]
        distinct = sorted(set(starts))
        for start, end in zip(distinct, [*distinct[1:], window.end], strict=True):
            yield Stamped((sum(one <= start for one in starts),), start, end)


for _module in (EachOnce, StartedSoFar):
    MODULES.named(_module)
