"""Streams of a probe for the tests of the drill's judge, made without lmerge."""

from __future__ import annotations

import random

from lmerge_controller.drill.judging.judge import ADJUST, INSERT, STABLE, DeliveredElement
from lmerge_controller.drill.judging.truth import ProbeTruth, TrueEvent

TRUTH = ProbeTruth(origin_us=1_700_000_000_000_000, events_per_s=1_000, seed=7, life_min=5, life_max=30)


def insert(event: TrueEvent, ve: int | None = None) -> DeliveredElement:
    return DeliveredElement(INSERT, event.vs, event.ve if ve is None else ve, 0, event.payload)


def adjust(event: TrueEvent, vold: int, ve: int) -> DeliveredElement:
    return DeliveredElement(ADJUST, event.vs, ve, vold, event.payload)


def stable(vc: int) -> DeliveredElement:
    return DeliveredElement(STABLE, vc)


def right_stream(count: int, salt: int = 0) -> list[DeliveredElement]:
    """Return a legal stream of the first ``count`` events, some revised, some late, with stables between them."""
    chance = random.Random(salt)
    timed: list[tuple[int, int, DeliveredElement]] = []
    for number in range(count):
        event = TRUTH.event(number)
        at = event.vs + chance.choice([0, 0, 2]) * TRUTH.step_us
        if chance.random() < 0.3:
            late = event.ve + 3 * TRUTH.step_us
            timed.append((at, 0, insert(event, late)))
            timed.append((at + TRUTH.step_us, 0, adjust(event, late, event.ve)))
        else:
            timed.append((at, 0, insert(event)))
    for number in range(4, count, 5):
        at = TRUTH.start(number)
        timed.append((at, 1, stable(at - 3 * TRUTH.step_us)))
    return [element for _, _, element in sorted(timed, key=lambda entry: entry[:2])] + [stable(TRUTH.end(count))]
