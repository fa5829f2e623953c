"""The events of a probe stream: any process computes event number i, so nobody needs a copy of the stream.

The publishers of the probe and the judge use it. Its times are microseconds since the epoch. Event 0 is due at the
origin, and a further event every ``step_us``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

SECOND_US: Final = 1_000_000
_MASK: Final = 2**64 - 1
_PAYLOAD: Final = re.compile(r"probe-([0-9a-f]{16})-(0|[1-9][0-9]{0,15})")


class TrueEvent(NamedTuple):
    """An event of the probe stream, as it must be in the end: the payload with the lifetime [vs, ve)."""

    number: int
    vs: int
    ve: int
    payload: str


def mixed(number: int) -> int:
    """Return 64 bits that look random and are the same in every process (splitmix64)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


@dataclass(frozen=True)
class ProbeTruth:
    """The events of a probe: one every ``step_us``, alive for ``life_min`` to ``life_max`` steps.

    ``origin_us``: the start of event 0. ``seed``: another seed gives other payloads and lifetimes.
    """

    origin_us: int
    events_per_s: int = 500
    seed: int = 1
    life_min: int = 40
    life_max: int = 1_000

    @property
    def step_us(self) -> int:
        """Microseconds from the start of an event to that of the next."""
        return SECOND_US // self.events_per_s

    def event(self, number: int) -> TrueEvent:
        """Return event ``number``, counted from 0."""
        bits = mixed(number ^ self.seed << 40)
        vs = self.start(number)
        life = self.life_min + bits % (self.life_max - self.life_min)
        return TrueEvent(number, vs, vs + life * self.step_us, f"probe-{bits:016x}-{number}")

    def start(self, number: int) -> int:
        """Return the start of event ``number`` in microseconds, without computing the event."""
        return self.origin_us + number * self.step_us

    def due(self, time_us: int) -> int:
        """Return how many events have started by ``time_us``: the number of the first that has not."""
        return max(0, (time_us - self.origin_us) // self.step_us + 1)

    def number_of(self, payload: str, vs: int) -> int | None:
        """Return the number of the event with this payload and start. None: the stream has no such event."""
        match = _PAYLOAD.fullmatch(payload)
        if match is None:
            return None
        number = int(match[2])
        event = self.event(number)
        return number if (event.payload, event.vs) == (payload, vs) else None

    def end(self, count: int) -> int:
        """Return a time after the ends of the first ``count`` events: the last stable of the stream."""
        return self.start(count + self.life_max)
