"""The moves by which a replica publishes a flight, in three styles. Pure.

Called by `stream`. Application time is the time of the flights. The model gives the moment of each piece of news:

- the timetable: long before; each style chooses when to announce a flight, at most ``LEAD_MAX`` before Vs
- a cancellation: at Vs, the last moment at which an event can still be taken back without breaking ``stable(Vs)``
- the departure: when it happens
- the arrival: when it happens
- a diversion: when the flight, had it lost no more time, would have arrived

So news of time t never has a Vs, Vold or Ve before t, and ``stable(t)`` at time t is exact. The styles:

- **aggressive** publishes everything at once: the planned arrival as Ve, a revision at a late departure, half an hour
  more whenever the estimate has passed, then the actual arrival. A cancellation takes the event back.
- **conservative** publishes only final events, in order of (Vs, payload): each once it and all before it are final.
  Nothing is ever revised. Its stable point lags behind by the flights that are still in the air.
- **open-ended** publishes ``Ve = INF`` first, at a different lead for each flight and so out of order, and then the
  actual arrival. A cancellation takes the event back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias
from zlib import crc32

from lmerge.core.elements import ADJUST, INF, INSERT
from lmerge_replicas.flights.flight import HOUR, MINUTE, Flight

LEAD = HOUR  # how long before Vs the aggressive style announces a flight; no flight leaves that early
LEAD_MAX = 2 * HOUR  # the longest lead of the open-ended style
LATE = 15 * MINUTE  # a departure at least this late is worth a revision; the usual definition of a delay
HOLD = 30 * MINUTE  # how much later an arrival is expected each time an estimate has passed


class Move(NamedTuple):
    """At application time ``at``: an insert with end ``ve``, or an adjust of the end from ``vold`` to ``ve``."""

    at: int
    kind: int
    vold: int
    ve: int


# The moves of one flight in order of time. The second argument is when it and all flights before it are final.
Moves: TypeAlias = Callable[[Flight, int], Sequence[Move]]


class Style(NamedTuple):
    """A way to publish the flights. ``waits``: the stable point stays below the Vs of flights not yet published."""

    name: str
    summary: str
    properties: tuple[str, ...]
    moves: Moves
    waits: bool


def final_at(flight: Flight) -> int:
    """Return when the end of ``flight`` is final."""
    if flight.departed is None:
        return flight.vs
    if flight.is_diverted:
        return max(flight.planned, flight.planned + flight.departed - flight.vs)
    return flight.ve


def _aggressive(flight: Flight, _settled: int) -> list[Move]:
    vs, estimate = flight.vs, flight.planned
    moves = [Move(vs - LEAD, INSERT, 0, estimate)]
    if flight.departed is None:
        moves.append(Move(vs, ADJUST, estimate, vs))
        return moves
    estimate = _hold(moves, estimate, flight.departed)
    delay = flight.departed - vs
    if delay >= LATE and flight.planned + delay != estimate:
        moves.append(Move(flight.departed, ADJUST, estimate, flight.planned + delay))
        estimate = flight.planned + delay
    final = final_at(flight)
    estimate = _hold(moves, estimate, final)
    if estimate != flight.ve:
        moves.append(Move(final, ADJUST, estimate, flight.ve))
    return moves


def _hold(moves: list[Move], estimate: int, until: int) -> int:
    """Move the estimate to later each time it has passed without news, until the moment ``until``."""
    while estimate < until:
        moves.append(Move(estimate, ADJUST, estimate, estimate + HOLD))
        estimate += HOLD
    return estimate


def _conservative(flight: Flight, settled: int) -> list[Move]:
    return [] if flight.is_cancelled else [Move(settled, INSERT, 0, flight.ve)]


def _open_ended(flight: Flight, _settled: int) -> list[Move]:
    lead = crc32(flight.payload) % (LEAD_MAX // MINUTE + 1) * MINUTE
    moves = [Move(flight.vs - lead, INSERT, 0, INF)]
    if not flight.is_diverted:
        moves.append(Move(final_at(flight), ADJUST, INF, flight.ve))
    return moves


STYLES = {
    style.name: style
    for style in (
        Style("aggressive", "publishes all at once, revises", ("key",), _aggressive, waits=False),
        Style(
            "conservative",
            "publishes only final events",
            ("insert-only", "ordered", "deterministic-ties", "key"),
            _conservative,
            waits=True,
        ),
        Style("open-ended", "Ve = inf first, out of order", ("key",), _open_ended, waits=False),
    )
}
