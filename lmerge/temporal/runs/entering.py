"""Which entrance a source of a run has: one of columns, where all that reads it takes columns."""

from __future__ import annotations

from collections.abc import Iterable

from lmerge.temporal.changes import is_time
from lmerge.temporal.columns import ColumnOperator
from lmerge.temporal.entrance import StreamEntrance
from lmerge.temporal.plan.sources import SourceNode, SourceShape
from lmerge.temporal.runs.parts import RunPart
from lmerge.temporal.runs.settings import SourceSettings


def new_entrance(source: SourceNode, settings: SourceSettings, readers: Iterable[RunPart]) -> StreamEntrance:
    """Return the entrance of a source. ``readers``: what reads it; none if a reader needs rows."""
    (rule, late), label = (settings.rule, settings.late), source.label
    has_points, promises = source.shape is SourceShape.POINT, source.promises
    operators = [part.operator for part in readers]
    is_small = rule is None or all(map(is_time, (rule.delay, rule.every, rule.events)))
    if operators and is_small and all(isinstance(operator, ColumnOperator) for operator in operators):
        from lmerge.temporal.native.entrance import NativeEntrance

        return NativeEntrance(label, source.schema, rule, late, has_points=has_points, promises=promises)
    return StreamEntrance(label, rule, late, has_points=has_points, promises=promises)
