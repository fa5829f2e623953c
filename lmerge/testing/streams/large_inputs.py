"""Large inputs of merges, as batches, after the paper's VI.B: StableFreq, EventDuration, Disorder, payload size.

Every input has the same table, in an order of its own: events of one duration at one distance. Disorder moves a share
of the elements back; a share of the events first gets a wrong end. The words are those of ``Facets``, and only numbers
differ, so that a million events take seconds.

Called by benchmarks and by tests of costs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from lmerge.core.batch import Batch, BatchBuilder, Row
from lmerge.core.elements import ADJUST, INSERT
from lmerge.errors import UsageError
from lmerge.testing.streams.facets import Facets

STEP: Final = 10
"""Time units between the starts of consecutive events."""
LARGE: Final = Facets(
    events=100_000,
    pattern="periodic",
    alive=10_000,
    disorder="out-of-order",
    displaced=0.2,
    places=200,
    revisions="shrink",
    revised=0.0,
    liveliness="lazy",
    stables=0.01,
)
"""What large inputs are like, if nothing else is asked for; ``replace`` changes its numbers."""
ALIVE_TO_PLACES: Final = 10
"""How many times as many events are alive, at least, as the places by which an element is displaced."""


@dataclass(frozen=True)
class LargeInputs:
    """What to generate. ``facets``: ``LARGE`` with other numbers; ``payload_bytes``: random bytes of each event.

    Raises UsageError for facets with other words than ``LARGE``.
    """

    facets: Facets = LARGE
    payload_bytes: int = 16
    inputs: int = 3
    batch_rows: int = 512
    seed: int = 1

    def __post_init__(self) -> None:
        numbers = ("events", "alive", "displaced", "places", "revised", "stables")
        if replace(self.facets, **{name: getattr(LARGE, name) for name in numbers}) != LARGE:
            raise UsageError(f"large inputs have other numbers than LARGE, and its words: {self.facets.to_json()}")

    @property
    def places(self) -> int:
        """How far back, in events, disorder moves an element."""
        return int(max(1, min(self.facets.number("places"), self.facets.number("alive") // ALIVE_TO_PLACES)))

    def batches(self) -> list[list[Batch]]:
        """Return the batches of every input."""
        random = Random(self.seed)
        payloads = [random.randbytes(self.payload_bytes) for _ in range(self.facets.events)]
        return [self._presented(payloads, Random(self.seed * 1000 + at)) for at in range(self.inputs)]

    def _presented(self, payloads: list[bytes], random: Random) -> list[Batch]:
        places = self.places if self.facets.displaced else 0
        rows = self._rows(payloads, random, places)
        stables = self.facets.number("stables")
        every = max(1, round(1 / stables)) if stables else 0
        batches, builder = [], BatchBuilder()
        for count, (position, row) in enumerate(rows, 1):
            builder.rows.append(row)
            if every and count % every == 0:
                builder.stable(max(0, (int(position) - places) * STEP))
            if len(builder) >= self.batch_rows:
                batches.append(builder.build())
                builder = BatchBuilder()
        builder.stable(self.facets.events * STEP)
        return [*batches, builder.build()]

    def _rows(self, payloads: list[bytes], random: Random, places: int) -> list[tuple[float, Row]]:
        """Return the rows in the order in which they come, each with its position."""
        duration = int(self.facets.number("alive")) * STEP
        displaced, revised = self.facets.number("displaced"), self.facets.number("revised")
        rows: list[tuple[float, Row]] = []
        for at, payload in enumerate(payloads):
            vs = at * STEP
            position = float(at)
            if random.random() < displaced:
                position += random.randint(1, places)
            end = vs + duration
            copy = bytes(bytearray(payload))  # every input has bytes of its own, as from a network
            if random.random() < revised:
                rows.append((position, (INSERT, vs, end + STEP, 0, copy)))
                rows.append((position + 0.5, (ADJUST, vs, end, end + STEP, copy)))
            else:
                rows.append((position, (INSERT, vs, end, 0, copy)))
        rows.sort(key=lambda item: item[0])
        return rows
