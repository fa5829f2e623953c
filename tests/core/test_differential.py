"""Compares two algorithms, or an algorithm and a twin, on the same input."""

from __future__ import annotations

from random import Random

import pytest

from lmerge.core.batch import Batch
from lmerge.core.comparison.cleanse import Cleanse
from lmerge.core.elements import Element, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.tdb import reconstitute
from lmerge.testing.listing import ListingR3
from lmerge.testing.merges.declared import PROMISES
from lmerge.testing.streams.merge_inputs import ordered, present, reference

ALL = ("insert-only", "strictly-ordered")


def interleave(random: Random, streams: list[list[Element]]) -> list[tuple[int, Element]]:
    """Return one arrival order of several streams."""
    rest = [list(stream) for stream in streams]
    order = []
    while any(rest):
        at = random.choice([at for at, stream in enumerate(rest) if stream])
        order.append((at, rest[at].pop(0)))
    return order


def output(algorithm: str, order: list[tuple[int, Element]], inputs: int, sizes: Random | None = None) -> list[Element]:
    """Return all output elements; with ``sizes``, runs of one input are merged as one batch of random length."""
    merge = Merge(MergeConfig(algorithm))
    for at in range(inputs):
        merge.attach(str(at), ())
    elements: list[Element] = []
    at = 0
    while at < len(order):
        end = at + 1
        while sizes and end < len(order) and order[end][0] == order[at][0] and sizes.random() < 0.8:
            end += 1
        outcome = merge.apply(str(order[at][0]), Batch.of(element for _, element in order[at:end]))
        assert not outcome.detached
        elements += outcome.batch.elements()
        at = end
    return elements


@pytest.mark.parametrize("seed", range(30))
def test_all_algorithms_agree_on_streams_that_satisfy_all(seed: int) -> None:
    random = Random(seed)
    events = reference(random, 20, strict=True)
    streams = [ordered(random, events) for _ in range(3)]
    order = interleave(random, streams)
    outputs = {algorithm: output(algorithm, order, 3) for algorithm in (*PROMISES, "r3-")}
    assert all(reconstitute(elements) == events for elements in outputs.values())
    inserts = {algorithm: [e for e in elements if isinstance(e, Insert)] for algorithm, elements in outputs.items()}
    assert inserts["r0"] == inserts["r1"] == inserts["r2"]
    stables = {algorithm: [e for e in elements if isinstance(e, Stable)] for algorithm, elements in outputs.items()}
    assert all(found == stables["r0"] for found in stables.values())


@pytest.mark.parametrize("seed", range(30))
def test_r1_and_r2_agree_with_r4_and_r3(seed: int) -> None:
    random = Random(seed)
    multiset = reference(random, 20, duplicates=True)
    order = interleave(random, [ordered(random, multiset) for _ in range(3)])
    assert reconstitute(output("r1", order, 3)) == reconstitute(output("r4", order, 3)) == multiset
    keyed = reference(random, 20)
    order = interleave(random, [ordered(random, keyed, ties="shuffled") for _ in range(3)])
    assert reconstitute(output("r2", order, 3)) == reconstitute(output("r3", order, 3)) == keyed


@pytest.mark.parametrize("seed", range(40))
def test_r3_emits_what_the_papers_listing_emits(seed: int) -> None:
    """Element by element, including the order at one stable; the output closes on any input, as in the listing."""
    random = Random(seed)
    events = reference(random, 20)
    order = interleave(random, [present(random, events) for _ in range(3)])
    merge, twin = Merge(MergeConfig("r3", closing="any")), ListingR3()
    for at in range(3):
        merge.attach(str(at), ("key",))
    for at, element in order:
        assert list(merge.apply(str(at), Batch.of([element])).batch.elements()) == twin.apply(at, element)


@pytest.mark.parametrize("seed", range(30))
def test_r3_minus_and_r4_mean_the_same_as_r3(seed: int) -> None:
    random = Random(seed)
    events = reference(random, 20)
    order = interleave(random, [present(random, events) for _ in range(3)])
    assert output("r3", order, 3) == output("r3-", order, 3)
    assert reconstitute(output("r4", order, 3)) == events


@pytest.mark.parametrize("algorithm", PROMISES)
def test_how_elements_are_batched_does_not_change_the_output(algorithm: str) -> None:
    for seed in range(20):
        random = Random(seed)
        events = reference(random, 20, strict=algorithm == "r0")
        make = present if algorithm in ("r3", "r4") else ordered
        order = interleave(random, [make(random, events) for _ in range(3)])
        assert output(algorithm, order, 3) == output(algorithm, order, 3, sizes=random)


@pytest.mark.parametrize("seed", range(30))
def test_cleanse_and_r1_means_the_same_as_r3(seed: int) -> None:
    """VI.D."""
    random = Random(seed)
    events = reference(random, 20)
    order = interleave(random, [present(random, events) for _ in range(3)])
    merge = Merge(MergeConfig("r1"))
    cleansers = [Cleanse(str(at)) for at in range(3)]
    for at in range(3):
        merge.attach(str(at), PROMISES["r1"])
    elements: list[Element] = []
    for at, element in order:
        outcome = merge.apply(str(at), cleansers[at].apply(Batch.of([element])))
        assert not outcome.detached
        elements += outcome.batch.elements()
    assert reconstitute(elements) == events
    assert all(cleanse.buffered == 0 for cleanse in cleansers)
