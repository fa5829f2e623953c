"""An attempt at a partition, from its rows to its part in the spool. What an executor calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from lmerge.spark.sink.elements import RowPlan, Tally, turner_of
from lmerge.spark.spool.manifest import SpoolPart
from lmerge.spark.spool.published_state import PublishedState
from lmerge.spark.spool.spool import Spool


@dataclass(frozen=True)
class RowsWritten:
    """What came of it. ``stable``: the largest among the rows (mode ``elements``); None: none."""

    part: SpoolPart
    tally: Tally
    stable: int | None


def write_rows(
    spool: Spool, plan: RowPlan, batch: int, partition: int, attempt: int, rows: Iterable[Any],
    also: Callable[[bytes], None] | None = None,
) -> RowsWritten:
    """Turn record batches into elements and write them, as they come, then what a keyed plan has said. ``also`` gets
    the messages of the part as they are written.

    Nothing counts before it is committed, so an attempt can fail anywhere, and another can be made. Raises InvalidRow,
    InputViolation (a late row), LimitExceeded (a payload), UsageError, and what the spool raises.
    """
    said = PublishedState.load(spool, partition, batch - 1) if plan.is_keyed else None
    stable, skipped = spool.last_stable(batch), spool.skips_to(batch)
    turner = turner_of(plan, stable, said, skipped)
    part = spool.write_part(batch, partition, attempt, map(turner.take, rows), also=also)
    if said is not None:
        part = replace(part, said=said.write(batch, attempt, turner.kept, skips=skipped > stable))
    return RowsWritten(part, turner.tally, turner.stable)
