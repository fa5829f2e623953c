"""What of a table is decided at a stable point: two streams of one table may differ in the rest until it is."""

from __future__ import annotations

from collections import Counter

from lmerge.core.elements import INF

Events = Counter[tuple[bytes, int, int]]
"""A table: how often each event is there, as its payload, start and end."""


def decided(events: Events, stable: int) -> Counter[tuple[bytes, int, int | None]]:
    """Return what of a table is decided at a stable point: frozen events, and half-frozen ones without their end."""
    found: Counter[tuple[bytes, int, int | None]] = Counter()
    if stable == INF:
        for (payload, vs, ve), count in events.items():
            found[payload, vs, ve] += count
        return found
    for (payload, vs, ve), count in events.items():
        if vs < stable:
            found[payload, vs, ve if ve < stable else None] += count
    return found
