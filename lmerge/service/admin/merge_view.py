"""What people and dashboards are told of a merge: one moment of it, between two batches.

A merge at work in another thread cannot be looked at; then the moment before it began is told.
"""

from __future__ import annotations

from typing import NamedTuple

from lmerge.core.merge import Counts, InputStatus, Merge


class Observed(NamedTuple):
    """The fields are those of ``Merge``."""

    algorithm: str
    algorithm_reason: str
    stable_point: int
    received: Counts
    emitted: Counts
    late: int
    refused: int
    live_count: int
    inputs: tuple[InputStatus, ...]


def observe(merge: Merge) -> Observed:
    """The merge as it is now."""
    return Observed(
        merge.algorithm, merge.algorithm_reason, merge.stable_point, merge.received, merge.emitted, merge.late,
        merge.refused, merge.live_count, tuple(merge.inputs()),
    )
