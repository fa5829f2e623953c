"""LiveEvents against a naive twin, and the outbox in front of it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmerge.client.publish.engine_live_events import live_events
from lmerge.client.publish.live_events import LiveEvents
from lmerge.client.publish.outbox import Lane, Outbox, Skip, Taken
from lmerge.core.batch import Batch, Row
from lmerge.core.calendar import Calendar, Node
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation, InvalidBatch, LimitExceeded
from lmerge.testing.streams.merge_inputs import present, reference


class NaiveLiveEvents:
    """A list of events in order of insertion; everything is a scan."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.stable = NEG_INF

    def apply_row(self, row: Row) -> None:
        kind, vs, ve, vold, payload = row
        if kind == INSERT and ve > vs:
            self.events.append(Event(vs, payload, ve))
        elif kind == ADJUST:
            at = self.events.index(Event(vs, payload, vold))
            if ve == vs:
                del self.events[at]
            else:
                self.events[at] = Event(vs, payload, ve)
        elif kind == 2:
            self.stable = vs

    def trim(self, vc: int) -> None:
        self.events = [event for event in self.events if event.ve >= min(vc, self.stable)]

    def prelude(self) -> list[Element]:
        inserts: list[Element] = [Insert(e.payload, e.vs, e.ve) for e in self.events]
        return [*inserts, *([Stable(self.stable)] if self.stable > NEG_INF else [])]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_the_prelude_is_that_of_the_naive_twin_after_every_element(engine: str, seed: int, duplicates: bool) -> None:
    random = Random(seed)
    live, naive, merge, acked = live_events("a"), NaiveLiveEvents(), 0, NEG_INF
    for row in Batch.of(present(random, reference(random, 15, duplicates=duplicates))).rows():
        live.apply_row(row)
        naive.apply_row(row)
        if random.random() < 0.3:
            # Before or beyond this replica's stable point.
            merge = min(max(merge, row[1]) + random.randint(-9, 9), INF)
            live.trim(merge)
            acked = max(acked, merge)
        naive.trim(acked)
        actual, expected = list(live.prelude().elements()), naive.prelude()
        if duplicates:  # equal events have no identity: which of them an adjust meant may differ
            actual, expected = sorted(actual, key=str), sorted(expected, key=str)
        assert actual == expected
        assert len(live) == len(naive.events)


def test_the_prelude_keeps_the_order_of_insertion(engine: str) -> None:
    live = live_events("a")
    for row in Batch.of([Insert(b"z", 1, 9), Insert(b"a", 1, 9), Insert(b"m", 2, 9), Adjust(b"z", 1, 9, 20)]).rows():
        live.apply_row(row)
    assert [element[0] for element in live.prelude().elements()] == [b"z", b"a", b"m"]


def test_an_event_that_ends_at_the_merges_stable_point_is_kept(engine: str) -> None:
    """III.C: fully frozen is Ve < Vc, so Ve == Vc can still be adjusted."""
    live = live_events("a")
    live.apply_row((INSERT, 1, 5, 0, b"x"))
    live.apply_row((2, 9, 0, 0, b""))
    live.trim(5)
    assert len(live) == 1
    live.trim(6)
    assert len(live) == 0


def test_a_replica_behind_the_merge_keeps_what_it_may_still_adjust(engine: str) -> None:
    """The merge is at 10 through others; for this replica the end 5 is preliminary."""
    live = live_events("a")
    live.apply_row((INSERT, 1, 5, 0, b"x"))
    live.trim(10)
    assert list(live.prelude().elements()) == [Insert(b"x", 1, 5)]
    live.apply_row((ADJUST, 1, 20, 5, b"x"))
    assert list(live.prelude().elements()) == [Insert(b"x", 1, 20)]
    live.apply_row((2, 30, 0, 0, b""))
    assert len(live) == 1
    live.trim(30)
    assert list(live.prelude().elements()) == [Stable(30)]


def test_a_refused_element_leaves_the_live_events_as_they_were(engine: str) -> None:
    live = live_events("a")
    live.apply_row((INSERT, 6, 9, 0, b"x"))
    live.apply_row((2, 5, 0, 0, b""))
    before = list(live.prelude().elements())
    for row in ((INSERT, 4, 9, 0, b"y"), (INSERT, 8, 7, 0, b"y"), (ADJUST, 6, 10, 8, b"x"), (2, 4, 0, 0, b"")):
        with pytest.raises(InputViolation, match="input 'a'"):
            live.apply_row(row)
    assert list(live.prelude().elements()) == before


class CountingCalendar(Calendar):
    popped = 0

    def pop_below(self, t: int) -> list[Node]:
        nodes = super().pop_below(t)
        self.popped += len(nodes)
        return nodes


