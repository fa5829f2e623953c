"""Draws that are the same on every version of Python and on every platform.

``random`` promises that of its fractions alone. Whole numbers and choices are made of bits here, so that a seed in a
saved scenario means the same stream for ever.

Called by the generator. Imports nothing of lmerge.
"""

from __future__ import annotations

from hashlib import sha512
from random import Random
from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Choices(Protocol[T_co]):
    """What one can be chosen of."""

    def __len__(self) -> int: ...

    def __getitem__(self, at: int, /) -> T_co: ...


class Draw(Random):
    """A source of draws for a text. Patterns may use ``random``, ``randrange``, ``randint`` and ``choice``."""

    def __new__(cls, text: str) -> Draw:
        """Return a source that is not seeded yet."""
        return super().__new__(cls)

    def __init__(self, text: str) -> None:
        data = text.encode()
        super().__init__(int.from_bytes(data + sha512(data).digest(), "big"))

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Return a whole number from ``start``, or from 0 to below ``start``. Raises ValueError for an empty range."""
        first, last = (0, start) if stop is None else (start, stop)
        count = -((first - last) // step)  # rounded up
        if count <= 0:
            raise ValueError(f"there is no number in {range(first, last, step)}")
        bits = count.bit_length()
        number = self.getrandbits(bits)
        while number >= count:
            number = self.getrandbits(bits)
        return first + number * step

    def randint(self, a: int, b: int) -> int:
        """Return a whole number from ``a`` to ``b``, both included."""
        return self.randrange(a, b + 1)

    def choice(self, seq: Choices[T_co]) -> T_co:
        """Return one of several. Raises ValueError if there is none."""
        return seq[self.randrange(len(seq))]
