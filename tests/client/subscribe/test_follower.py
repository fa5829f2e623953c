"""Follower: across breaks a reader receives a legal stream that leads to the server's state; gaps are reported."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmerge.client.subscribe.follower import GAPS_MAX, Follower, SubscriptionGap
from lmerge.client.subscribe.reader import ResumePoint
from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.tdb import Tdb
from lmerge.testing.streams.merge_inputs import present, reference

pytestmark = pytest.mark.usefixtures("engine")


class Service:
    """A server's output: a stream, and at any time its snapshot."""

    def __init__(self) -> None:
        self.tdb = Tdb("server")

    def emit(self, *elements: Element) -> Batch:
        batch = Batch.of(elements)
        self.tdb.apply_batch(batch)
        return batch

    def snapshot(self) -> Batch:
        elements: list[Element] = [Insert(e.payload, e.vs, e.ve) for e in self.tdb.live_events()]
        if self.tdb.stable_point > NEG_INF:
            elements.append(Stable(self.tdb.stable_point))
        return Batch.of(elements)


class FollowingReader:
    """Follows one service of an older version, and keeps what it received as a stream, which must be legal."""

    def __init__(self) -> None:
        self.reported: list[SubscriptionGap] = []
        self.follower = Follower(["server"], on_gap=self.reported.append)
        self.received = Tdb("received")
        self.is_connected = False

    def subscribe(self, service: Service) -> SubscriptionGap | None:
        """Subscribe again after a break, if there was a connection."""
        gaps = len(self.reported)
        self.begin(service.tdb.stable_point)
        self.take(service.snapshot())
        self.follower.end("server")
        self.receive()
        return self.reported[-1] if len(self.reported) > gaps else None

    def begin(self, stable_point: int) -> None:
        if self.is_connected:
            self.follower.lost("server")
        self.is_connected = True
        self.follower.asked("server", self.follower.final_to)
        self.follower.begin("server", stable_point, None)

    def take(self, batch: Batch) -> list[AnyBatch]:
        self.follower.take("server", batch)
        return self.receive()

    def receive(self) -> list[AnyBatch]:
        batches = []
        while (batch := self.follower.reader.take()) is not None:
            self.received.apply_batch(batch)
            batches.append(batch)
        return batches


def test_without_a_break_the_reader_receives_what_the_server_sends() -> None:
    service, reader = Service(), FollowingReader()
    service.emit(Insert(b"before", 1, 9))
    assert reader.subscribe(service) is None
    batch = service.emit(Insert(b"a", 2, INF), Adjust(b"a", 2, INF, 5), Stable(4))
    assert reader.take(batch)[0] is batch


def test_a_snapshot_that_repeats_the_state_delivers_nothing() -> None:
    service, reader = Service(), FollowingReader()
    reader.subscribe(service)
    reader.take(service.emit(Insert(b"a", 2, INF), Insert(b"a", 2, INF), Insert(b"b", 3, 9), Stable(4)))
    received = reader.received.events()
    assert reader.subscribe(service) is None
    assert reader.received.events() == received


def test_changes_during_a_break_are_delivered_as_changes() -> None:
    service, reader = Service(), FollowingReader()
    reader.subscribe(service)
    reader.take(service.emit(Insert(b"a", 2, 20), Insert(b"gone", 6, 9), Stable(4)))
    service.emit(Adjust(b"a", 2, 20, 30), Insert(b"new", 5, 8), Adjust(b"gone", 6, 9, 6))
    assert reader.subscribe(service) is None
    reader.take(service.emit(Stable(7)))
    assert reader.received.events() == service.tdb.events() == [Event(2, b"a", 30), Event(5, b"new", 8)]


def test_a_gap_is_reported_with_its_interval() -> None:
    service, reader = Service(), FollowingReader()
    reader.subscribe(service)
    reader.take(service.emit(Insert(b"a", 2, 20), Stable(4)))
    service.emit(Insert(b"unseen", 5, 6), Stable(10))
    assert reader.subscribe(service) == SubscriptionGap(4, 10)
    assert reader.follower.gaps == [SubscriptionGap(4, 10)]


