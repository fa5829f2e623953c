"""A table by (Vs, payload) that counts the bytes of its payloads, so the size of an index is known in O(1)."""

from __future__ import annotations

from typing import TypeVar

Key = tuple[int, bytes]
V = TypeVar("V")


class SizedTable(dict[Key, V]):
    """A dict for assignment, ``del`` and reading; ``payload_bytes``: of its keys. O(1) each."""

    __slots__ = ("payload_bytes",)

    def __init__(self) -> None:
        super().__init__()
        self.payload_bytes = 0

    def __setitem__(self, key: Key, value: V) -> None:
        if key not in self:
            self.payload_bytes += len(key[1])
        super().__setitem__(key, value)

    def __delitem__(self, key: Key) -> None:
        super().__delitem__(key)
        self.payload_bytes -= len(key[1])
