"""One input of a comparison: the intervals that it has completed, in its lives, and how often it equalled the others.

``DivergenceMonitor`` keeps one for each name, and compares them.
"""

from __future__ import annotations

from typing import NamedTuple

from lmerge.core.divergence.digests import ALL, ZERO, Digest, Digests
from lmerge.core.elements import NEG_INF
from lmerge.core.inputs import InputRole


class DivergenceReport(NamedTuple):
    """The result of the comparison for one input.

    ``compared``: number of compared intervals. ``equal``: number of those in which the input equalled the majority,
    or all others where there is no majority. ``in_row``: equal intervals in a row, up to the last compared one.
    ``problem``: why the input is not compared; empty if it is compared.
    """

    name: str
    compared: int
    equal: int
    in_row: int
    problem: str = ""


class ComparedInput:
    """The open intervals of the current life of one name, and the completed intervals of all its lives.

    ``interval``, ``open_max``: as in ``DivergenceMonitor``, for the report.
    """

    def __init__(self, name: str, interval: int, open_max: int) -> None:
        self.name = name
        self._interval = interval
        self._open_max = open_max
        self.incarnation = 0
        self.role: InputRole = InputRole.ACTIVE
        self.attached = False
        self.digests: Digests | None = None
        self.first: int = ALL  # the current life is right for intervals from here on
        self.completed: int = NEG_INF  # the current life has completed the intervals below this one
        self.life = 0
        self.overflowed = False  # a copy of ``digests.overflowed``: another thread may be changing ``digests``
        self.spans: list[tuple[int, int, int]] = []  # completed before the life or a skip began: [from, to), life
        self.done: dict[int, Digest] = {}  # completed intervals that are not empty
        self.is_equal: dict[int, bool] = {}  # by interval, for the intervals that are kept
        self.past = DivergenceReport(name, 0, 0, 0)  # the counts of the intervals that are not kept any more

    def covers(self, index: int) -> bool:
        """Return whether the input has completed the interval and is right for it."""
        return self.life_of(index) > 0

    def life_of(self, index: int) -> int:
        """Return the life in which the input completed the interval; 0 if it has not completed it."""
        if self.first <= index < self.completed:
            return self.life
        return next((life for start, end, life in self.spans if start <= index < end), 0)

    def digest(self, index: int) -> Digest:
        return self.done.get(index, ZERO)

    @property
    def is_comparable(self) -> bool:
        return self.digests is not None and not self.overflowed

    def end_life(self) -> None:
        """End the current life. What it has completed stays, for comparison with other inputs."""
        self.save_span()
        self.attached = False
        self.digests = None
        self.first, self.completed = ALL, NEG_INF

    def save_span(self) -> None:
        """Keep the span of completed intervals that begins at ``first``. Called before ``first`` changes."""
        if self.first < self.completed:
            self.spans.append((self.first, self.completed, self.life))

    def begin_life(self, first: int) -> None:
        """Begin a life, which delivers the intervals from ``first`` on again."""
        self.life += 1
        self.overflowed = False
        self.spans = [(start, min(end, first), life) for start, end, life in self.spans if start < first]
        self.done = {index: digest for index, digest in self.done.items() if index < first}
        self.first, self.completed = first, NEG_INF

    def forget_below(self, bound: int) -> None:
        self.spans = [span for span in self.spans if span[1] > bound]
        self.done = {index: digest for index, digest in self.done.items() if index >= bound}
        for index in sorted(index for index in self.is_equal if index < bound):
            equal = self.is_equal.pop(index)
            name, compared, before, in_row, _ = self.past
            self.past = DivergenceReport(name, compared + 1, before + equal, in_row + 1 if equal else 0)

    def report(self) -> DivergenceReport:
        """Return the result of the comparison so far."""
        in_row = 0
        for index in sorted(self.is_equal, reverse=True):
            if not self.is_equal[index]:
                break
            in_row += 1
        else:
            in_row += self.past.in_row
        compared, equal = self.past.compared + len(self.is_equal), self.past.equal + sum(self.is_equal.values())
        return DivergenceReport(self.name, compared, equal, in_row, self._problem())

    def in_life(self) -> tuple[int, int]:
        """Return the equal intervals in a row up to now, and all unequal ones, that the current life has completed."""
        mine = [self.is_equal[index] for index in sorted(self.is_equal) if self.first <= index < self.completed]
        return next((n for n, equal in enumerate(reversed(mine)) if not equal), len(mine)), mine.count(False)

    def _problem(self) -> str:
        if not self.attached or self.is_comparable:
            return ""
        return f"more than {self._open_max} intervals of {self._interval} were open at once; compare longer ones"
