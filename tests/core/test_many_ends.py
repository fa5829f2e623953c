"""R4 where one (Vs, payload) has many events, and a policy that shows adjusts at once.

The output follows an input in one end of many, so the work of an element must not grow with the number of ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from lmerge.core import r4
from lmerge.core.batch import Batch, BatchBuilder
from lmerge.core.elements import Element, Event
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.testing.streams.merge_inputs import present

POLICIES = ("eager", "quorum:2+adjusts", "leading-input-only+adjusts", "half-frozen-only+adjusts")


def session(seed: int) -> Iterator[tuple[str, list[Element]]]:
    """Return calls by name: three streams of many events with two keys, with ends that are revised."""
    random = Random(seed)
    events = sorted(
        Event(random.choice((1, 1, 4)), b"A", random.randint(5, 60)) for _ in range(random.choice((20, 50)))
    )
    streams = {name: present(random, events) for name in "123"}
    while any(streams.values()):
        name = random.choice([name for name in streams if streams[name]])
        count = random.randint(1, 6)
        yield name, streams[name][:count]
        del streams[name][:count]


def outputs(seed: int, policy: str, engine: str) -> list[Batch]:
    merge = Merge(MergeConfig("r4", policy, engine=engine))
    for name in "123":
        merge.attach(name)
    found = []
    for name, elements in session(seed):
        found.append(merge.apply(name, Batch.of(elements)).batch)
        merge.check()
    return [Batch.of(batch.elements()) for batch in found]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_end_that_is_shown_is_the_one_that_a_look_at_all_of_them_finds(
    policy: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(6):
        with monkeypatch.context() as patch:
            patch.setattr(r4, "SCANNED_MAX", 10**9)
            expected = outputs(seed, policy, "python")
        with monkeypatch.context() as patch:
            patch.setattr(r4, "SCANNED_MAX", 0)
            assert outputs(seed, policy, engine) == expected


class Counted(int):
    """A time that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int.__lt__(self, other)

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int.__eq__(self, other)

    __hash__ = int.__hash__


def comparisons(count: int) -> int:
    """Return the comparisons of ends: two inputs have ``count`` different ends each, and one adjusts all of its own."""
    merge = Merge(MergeConfig("r4", "eager", engine="python"))
    for name in "12":
        merge.attach(name)
    batches = {name: BatchBuilder() for name in "12"}
    for at in range(count):
        batches["1"].insert(b"A", 0, Counted(10_000 + 4 * at))
        batches["2"].insert(b"A", 0, Counted(10_001 + 4 * at))
    for at in range(count):
        batches["2"].adjust(b"A", 0, Counted(10_001 + 4 * at), Counted(10_002 + 4 * (count - at)))
    merge.apply("1", batches["1"].build())
    Counted.compared = 0
    assert merge.apply("2", batches["2"].build()).batch.count == 2 * count
    return Counted.compared


@pytest.mark.python_engine
def test_an_element_costs_no_look_at_all_ends_of_its_key() -> None:
    assert comparisons(800) < 3 * comparisons(400)