def test_a_break_before_the_first_stable_can_be_a_gap_too() -> None:
    service, reader = Service(), FollowingReader()
    reader.subscribe(service)
    service.emit(Insert(b"unseen", 5, 6), Stable(10))
    assert reader.subscribe(service) == SubscriptionGap(NEG_INF, 10)


def test_beyond_the_limit_the_oldest_gaps_become_one_that_covers_them() -> None:
    service, reader = Service(), FollowingReader()
    reader.subscribe(service)
    missed = []
    for at in range(0, 3 * GAPS_MAX, 3):
        reader.take(service.emit(Stable(at)))
        service.emit(Stable(at + 1))
        missed.append(reader.subscribe(service))
    assert reader.follower.gaps == missed
    for at in range(3 * GAPS_MAX, 3 * GAPS_MAX + 9, 3):
        reader.take(service.emit(Stable(at)))
        service.emit(Stable(at + 1))
        missed.append(reader.subscribe(service))
    assert len(reader.follower.gaps) == GAPS_MAX
    assert reader.follower.gaps == [SubscriptionGap(0, 10), *missed[4:]]


def test_a_first_snapshot_that_was_cut_short_leaves_a_gap_only_beyond_it() -> None:
    service, reader = Service(), FollowingReader()
    service.emit(Insert(b"a", 2, 20), Stable(4))
    reader.begin(4)
    assert reader.subscribe(service) is None
    assert reader.received.events() == [Event(2, b"a", 20)]


def test_events_frozen_in_a_gap_keep_their_end_where_it_can_be_right_and_are_ended_where_not() -> None:
    service, reader = Service(), FollowingReader()
    reader.subscribe(service)
    received = [Insert(b"as delivered", 6, 8), Insert(b"open", 2, INF), Insert(b"open later", 7, INF)]
    reader.take(service.emit(*received, Stable(5)))
    service.emit(Adjust(b"open", 2, INF, 9), Adjust(b"open later", 7, INF, 12), Stable(20))
    assert reader.subscribe(service) == SubscriptionGap(5, 20)
    assert reader.received.events() == [Event(2, b"open", 5), Event(6, b"as delivered", 8)]
    assert reader.received.live_count == 0


def test_a_server_that_starts_again_from_nothing_contradicts_nothing() -> None:
    service, reader = Service(), FollowingReader()
    reader.subscribe(service)
    reader.take(service.emit(Insert(b"a", 2, 20), Insert(b"b", 6, 9), Stable(5)))
    fresh = Service()
    assert reader.subscribe(fresh) is None
    reader.take(fresh.emit(Insert(b"a", 2, 20), Insert(b"b", 6, 9), Insert(b"c", 7, INF), Stable(5), Stable(8)))
    assert reader.received.events() == [Event(2, b"a", 20), Event(6, b"b", 9), Event(7, b"c", INF)]
    assert reader.received.stable_point == 8


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=20))
def test_any_breaks_lead_to_the_servers_events_but_for_the_gaps(
    seed: int, duplicates: bool, steps: list[tuple[bool, int]]
) -> None:
    random = Random(seed)
    stream = present(random, reference(random, 12, duplicates=duplicates))
    service, reader = Service(), FollowingReader()
    reader.subscribe(service)
    for is_connected, count in [*steps, (True, len(stream))]:
        batch = service.emit(*stream[:count])
        del stream[:count]
        if is_connected:
            reader.take(batch)
        else:
            reader.subscribe(service)
        reader.follower.reader.table.check()
    end = service.tdb.stable_point
    gaps = reader.follower.gaps
    received, real = Counter(reader.received.events()), Counter(service.tdb.events())
    wrong = (received - real) + (real - received)
    if not gaps:
        assert not wrong
    assert reader.received.stable_point == end
    for event in wrong:
        assert any(event.ve >= gap.start and event.vs < gap.end for gap in gaps), (event, gaps)


