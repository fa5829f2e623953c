"""The state of a merge for status and metrics, as of one moment between two batches.

While another thread works on the merge it cannot be read. The state before that work began is reported then.
"""

from __future__ import annotations

from typing import NamedTuple

from lmerge.core.merge import Counts, InputStatus, Merge


class Observed(NamedTuple):
    """The state of a merge. The fields are those of ``Merge``."""

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
    """Return the state of the merge as it is now."""
    return Observed(
        merge.algorithm,
        merge.algorithm_reason,
        merge.stable_point,
        merge.received,
        merge.emitted,
        merge.late,
        merge.refused,
        merge.live_count,
        tuple(merge.inputs()),
    )
