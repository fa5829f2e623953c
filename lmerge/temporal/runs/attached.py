"""How a query has begun that was attached to a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lmerge.temporal.changes import Delta
from lmerge.temporal.plan.beginnings import StreamBeginning


@dataclass(frozen=True)
class AttachedQuery:
    """How a query has begun in a run. ``begins``: of which events its results are right, by result.

    ``first``: the first batch of each result: the live events that it has at its stable point.
    """

    begins: Mapping[str, StreamBeginning]
    first: Mapping[str, Delta]