@pytest.mark.parametrize(("first", "gaps"), [(4, []), (5, []), (8, [SubscriptionGap(5, 8)])])
def test_an_older_server_that_was_restarted_empty_joins_at_its_first_stable(
    first: int, gaps: list[SubscriptionGap]
) -> None:
    """It does not declare from where it is complete; what it lacks until then must not be taken for removed."""
    service, reader = Service(), FollowingReader()
    reader.subscribe(service)
    reader.take(service.emit(Insert(b"A", 1, 20), Insert(b"B", 2, 30), Stable(5)))
    empty = Service()
    assert reader.subscribe(empty) is None
    assert reader.take(empty.emit(Insert(b"A", 1, 20))) == []
    assert reader.follower.sources["server"].state == "joining"
    reader.take(empty.emit(Insert(b"B", 2, 30), Stable(first)))
    reader.take(empty.emit(Insert(b"C", 9, 10), Stable(9)))
    assert reader.received.events() == [Event(1, b"A", 20), Event(2, b"B", 30), Event(9, b"C", 10)]
    assert reader.reported == gaps


def test_a_reader_that_waited_for_its_token_receives_what_was_frozen_on_the_way() -> None:
    """The stable point passes the token and the end of an event in one step."""
    follower = Follower(["server"], resume_point=ResumePoint(NEG_INF, 10))
    follower.asked("server", 10)
    follower.begin("server", 3, 3)
    follower.take("server", Batch.of([Insert(b"its own", 1, 7), Insert(b"A", 1, 12), Stable(3)]))
    follower.end("server")
    assert follower.reader.take() is None
    follower.take("server", Batch.of([Insert(b"B", 4, 30), Stable(20)]))
    received = follower.reader.take()
    assert received is not None
    assert list(received.elements()) == [Insert(b"A", 1, 12), Insert(b"B", 4, 30), Stable(20)]


def test_a_gap_waits_until_the_source_is_stable_where_it_begins() -> None:
    """What it has not sent before then would be taken for removed."""
    reported: list[SubscriptionGap] = []
    follower = Follower(["server"], on_gap=reported.append)
    follower.begin("server", NEG_INF, NEG_INF)
    follower.take("server", Batch.of([Insert(b"C", 2, 11), Stable(3)]))
    follower.end("server")
    follower.lost("server")
    follower.asked("server", 3)
    follower.begin("server", 2, 6)
    follower.take("server", Batch.of([Stable(2)]))
    follower.end("server")
    assert reported == []
    follower.take("server", Batch.of([Insert(b"C", 2, 11), Insert(b"E", 7, 9), Stable(6)]))
    assert reported == [SubscriptionGap(3, 6)]
    received = Tdb("received")
    while (batch := follower.reader.take()) is not None:
        received.apply_batch(batch)
    assert received.events() == [Event(2, b"C", 11), Event(7, b"E", 9)]


@pytest.mark.parametrize("policy", ["lazy", "lazy+lag:5", "eager+lag:5", "quorum:1+lag:5", "final-only+lag:5"])
def test_a_reader_whose_stables_lag_resumes_from_its_checkpoint_where_it_was(policy: str) -> None:
    resume_point = ResumePoint(10, NEG_INF, [Event(1, b"x", 20)])
    follower = Follower(["a", "b"], policy=policy, resume_point=resume_point)
    received = Tdb("received")
    received.apply_batch(Batch.of([Insert(b"x", 1, 20), Stable(10)]))
    for name in ("a", "b"):
        follower.asked(name, follower.final_to)
        follower.begin(name, 10, 10)
        follower.take(name, Batch.of([Insert(b"x", 1, 20), Stable(10)]))
        follower.end(name)
        follower.take(name, Batch.of([Stable(12)]))
        follower.take(name, Batch.of([Stable(30)]))
    while (batch := follower.reader.take()) is not None:
        received.apply_batch(batch)
    assert received.stable_point == (30 if "lag" not in policy else 25)
    assert received.events() == [Event(1, b"x", 20)]
