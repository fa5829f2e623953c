"""Converts the rows of one attempt at a partition and writes them as its part in the spool. Executors call this."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from lmerge.spark.frames import Report
from lmerge.spark.sink.elements import RowPlan, RowTally, converter_of
from lmerge.spark.spool.manifest import SpoolPart
from lmerge.spark.spool.published_state import PublishedState
from lmerge.spark.spool.spool import Spool


@dataclass(frozen=True)
class RowsWritten:
    """The result of an attempt.

    ``stable``: the largest among the rows that hold elements; None: there is none. ``reports``: of shards of a merge.
    """

    part: SpoolPart
    tally: RowTally
    stable: int | None
    reports: tuple[Report, ...]


def write_rows(
    spool: Spool,
    plan: RowPlan,
    batch: int,
    partition: int,
    attempt: int,
    rows: Iterable[Any],
    on_message: Callable[[bytes], None] | None = None,
) -> RowsWritten:
    """Convert record batches into elements and write them as they come, then write the keyed state.

    ``on_message`` receives the messages of the part as they are written. Nothing counts before it is committed, so an
    attempt can fail anywhere, and another can be made. Raises InvalidRow, InputViolation (a late row), LimitExceeded (a
    payload), UsageError, and what the spool raises.
    """
    state = PublishedState.load(spool, partition, batch - 1) if plan.is_keyed else None
    stable, skipped = spool.last_stable(batch), spool.skips_to(batch)
    converter = converter_of(plan, stable, state, skipped)
    part = spool.write_part(
        batch,
        partition,
        attempt,
        map(converter.take, chain.from_iterable(map(converter.parts, rows))),
        on_message=on_message,
    )
    if state is not None:
        part = replace(part, keyed_state=state.write(batch, attempt, converter.kept, skips=skipped > stable))
    return RowsWritten(part, converter.tally, converter.stable, tuple(converter.reports))