def test_trimming_does_not_look_at_what_stays() -> None:
    live = LiveEvents("a")
    live._calendar = calendar = CountingCalendar()
    for i in range(2000):
        live.apply_row((INSERT, 4000 + i, 10**9 + i, 0, b"long"))
    for t in range(1, 3000):
        live.apply_row((2, t, 0, 0, b""))
        live.trim(t)
    assert len(live) == 2000
    assert calendar.popped < 50


# Outbox.


def elements_of(taken: Taken | None) -> list[Element]:
    assert taken is not None
    return [element for batch in taken.items if not isinstance(batch, Skip) for element in batch.elements()]


def connected(outbox: Outbox) -> Lane:
    """Return a lane with a connection that has sent the prelude."""
    lane = outbox.lane()
    lane.join_at()
    assert lane.restart() is not None
    lane.take()
    return lane


def test_what_is_taken_is_what_was_put_in_its_order(engine: str) -> None:
    outbox = Outbox("a")
    lane = connected(outbox)
    outbox.put_row((INSERT, 1, 5, 0, b"x"))
    outbox.put_batch(Batch.of([Insert(b"y", 2, 6), Stable(2)]))
    outbox.put_row((INSERT, 3, 7, 0, b"z"))
    assert elements_of(lane.take()) == [Insert(b"x", 1, 5), Insert(b"y", 2, 6), Stable(2), Insert(b"z", 3, 7)]
    assert outbox.published == 4
    assert lane.take() is None


def test_a_restart_drops_what_waits_because_the_prelude_has_it(engine: str) -> None:
    outbox = Outbox("a")
    lane = connected(outbox)
    outbox.put_batch(Batch.of([Insert(b"x", 1, 5), Adjust(b"x", 1, 5, 8), Stable(1)]))
    lane.join_at()
    prelude = lane.restart()
    assert elements_of(prelude) == [Insert(b"x", 1, 8), Stable(1)]
    assert prelude is not None
    assert prelude.published == 3
    assert lane.take() is None
    assert outbox.waiting_bytes == 0


def test_the_elements_before_a_violation_in_a_batch_are_published(engine: str) -> None:
    outbox = Outbox("a")
    lane = connected(outbox)
    with pytest.raises(InputViolation) as caught:
        outbox.put_batch(Batch.of([Insert(b"x", 1, 5), Insert(b"y", 5, 1), Insert(b"z", 2, 5)]))
    assert caught.value.index == 1
    assert elements_of(lane.take()) == [Insert(b"x", 1, 5)]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (Batch(b"\0", [1, 2], [5], [0], [b"x"]), "column vs has 2 elements where kinds has 1"),
        (Batch(b"\0", [1], [5], [0], []), "column payloads has 0 elements"),
        (Batch(b"\7", [1], [5], [0], [b"x"]), "unknown kind 7"),
        (Batch(b"\0", [1.5], [5], [0], [b"x"]), "column vs is not one of 64-bit times"),  # type: ignore[list-item]  # so
        (Batch(b"\0", [1], [2**63], [0], [b"x"]), "column ve is not one of 64-bit times"),
        (Batch(b"\0", [1], [5], [0], ["x"]), "not one of bytes"),  # type: ignore[list-item]  # so
    ],
)
def test_a_batch_that_cannot_be_sent_is_refused_whole(batch: Batch, message: str, engine: str) -> None:
    outbox = Outbox("a")
    with pytest.raises(InvalidBatch, match=message):
        outbox.put_batch(batch)
    assert connected(outbox).take() is None
    assert outbox.published == 0


def test_a_payload_above_the_limit_is_refused_by_element_and_size(engine: str) -> None:
    outbox = Outbox("a", payload_bytes_max=3)
    with pytest.raises(LimitExceeded, match="element 1: its payload has 4 bytes, above the limit of 3"):
        outbox.put_batch(Batch.of([Insert(b"123", 1, 5), Insert(b"1234", 1, 5)]))
    assert outbox.published == 0


def test_a_live_table_and_live_events_agree_on_what_is_legal(engine: str) -> None:
    """Every element that the server's own definition refuses is refused here, and no other."""
    random = Random(7)
    for _ in range(300):
        live, tdb = live_events("a"), Tdb("a")
        for _ in range(12):
            vs = random.randint(0, 6)
            row = (random.randint(0, 2), vs, random.randint(0, 9), random.randint(0, 9), b"x")
            if row[0] == 2:
                row = (2, vs, 0, 0, b"")
            verdicts = []
            for apply in (live.apply_row, tdb.apply_row):
                try:
                    apply(row)
                    verdicts.append("fine")
                except InputViolation as violation:
                    verdicts.append(violation.code)
            assert verdicts[0] == verdicts[1], row
