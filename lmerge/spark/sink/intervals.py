"""Computes the intervals of a key from its marks. Pure functions, called by ``elements`` for mode ``intervals``.

A row of such a stream marks a time of its key: a start, an end, or an abort. Rows of one key come in any order, because
a shuffle promises no order, and replicas must not differ by it. So the intervals of a key are a *function of the set
of its marks*, and each batch publishes how the value of that function has changed:

- A start opens an interval, if none is open: insert(p, Vs, inf). Another start before its end is ignored.
- The first end behind it closes it: adjust(p, Vs, inf, Ve). A key can be used again from then on.
- An end without an open interval is *remembered*. Its start may be late, and is then published with its end at once.
  Once the stable point has passed the end, no start before it can be published. The end is then forgotten, and counted
  as unmatched.
- An abort is an end that takes its interval back: adjust(p, Vs, inf, Vs).
- A start and an end at one time, together, are no event. A row with Ve = Vs is no event either, and takes back an
  interval that started then.
- The same mark twice counts once. Of two starts at one time with different payloads the one that came with its end
  counts, else the one with the smaller payload.

    marks      start 1, end 5, start 10          a [1, 5), b [10, inf)
    then       start 3                           the same: an interval is open at 3
    then       end 2                             a [1, 2), the one of 3 [3, 5), b

**Late.** A mark below the stable point S is refused, unless the key has it already. So is a mark that would begin,
remove or rename an interval with Vs < S, such as an abort of it. All other marks change only ends >= S, or intervals
with Vs >= S, so all published elements are legal. Marks up to the last end below S are forgotten: the intervals before
it are frozen, the function begins anew after an end, and no mark can come there any more.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from lmerge.core.batch import Row
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF

# Marks at one time count in this order.
END: Final = 0
ABORT: Final = 1
VOID: Final = 2
WHOLE: Final = 3  # a start that came with its end
START: Final = 4

Mark: TypeAlias = tuple[int, int, bytes]
"""Time, kind, payload of a start."""
Interval: TypeAlias = tuple[int, int, bytes]
"""Vs, Ve, payload."""


class IntervalReading(NamedTuple):
    """The intervals of marks. ``cut``: marks that can be forgotten; ``unmatched``: ends among them without a start."""

    intervals: list[Interval]
    cut: int
    unmatched: int


def read_marks(marks: Sequence[Mark], stable: int = NEG_INF) -> IntervalReading:
    """Return the intervals of ``marks``, which are in order, and how many marks can be forgotten at ``stable``."""
    if len(marks) == 1 and marks[0][1] >= WHOLE:
        return IntervalReading([(marks[0][0], INF, marks[0][2])], 0, 0)
    intervals: list[Interval] = []
    started: Mark | None = None
    void_at = stray_at = None  # no interval begins then; an end closed nothing then
    cut = unmatched = 0
    for count, mark in enumerate(marks, 1):
        t, kind = mark[:2]
        if kind >= WHOLE:
            if t == void_at:
                unmatched -= stray_at == t < stable
                stray_at = None
            elif started is None:
                started = mark
        elif started is None or kind == VOID:
            void_at = t
            if kind != VOID and stray_at != t:
                stray_at = t
                unmatched += t < stable
        else:
            if kind == END:
                intervals.append((started[0], t, started[2]))
            started = None
        if started is None and t < stable:
            cut = count
    if started is not None:
        intervals.append((started[0], INF, started[2]))
    return IntervalReading(intervals, cut, unmatched)


def marks_of(vs: int | None, ve: int | None, payload: bytes, *, aborts: bool = False) -> list[Mark]:
    """Return the marks of a row: a start has ``vs``, an end ``ve``, a whole interval both."""
    if vs is None:
        return [] if ve is None else [(ve, ABORT if aborts else END, b"")]
    if ve is None or ve == INF:
        return [(vs, START, payload)]
    if vs == ve:
        return [(vs, VOID, b"")]
    return [(vs, WHOLE, payload), (ve, ABORT if aborts else END, b"")]


def with_marks(marks: Sequence[Mark], more: Sequence[Mark], stable: int) -> Sequence[Mark] | None:
    """Return ``marks`` with those of one row, ``marks`` itself if it has them already, None if the row is late."""
    if not marks and more[0][0] >= stable:  # those of a row are in order
        return more
    new = [mark for mark in more if mark not in marks]
    if any(mark[0] < stable for mark in new):
        new = [mark for mark in new if mark[0] >= stable or not _is_started(marks, mark)]
        if any(mark[0] < stable for mark in new):
            return None
    if not new:
        return marks
    both = list(marks)
    for mark in new:
        insort(both, mark)
    if marks and marks[0][0] < stable and _begun(marks, stable) != _begun(both, stable):
        return None
    return both


def changes(before: Sequence[Interval], after: Sequence[Interval]) -> list[Row]:
    """Return the elements that change the events ``before`` into ``after``. Adjusts come first."""
    if before == after:
        return []
    if not before:
        return [(INSERT, vs, ve, 0, payload) for vs, ve, payload in after]
    if len(before) == len(after) == 1:
        (vs, old, payload), (now_vs, end, now_payload) = before[0], after[0]
        if vs == now_vs and payload == now_payload:
            return [(ADJUST, vs, end, old, payload)]
    was = {(vs, payload): ve for vs, ve, payload in before}
    now = {(vs, payload): ve for vs, ve, payload in after}
    elements: list[Row] = []
    for (vs, payload), old in was.items():
        end = now.get((vs, payload), vs)
        if end != old:
            elements.append((ADJUST, vs, end, old, payload))
    elements += [(INSERT, vs, ve, 0, payload) for (vs, payload), ve in now.items() if (vs, payload) not in was]
    return elements


def emptied(marks: Sequence[Mark], until: int) -> Sequence[Mark]:
    """Return ``marks`` without the payloads of starts before an end below ``until``.

    Their intervals end there at the latest, whatever marks come. A stream that leaves out what ends before ``until``
    publishes nothing of them any more, and only their times still matter to other intervals.
    """
    ends = [mark[0] for mark in marks if mark[0] < until and mark[1] in (END, ABORT)]
    if not ends:
        return marks
    return list(dict.fromkeys((t, kind, b"" if t < ends[-1] else payload) for t, kind, payload in marks))


def _is_started(marks: Sequence[Mark], mark: Mark) -> bool:
    """Whether ``mark`` is a start that is among ``marks``: rows of ends often repeat their start."""
    t, kind, payload = mark
    return kind >= WHOLE and any(other[0] == t and other[1] >= WHOLE and other[2] == payload for other in marks)


def _begun(marks: Sequence[Mark], stable: int) -> list[tuple[int, bytes]]:
    return [(vs, payload) for vs, _, payload in read_marks(marks).intervals if vs < stable]
