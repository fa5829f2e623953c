"""Large inputs for benchmarks, after the paper's VI.B: StableFreq, EventDuration, Disorder, payload size.

``workload`` returns every input as batches: the same TDB, each input in an order of its own. Disorder moves a fraction
of the elements back; a fraction of the events first gets a wrong end. About ``live`` events are alive at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from lmerge.core.batch import Batch, BatchBuilder, Row
from lmerge.core.elements import ADJUST, INSERT

STEP = 10  # time units between the starts of consecutive events


@dataclass(frozen=True)
class Workload:
    """What to generate. ``disorder``, ``stables``, ``adjusts`` are fractions of the elements."""

    events: int = 100_000
    live: int = 10_000
    payload_bytes: int = 16
    disorder: float = 0.2
    stables: float = 0.01
    adjusts: float = 0.0
    inputs: int = 3
    batch_rows: int = 512
    seed: int = 1

    @property
    def window(self) -> int:
        """How far back, in events, disorder moves an element."""
        return max(1, min(200, self.live // 10))


def workload(spec: Workload) -> list[list[Batch]]:
    """Return the batches of every input."""
    random = Random(spec.seed)
    payloads = [random.randbytes(spec.payload_bytes) for _ in range(spec.events)]
    return [_presented(spec, payloads, Random(spec.seed * 1000 + at)) for at in range(spec.inputs)]


def _presented(spec: Workload, payloads: list[bytes], random: Random) -> list[Batch]:
    duration = spec.live * STEP
    window = spec.window if spec.disorder else 0
    rows: list[tuple[float, Row]] = []
    for at, payload in enumerate(payloads):
        vs = at * STEP
        position = float(at)
        if random.random() < spec.disorder:
            position += random.randint(1, window)
        end = vs + duration
        copy = bytes(bytearray(payload))  # every input has bytes of its own, as from a network
        if random.random() < spec.adjusts:
            rows.append((position, (INSERT, vs, end + STEP, 0, copy)))
            rows.append((position + 0.5, (ADJUST, vs, end, end + STEP, copy)))
        else:
            rows.append((position, (INSERT, vs, end, 0, copy)))
    rows.sort(key=lambda item: item[0])
    every = max(1, round(1 / spec.stables)) if spec.stables else 0
    batches, builder = [], BatchBuilder()
    for count, (position, row) in enumerate(rows, 1):
        builder.rows.append(row)
        if every and count % every == 0:
            builder.stable(max(0, (int(position) - window) * STEP))
        if len(builder) >= spec.batch_rows:
            batches.append(builder.build())
            builder = BatchBuilder()
    builder.stable(spec.events * STEP)
    return [*batches, builder.build()]
