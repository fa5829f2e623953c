"""Inputs of merges: streams of one table by numbers, insert-only streams, late replicas; equal draws, equal streams."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

import pytest

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Element, Event, Insert, Stable
from lmerge.core.session import format_row
from lmerge.core.tdb import reconstitute
from lmerge.errors import UsageError
from lmerge.testing.streams.facets import Facets
from lmerge.testing.streams.large_inputs import LARGE, STEP, LargeInputs
from lmerge.testing.streams.measures import measured_stream, measured_table
from lmerge.testing.streams.merge_inputs import MIXED, PLAIN, joining, mistaken, ordered, present, reference

SEEDS, EVERY = 1000, 25
GOLDEN: Final = Path(__file__).parent / "golden_merge_inputs.json"
FACETS: Final = (
    MIXED,
    PLAIN,
    replace(MIXED, places=20, stables=0.1),
    replace(MIXED, revised=0.9, invented=0.5, meeting=0.2),
    replace(MIXED, liveliness="open"),
    replace(MIXED, disorder="highly", places=None),
    replace(MIXED, revisions="all", revised=None, invented=None),
    replace(MIXED, liveliness="tight", stables=None, meeting=None),
    Facets(disorder="highly", revisions="all", liveliness="eager"),
)


def table(random: Random) -> list[Event]:
    return reference(random, random.randint(0, 40), duplicates=random.random() < 0.5)


@pytest.mark.parametrize("facets", FACETS, ids=lambda facets: str(facets.to_json()))
def test_streams_by_levels_and_numbers_are_legal_and_of_one_table(
    facets: Facets, seeds_of: Callable[[int, int], range]
) -> None:
    streams: set[tuple[Element, ...]] = set()
    for seed in seeds_of(SEEDS, EVERY):
        random = Random(seed)
        events = table(random)
        stream = present(random, events, facets)
        streams.add(tuple(stream))
        assert reconstitute(stream) == events
        assert (stream[-1:] == [Stable(INF)]) is (facets.liveliness != "open")
    assert len(streams) > 30


def test_a_plain_stream_has_the_inserts_of_the_table_in_its_order() -> None:
    for seed in range(30):
        random = Random(seed)
        events = table(random)
        stream = present(random, events, PLAIN)
        assert [Event(one.vs, one.payload, one.ve) for one in stream if isinstance(one, Insert)] == events
        assert measured_stream(stream).adjusts == 0


def test_a_reference_has_the_keys_that_it_promises() -> None:
    for seed in range(200):
        keyed = reference(Random(seed), 40, payloads=2)
        assert len({(event.vs, event.payload) for event in keyed}) == len(keyed)
        assert {event.payload for event in keyed} <= {b"A", b"B"}
        strict = reference(Random(seed), 40, strict=True)
        assert all(one.vs < other.vs for one, other in pairwise(strict))
    copied = reference(Random(1), 200, duplicates=True)
    assert measured_table(copied).copies > 0
    assert 0 < measured_table(copied).endless < 30


@pytest.mark.parametrize("ties", ["payload", "shuffled"])
def test_an_ordered_stream_is_in_order_of_start_and_stables_come_up_to_the_next_one(ties: str) -> None:
    ways = set()
    for seed in range(100):
        random = Random(seed)
        events = reference(random, 20, step_max=1)
        stream = ordered(random, events, ties=ties)
        inserts = [one for one in stream if isinstance(one, Insert)]
        assert reconstitute(stream) == events
        assert [one.vs for one in inserts] == sorted(one.vs for one in inserts)
        assert all(one.vc <= events[-1].vs for one in stream[:-1] if isinstance(one, Stable))
        ways.add([Event(one.vs, one.payload, one.ve) for one in inserts] == events)
    assert ways == ({True} if ties == "payload" else {True, False})


def test_what_joins_late_is_right_from_its_time_on() -> None:
    wrong = 0
    for seed in range(200):
        random = Random(seed)
        events = reference(random, 30)
        join_at = events[len(events) // 2].vs + 1
        rightly = [event for event in events if event.ve >= join_at]
        late = reconstitute(joining(present(random, events), join_at, events))
        assert late == rightly
        other = mistaken(random, events, join_at)
        assert [event for event in other if event.ve >= join_at] == rightly
        wrong += other != events
    assert wrong > 190


def lines_of(elements: list[Element]) -> str:
    return "".join(f"{format_row(row)}\n" for row in Batch.of(elements).rows())


def test_equal_draws_give_equal_streams(request: pytest.FixtureRequest) -> None:
    found = {}
    for seed in range(20):
        random = Random(seed)
        events = table(random)
        texts = [lines_of(present(random, events, facets)) for facets in FACETS]
        texts += [lines_of(ordered(random, events, ties=ties)) for ties in ("payload", "shuffled")]
        texts.append(str(mistaken(random, events, 20)))
        large = LargeInputs(replace(LARGE, events=50, alive=30, revised=0.2, stables=0.1), inputs=2, seed=seed)
        texts += [format_row(row) for batches in large.batches() for batch in batches for row in batch.rows()]
        found[str(seed)] = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    assert len(set(found.values())) == 20
    if request.config.getoption("--rewrite"):
        GOLDEN.write_text(json.dumps(found, indent=2) + "\n")
    assert found == json.loads(GOLDEN.read_text()), "seeds of the simulation and of tests mean other streams now"


# Large inputs.


def inputs_of(spec: LargeInputs) -> list[list[Element]]:
    return [[element for batch in batches for element in batch.elements()] for batches in spec.batches()]


def test_large_inputs_are_streams_of_one_table_in_orders_of_their_own() -> None:
    spec = LargeInputs(replace(LARGE, events=2000, alive=300, revised=0.3), payload_bytes=5, batch_rows=64)
    streams = inputs_of(spec)
    tables = [reconstitute(stream) for stream in streams]
    assert len(streams) == 3
    assert len({lines_of(stream) for stream in streams}) == 3
    assert tables[0] == tables[1] == tables[2]
    assert {len(event.payload) for event in tables[0]} == {5}
    measured = measured_table(tables[0])
    assert (measured.events, measured.alive_most, measured.span) == (2000, 300, 1999 * STEP)
    assert set(measured.durations) == {300 * STEP}
    for stream, batches in zip(streams, spec.batches()):
        arrived = measured_stream(stream)
        assert 0.25 * 2000 < arrived.shrunk == arrived.adjusts < 0.35 * 2000
        assert 0.01 * 2000 < arrived.stables < 0.02 * 2000
        assert 10 < arrived.displacement <= spec.places == 30
        assert max(batch.count for batch in batches) <= 65


def test_large_inputs_without_disorder_are_in_order() -> None:
    (stream,) = inputs_of(LargeInputs(replace(LARGE, events=500, displaced=0.0, stables=0.0), inputs=1))
    measured = measured_stream(stream)
    assert (measured.displaced, measured.adjusts, measured.stables) == (0, 0, 1)


def test_large_inputs_have_numbers_alone() -> None:
    with pytest.raises(UsageError, match="large inputs have other numbers than LARGE, and its words"):
        LargeInputs(replace(LARGE, disorder="slightly"))
