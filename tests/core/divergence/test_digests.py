"""Digests of one stream: equal sets of events have equal ones, whatever the elements, and all others differ."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmerge.core.batch import Batch
from lmerge.core.divergence.digests import ALL, Digest
from lmerge.core.divergence.engine_digests import digests_of
from lmerge.core.elements import INF, Adjust, Element, Event, Insert
from lmerge.core.engines import selection

WHOLE = 1_000_000  # one interval for all times below
PAYLOADS = [b"", b"A", b"B", b"\0" * 7, b"\0" * 8, b"A" * 240, b"A" * 241, b"A" * 4_000]
EVENTS = st.builds(
    lambda payload, vs, length: Event(vs, payload, vs + length),
    st.sampled_from(PAYLOADS),
    st.integers(0, 4),
    st.integers(1, 4),
)


NATIVE = pytest.param(selection.NATIVE, marks=pytest.mark.skipif(bool(selection.native_problem()), reason="not built"))
pytestmark = pytest.mark.parametrize("engine", [selection.PYTHON, NATIVE])


def digests(engine: str, elements: list[Element], *, starts: bool = False) -> dict[int, Digest]:
    """Return the digests of all intervals, by index."""
    found = digests_of(engine, WHOLE, starts=starts, open_max=9)
    assert found.add(Batch.of(elements), len(elements)).offender is None
    return found.take_below(ALL)


def inserts(events: list[Event]) -> list[Element]:
    return [Insert(event.payload, event.vs, event.ve) for event in events]


@pytest.mark.parametrize("starts", [False, True])
@given(events=st.lists(EVENTS, min_size=2, max_size=4), others=st.lists(EVENTS, min_size=2, max_size=4))
def test_digests_are_equal_exactly_if_the_events_are(
    engine: str, starts: bool, events: list[Event], others: list[Event]
) -> None:
    """Few values, so that many of the lists differ only in which event has which time or payload."""
    same = digests(engine, inserts(events), starts=starts) == digests(engine, inserts(others), starts=starts)
    assert same == (Counter(events) == Counter(others))


def test_events_that_exchange_a_part_are_not_the_same(engine: str) -> None:
    """A hash that added up what the parts give would not notice it."""
    exchanged = [
        [Event(1, b"A", 5), Event(2, b"B", 6)],
        [Event(1, b"B", 5), Event(2, b"A", 6)],
        [Event(2, b"A", 5), Event(1, b"B", 6)],
        [Event(1, b"A", 6), Event(2, b"B", 5)],
    ]
    for one, other in combinations(exchanged, 2):
        assert digests(engine, inserts(one)) != digests(engine, inserts(other)), (one, other)


def test_an_event_reached_by_adjusts_has_the_digest_of_its_insert(engine: str) -> None:
    for payload in PAYLOADS:
        revised: list[Element] = [Insert(payload, 1, INF), Adjust(payload, 1, INF, 9), Adjust(payload, 1, 9, 7)]
        plain = digests(engine, inserts([Event(1, payload, 7)]), starts=True)
        assert digests(engine, revised, starts=True) == plain
        assert digests(engine, [*revised, Adjust(payload, 1, 7, 1)], starts=True) == {}


def test_each_time_changes_every_part_of_a_sum(engine: str) -> None:
    """Times one apart, at each bit: about half of the 128 bits differ, and no pair of the sums is near."""
    times = [2**bit for bit in range(19)]
    sums = [digests(engine, [Insert(b"A", 0, t)])[0].events_sum for t in times]
    sums += [digests(engine, [Insert(b"A", t, WHOLE - 1)])[0].events_sum for t in times]
    for one, other in combinations(sums, 2):
        assert 30 <= (one ^ other).bit_count() <= 98
