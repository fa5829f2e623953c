"""Batches: elements in parallel columns, the input and output unit of the core.

Five columns of equal length. For a stable, ``vs`` holds Vc, and the other columns hold 0 and ``b""``; for an
insert ``vold`` is 0. The wire carries the same columns, so a batch crosses from the network to the core
without one object per element in between.

``Batch`` holds the columns as Python lists. The native core has its own columns (``lmerge._native.Columns``).
``AnyBatch`` is the interface of both; a merge takes and returns it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol, TypeAlias

from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, STABLE, Adjust, Element, Insert, Stable

Row: TypeAlias = tuple[int, int, int, int, bytes]
"""One element as ``(kind, vs, ve, vold, payload)``, the order of the columns."""


class AnyBatch(Protocol):
    """Elements in columns of any kind, immutable. Times have 64 bits."""

    @property
    def count(self) -> int: ...
    @property
    def kinds(self) -> bytes: ...
    @property
    def vs(self) -> list[int]: ...
    @property
    def ve(self) -> list[int]: ...
    @property
    def vold(self) -> list[int]: ...
    @property
    def payloads(self) -> list[bytes]: ...
    def __len__(self) -> int: ...
    def elements(self) -> Iterator[Element]: ...
    def element(self, i: int) -> Element: ...
    def rows(self, start: int = 0) -> Iterator[Row]: ...
    def counts(self, stop: int) -> tuple[int, int, int]: ...
    @property
    def payload_sizes(self) -> tuple[int, int]:
        """The bytes of all payloads together, and of the largest. O(1) for columns of the native core."""

    def end_bounds(self, samples: int) -> tuple[int, int, list[int]]:
        """Return the largest end and former end, the smallest former end, and at most ``samples`` ends of inserts.

        -inf, +inf and none without such elements. The ends are evenly spaced among those of the inserts.
        """


@dataclass(frozen=True, slots=True)
class Batch:
    """Columns of elements as Python lists. Treated as immutable once built.

    ``kinds`` is one byte per element (INSERT, ADJUST, STABLE); the others are lists of the same length.
    """

    kinds: bytes
    vs: list[int]
    ve: list[int]
    vold: list[int]
    payloads: list[bytes]

    @classmethod
    def of(cls, elements: Iterable[Element]) -> Batch:
        """Return the batch of ``elements`` in their order."""
        builder = BatchBuilder()
        for element in elements:
            builder.add(element)
        return builder.build()

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def count(self) -> int:
        """Number of elements."""
        return len(self.kinds)

    def elements(self) -> Iterator[Element]:
        """Yield the elements one by one."""
        for i in range(len(self.kinds)):
            yield self.element(i)

    def element(self, i: int) -> Element:
        """Return the element at index ``i``."""
        return element_of((self.kinds[i], self.vs[i], self.ve[i], self.vold[i], self.payloads[i]))

    def rows(self, start: int = 0) -> Iterator[Row]:
        """Return the elements from index ``start`` on as rows."""
        if start == 0:
            return zip(self.kinds, self.vs, self.ve, self.vold, self.payloads)
        return zip(self.kinds[start:], self.vs[start:], self.ve[start:], self.vold[start:], self.payloads[start:])

    def counts(self, stop: int) -> tuple[int, int, int]:
        """Return the numbers of inserts, adjusts and stables among the first ``stop`` elements."""
        count = self.kinds.count
        return count(INSERT, 0, stop), count(ADJUST, 0, stop), count(STABLE, 0, stop)

    @property
    def payload_sizes(self) -> tuple[int, int]:
        """The bytes of all payloads together, and of the largest."""
        sizes = list(map(len, self.payloads))
        return sum(sizes), max(sizes, default=0)

    def end_bounds(self, samples: int) -> tuple[int, int, list[int]]:
        """Return what ``AnyBatch`` describes."""
        ends = [ve for kind, ve in zip(self.kinds, self.ve, strict=True) if kind == INSERT]
        adjusts = [(ve, vold) for kind, ve, vold in zip(self.kinds, self.ve, self.vold, strict=True) if kind == ADJUST]
        largest = max(chain(ends, *adjusts), default=NEG_INF)
        step = -(-len(ends) // samples) or 1
        return largest, min((vold for _, vold in adjusts), default=INF), ends[::step]


EMPTY: Final = Batch(b"", [], [], [], [])


class BatchBuilder:
    """Collects elements. ``rows`` is public so that hot loops can bind its ``append``.

    One tuple per element, transposed once by ``build``, is about twice as fast as five appends
    (bench/core_r3.py).
    """

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, element: Element) -> None:
        """Append one element."""
        if isinstance(element, Insert):
            self.insert(element.payload, element.vs, element.ve)
        elif isinstance(element, Adjust):
            self.adjust(element.payload, element.vs, element.vold, element.ve)
        else:
            self.stable(element.vc)

    def insert(self, payload: bytes, vs: int, ve: int) -> None:
        self.rows.append((INSERT, vs, ve, 0, payload))

    def adjust(self, payload: bytes, vs: int, vold: int, ve: int) -> None:
        self.rows.append((ADJUST, vs, ve, vold, payload))

    def stable(self, vc: int) -> None:
        self.rows.append((STABLE, vc, 0, 0, b""))

    def extend(self, batch: AnyBatch) -> None:
        """Append a whole batch."""
        self.rows += batch.rows()

    def build(self) -> Batch:
        """Return the batch of all elements collected so far."""
        if not self.rows:
            return EMPTY
        kinds, vs, ve, vold, payloads = zip(*self.rows)
        return Batch(bytes(kinds), list(vs), list(ve), list(vold), list(payloads))


def element_of(row: Row) -> Element:
    """Return the element that a row represents."""
    kind, vs, ve, vold, payload = row
    if kind == INSERT:
        return Insert(payload, vs, ve)
    if kind == ADJUST:
        return Adjust(payload, vs, vold, ve)
    return Stable(vs)
