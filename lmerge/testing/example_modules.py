"""Example modules: the two of seed 000, IV.C, and the pattern operator of III.A.3. Their numbers are in docs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from lmerge.temporal.modules.kinds import Aggregate, TimedAggregate, TimedOperator
from lmerge.temporal.modules.properties import Properties, Stamped, TimedRow, Window
from lmerge.wire.schema import SchemaLike


class MyAverage(Aggregate[float, float]):
    """The average of a column. ``digits``: it is rounded to, if given."""

    inputs: ClassVar[SchemaLike] = {"value": "float"}
    result = "float"

    def __init__(self, digits: int | None = None) -> None:
        self._digits = digits

    def compute(self, rows: Sequence[float]) -> float:
        """Return sum by count."""
        average = sum(rows) / len(rows)
        return average if self._digits is None else round(average, self._digits)


class MyTimeWeightedAverage(TimedAggregate[float, float]):
    """The average of a column in which each value counts for as long as it lasts, by the length of the window."""

    inputs: ClassVar[SchemaLike] = {"value": "float"}
    result = "float"

    def compute(self, rows: Sequence[TimedRow[float]], window: Window) -> float:
        """Return the sum of value times duration, by the duration of the window."""
        return sum(one.row * (one.end - one.start) for one in rows) / (window.end - window.start)


class Signal(NamedTuple):
    """What ``FollowedBy`` takes."""

    kind: str
    key: str


class FollowedBy(TimedOperator[Signal]):
    """The pattern "A followed by B": each A with each B that starts later, from the start of B to the window's end.

    It compares the starts that the events have, so it does not work with left clipping (III.C.1).
    """

    inputs: ClassVar[SchemaLike] = {"kind": "string", "key": "string"}
    results: ClassVar[SchemaLike] = {"first": "string", "second": "string"}
    properties = Properties(reads=("start", "window"), needs=("start",), insert_only=True)

    def __init__(self, first: str = "A", second: str = "B") -> None:
        self._first, self._second = first, second

    def compute(self, rows: Sequence[TimedRow[Signal]], window: Window) -> Iterator[Stamped]:
        """Yield the pairs of keys."""
        for one in rows:
            for other in rows:
                if one.row.kind == self._first and other.row.kind == self._second and one.start < other.start:
                    yield Stamped((one.row.key, other.row.key), max(other.start, window.start), window.end)
