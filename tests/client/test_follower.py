"""Follower: across breaks a reader is told a legal stream that leads to what the server has, and gaps are reported."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmerge.client.follower import GAPS_MAX, Follower, SubscriptionGap
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.tdb import Tdb
from lmerge.testing.generate import present, reference

pytestmark = pytest.mark.usefixtures("engine")


class Service:
    """What a server would send: a stream, and at any time its snapshot."""

    def __init__(self) -> None:
        self.tdb = Tdb("server")

    def say(self, *elements: Element) -> Batch:
        batch = Batch.of(elements)
        self.tdb.apply_batch(batch)
        return batch

    def snapshot(self) -> Batch:
        elements: list[Element] = [Insert(e.payload, e.vs, e.ve) for e in self.tdb.live_events()]
        if self.tdb.stable_point > NEG_INF:
            elements.append(Stable(self.tdb.stable_point))
        return Batch.of(elements)


class Reader:
    """Follows a service, and keeps what it was told as a stream of its own, which must be legal."""

    def __init__(self) -> None:
        self.follower = Follower()
        self.told = Tdb("told")

    def subscribe(self, service: Service) -> SubscriptionGap | None:
        gap = self.follower.begin(service.tdb.stable_point)
        self.take(service.snapshot())
        self.told.apply_batch(self.follower.end())
        return gap

    def take(self, batch: Batch) -> None:
        self.told.apply_batch(self.follower.take(batch))


def test_without_a_break_the_reader_is_told_what_the_server_says() -> None:
    service, reader = Service(), Reader()
    service.say(Insert(b"before", 1, 9))
    assert reader.subscribe(service) is None
    batch = service.say(Insert(b"a", 2, INF), Adjust(b"a", 2, INF, 5), Stable(4))
    assert reader.follower.take(batch) is batch


def test_a_snapshot_that_says_the_same_again_tells_nothing() -> None:
    service, reader = Service(), Reader()
    reader.subscribe(service)
    reader.take(service.say(Insert(b"a", 2, INF), Insert(b"a", 2, INF), Insert(b"b", 3, 9), Stable(4)))
    assert reader.follower.begin(4) is None
    assert reader.follower.take(service.snapshot()).count == 0
    assert reader.follower.end().count == 0


def test_changes_during_a_break_are_told_as_changes() -> None:
    service, reader = Service(), Reader()
    reader.subscribe(service)
    reader.take(service.say(Insert(b"a", 2, 20), Insert(b"gone", 6, 9), Stable(4)))
    service.say(Adjust(b"a", 2, 20, 30), Insert(b"new", 5, 8), Adjust(b"gone", 6, 9, 6))
    assert reader.subscribe(service) is None
    reader.take(service.say(Stable(7)))
    assert reader.told.events() == service.tdb.events() == [Event(2, b"a", 30), Event(5, b"new", 8)]


def test_a_gap_is_reported_with_its_interval() -> None:
    service, reader = Service(), Reader()
    reader.subscribe(service)
    reader.take(service.say(Insert(b"a", 2, 20), Stable(4)))
    service.say(Insert(b"nobody saw this", 5, 6), Stable(10))
    assert reader.subscribe(service) == SubscriptionGap(4, 10)
    assert reader.follower.gaps == [SubscriptionGap(4, 10)]


def test_a_break_before_the_first_stable_can_be_a_gap_too() -> None:
    service, reader = Service(), Reader()
    reader.subscribe(service)
    service.say(Insert(b"nobody saw this", 5, 6), Stable(10))
    assert reader.subscribe(service) == SubscriptionGap(NEG_INF, 10)


def test_beyond_the_limit_the_oldest_gaps_become_one_that_covers_them() -> None:
    service, reader = Service(), Reader()
    reader.subscribe(service)
    missed = []
    for at in range(0, 3 * GAPS_MAX, 3):
        reader.take(service.say(Stable(at)))
        service.say(Stable(at + 1))
        missed.append(reader.subscribe(service))
    assert reader.follower.gaps == missed
    for at in range(3 * GAPS_MAX, 3 * GAPS_MAX + 9, 3):
        reader.take(service.say(Stable(at)))
        service.say(Stable(at + 1))
        missed.append(reader.subscribe(service))
    assert len(reader.follower.gaps) == GAPS_MAX
    assert reader.follower.gaps == [SubscriptionGap(0, 10), *missed[4:]]


def test_a_first_snapshot_that_was_cut_short_leaves_a_gap_only_beyond_it() -> None:
    service, reader = Service(), Reader()
    service.say(Insert(b"a", 2, 20), Stable(4))
    reader.follower.begin(4)
    assert reader.subscribe(service) is None
    assert reader.told.events() == [Event(2, b"a", 20)]


def test_what_the_gap_swallowed_is_frozen_as_told_where_that_can_be_true_and_ended_where_not() -> None:
    service, reader = Service(), Reader()
    reader.subscribe(service)
    told = [Insert(b"as told", 6, 8), Insert(b"open", 2, INF), Insert(b"open later", 7, INF)]
    reader.take(service.say(*told, Stable(5)))
    service.say(Adjust(b"open", 2, INF, 9), Adjust(b"open later", 7, INF, 12), Stable(20))
    assert reader.subscribe(service) == SubscriptionGap(5, 20)
    assert reader.told.events() == [Event(2, b"open", 5), Event(6, b"as told", 8)]
    assert reader.told.live_count == 0


def test_a_server_that_starts_again_from_nothing_contradicts_nothing() -> None:
    service, reader = Service(), Reader()
    reader.subscribe(service)
    reader.take(service.say(Insert(b"a", 2, 20), Insert(b"b", 6, 9), Stable(5)))
    fresh = Service()
    assert reader.subscribe(fresh) is None
    reader.take(fresh.say(Insert(b"a", 2, 20), Insert(b"b", 6, 9), Insert(b"c", 7, INF), Stable(5), Stable(8)))
    assert reader.told.events() == [Event(2, b"a", 20), Event(6, b"b", 9), Event(7, b"c", INF)]
    assert reader.told.stable_point == 8


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=20))
def test_any_breaks_lead_to_the_servers_events_but_for_the_gaps(
    seed: int, duplicates: bool, steps: list[tuple[bool, int]]
) -> None:
    random = Random(seed)
    stream = present(random, reference(random, 12, duplicates=duplicates))
    service, reader = Service(), Reader()
    reader.subscribe(service)
    for is_heard, count in [*steps, (True, len(stream))]:
        batch = service.say(*stream[:count])
        del stream[:count]
        if is_heard:
            reader.take(batch)
        else:
            reader.subscribe(service)
        reader.follower.table.check()
    end = service.tdb.stable_point
    gaps = reader.follower.gaps
    told, real = Counter(reader.told.events()), Counter(service.tdb.events())
    wrong = (told - real) + (real - told)
    if not gaps:
        assert not wrong
    assert reader.told.stable_point == end
    for event in wrong:
        assert any(event.ve >= gap.start and event.vs < gap.end for gap in gaps), (event, gaps)
