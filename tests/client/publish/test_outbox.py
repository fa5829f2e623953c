"""Outbox: one live table and a lane for each server. Nothing is lost or sent twice, whatever happens to connections,
and no lane waits for a server that is behind.
"""

from __future__ import annotations

import pytest

from lmerge.client.publish.outbox import ROW_BYTES, Lane, Outbox, Skip, Taken
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, INSERT, NEG_INF, Element, Insert, Stable
from lmerge.core.engines.selection import native_problem
from lmerge.errors import UsageError

KILO = b"x" * (1000 - ROW_BYTES)


def outbox_with(*payloads: bytes, bytes_max: int) -> Outbox:
    outbox = Outbox("a", bytes_max=bytes_max)
    for at, payload in enumerate(payloads):
        outbox.put_row((INSERT, at, at + 10, 0, payload))
    return outbox


def connect(lane: Lane, stable_point: int = NEG_INF) -> list[Element]:
    """Accept a connection; return its prelude, which has then been sent."""
    lane.join_at()
    prelude = lane.restart()
    assert prelude is not None
    if stable_point > NEG_INF:
        lane.note_stable(stable_point)
    return elements_of(prelude)


def two_lanes(outbox: Outbox) -> tuple[Lane, Lane]:
    """Return the lanes of two servers that are connected."""
    lanes = outbox.lane(), outbox.lane()
    for lane in lanes:
        connect(lane)
    return lanes


def elements_of(taken: Taken | None) -> list[Element]:
    assert taken is not None
    return [element for item in taken.items if not isinstance(item, Skip) for element in item.elements()]


def test_what_waits_is_counted_until_it_is_taken(engine: str) -> None:
    outbox = Outbox("a", bytes_max=200)
    lane = outbox.lane()
    connect(lane)
    outbox.put_row((INSERT, 1, 9, 0, b"x" * 100))
    outbox.put_row((INSERT, 2, 9, 0, b"x" * 100))
    assert outbox.waiting_bytes > 200
    taken = lane.take()
    assert taken is not None
    assert (len(elements_of(taken)), taken.published, outbox.waiting_bytes) == (2, 2, 0)
    assert lane.take() is None


def test_an_attempt_to_connect_makes_no_room_until_the_prelude_has_been_sent(engine: str) -> None:
    outbox = outbox_with(b"x" * 100, b"x" * 100, bytes_max=200)
    lane = outbox.lane()
    for _ in range(3):
        lane.join_at()
        prelude = lane.restart()
        assert prelude is not None
        assert (len(elements_of(prelude)), prelude.published) == (2, 2)
        assert outbox.is_full
        lane.disconnected()
        assert outbox.is_full
    connect(lane)
    assert lane.take() is None, "the prelude holds it"
    assert outbox.waiting_bytes == 0


def test_what_is_published_after_a_restart_waits_behind_the_prelude(engine: str) -> None:
    outbox = outbox_with(b"first", bytes_max=200)
    lane = outbox.lane()
    prelude = connect(lane)
    outbox.put_row((INSERT, 1, 11, 0, b"second"))
    taken = lane.take()
    assert [element[0] for element in (*prelude, *elements_of(taken))] == [b"first", b"second"]
    assert taken is not None
    assert taken.published == 2


def test_every_lane_gets_everything_in_order_and_the_batches_are_the_same_objects(engine: str) -> None:
    outbox = Outbox("a")
    lanes = [outbox.lane() for _ in range(3)]
    for lane in lanes:
        connect(lane)
    outbox.put_row((INSERT, 1, 9, 0, b"row"))
    outbox.put_batch(Batch.of([Insert(b"batch", 2, 8), Stable(1)]))
    taken = [lane.take() for lane in lanes]
    for one in taken:
        assert elements_of(one) == [Insert(b"row", 1, 9), Insert(b"batch", 2, 8), Stable(1)]
    items = [one.items for one in taken if one is not None]
    assert all(left is right for other in items[1:] for left, right in zip(items[0], other, strict=True))


def test_a_lane_without_a_connection_keeps_nothing_and_delays_no_other(engine: str) -> None:
    outbox = Outbox("a", bytes_max=2000)
    here, gone = two_lanes(outbox)
    gone.disconnected()
    for at in range(50):
        outbox.put_row((INSERT, at, at + 10, 0, KILO))
        assert not outbox.is_full
        here.take()
    assert not gone._queue
    assert len(connect(gone)) == 50, "the prelude has it all"


def test_without_any_connection_the_buffer_fills(engine: str) -> None:
    outbox = outbox_with(*[KILO] * 2, bytes_max=2000)
    outbox.lane()
    outbox.lane()
    assert outbox.is_full


def test_the_only_connection_holds_the_publisher_however_slow_it_is(engine: str) -> None:
    outbox = Outbox("a", bytes_max=2000)
    lane, away = outbox.lane(), outbox.lane()
    connect(lane)
    for at in range(9):
        outbox.put_row((INSERT, at, at + 10, 0, KILO))
    assert outbox.is_full
    assert lane.is_up
    assert not away.is_up


def test_a_lane_that_is_a_whole_buffer_behind_the_first_starts_again_with_a_prelude(engine: str) -> None:
    outbox = Outbox("a", bytes_max=5000)
    fast, slow = two_lanes(outbox)
    slow.take()
    for at in range(4):
        outbox.put_row((INSERT, at, at + 10, 0, KILO))
        fast.take()
    assert slow.is_up
    outbox.put_row((INSERT, 4, 14, 0, KILO))
    fast.take()
    assert slow.was_dropped
    assert (slow.is_up, outbox.is_full) == (False, False)
    assert len(connect(slow)) == 5
    assert not slow.was_dropped


def test_a_lane_is_not_dropped_while_it_sends_a_prelude_that_is_larger_than_the_buffer(engine: str) -> None:
    outbox = Outbox("a", bytes_max=5000)
    fast, late = outbox.lane(), outbox.lane()
    connect(fast)
    for at in range(20):
        outbox.put_row((INSERT, at, at + 100, 0, KILO))
        fast.take()
    connect(late)
    for at in range(20, 40):  # as much again as the prelude weighs
        outbox.put_row((INSERT, at, at + 100, 0, KILO))
        fast.take()
    assert late.is_up
    for at in range(40, 46):
        outbox.put_row((INSERT, at, at + 100, 0, KILO))
        fast.take()
    assert late.was_dropped


# What is kept, and for which server.


def freeze(outbox: Outbox, at: int) -> None:
    """Put an event that ends at ``at``, frozen by the publisher."""
    outbox.put_batch(Batch.of([Insert(b"e", at - 1, at), Stable(at + 1)]))


def test_events_are_kept_until_every_server_has_frozen_them(engine: str) -> None:
    outbox = Outbox("a")
    one, other = two_lanes(outbox)
    freeze(outbox, 5)
    one.note_stable(6)
    assert len(outbox.live) == 1
    other.note_stable(5)
    assert len(outbox.live) == 1
    other.note_stable(6)
    assert len(outbox.live) == 0


def test_a_server_that_is_away_is_waited_for_and_joins_where_it_was(engine: str) -> None:
    outbox = Outbox("a")
    here, away = two_lanes(outbox)
    outbox.put_batch(Batch.of([Stable(3)]))
    here.note_stable(3)
    away.note_stable(3)
    away.disconnected()
    for at in range(5, 95, 2):
        freeze(outbox, at)
        here.note_stable(at + 1)
    assert away.join_at() == 3
    assert len(connect(away)) == 45 + 1


def test_a_server_that_is_away_too_long_joins_where_the_others_are(engine: str) -> None:
    outbox = Outbox("a", behind_events_max=20)
    here, away = two_lanes(outbox)
    away.disconnected()
    longest = 0
    for at in range(5, 195, 2):
        freeze(outbox, at)
        here.note_stable(at + 1)
        longest = max(longest, len(outbox.live))
    assert 20 <= longest <= 24
    assert away.join_at() >= 26
    assert away.counts, "from here on it is waited for again"


def test_what_the_others_need_does_not_count_against_a_server_that_is_away(engine: str) -> None:
    outbox = Outbox("a", behind_events_max=20)
    here, away = two_lanes(outbox)
    outbox.put_batch(Batch.of([Stable(3)]))
    here.note_stable(3)
    away.note_stable(3)
    away.disconnected()
    for at in range(10, 500):
        outbox.put_batch(Batch.of([Insert(b"open", at, INF)]))
        here.note_stable(4)
    assert len(outbox.live) == 490
    assert away.join_at() == 3


@pytest.mark.parametrize("other", ["none", "here", "away"])
def test_an_ack_looks_at_no_event_that_waits(other: str) -> None:
    """Batches wait whole for the stable point that ends them; an ack that indexed them would cost as much as the merge.

    What waits is counted with its stables, what is indexed without: so ``at_most`` shows which of the two was done.
    """
    if problem := native_problem():
        pytest.skip(problem)
    outbox = Outbox("a")
    lanes = [outbox.lane(), *([] if other == "none" else [outbox.lane()])]
    for lane in lanes:
        connect(lane)
    if other == "away":
        lanes[1].disconnected()
    rows, batches = 64, 50
    for number in range(batches):
        start = number * rows
        inserts = [Insert(b"p%d" % at, at, at + 1_000_000) for at in range(start, start + rows)]
        outbox.put_batch(Batch.of([*inserts, Stable(start)]))
        for lane in lanes:
            lane.take()
        lanes[0].note_stable(start)
    assert outbox.live.at_most == batches * (rows + 1)
    assert len(outbox.live) == batches * rows


def test_while_a_server_takes_its_time_to_accept_nothing_is_forgotten_that_it_was_promised(engine: str) -> None:
    outbox = Outbox("a", behind_events_max=20)
    here, slow = outbox.lane(), outbox.lane()
    connect(here)
    freeze(outbox, 5)
    here.note_stable(6)
    assert slow.join_at() == NEG_INF
    for at in range(7, 17, 2):
        freeze(outbox, at)
        here.note_stable(at + 1)
    prelude = slow.restart()
    assert len(elements_of(prelude)) == 6 + 1
    slow.disconnected()
    slow.join_at()
    for at in range(17, 117, 2):
        freeze(outbox, at)
        here.note_stable(at + 1)
    assert slow.restart() is None, "it took too long: what it was promised is gone"
    assert slow.join_at() > 15
    assert slow.restart() is not None


def test_a_connection_joins_at_the_lower_of_the_two_points_of_trimming(engine: str) -> None:
    """Trimmed up to 10 by the servers, up to 4 by the publisher: the table is complete from 4."""
    outbox = Outbox("a")
    lane = outbox.lane()
    connect(lane)
    outbox.put_batch(Batch.of([Insert(b"x", 1, 5), Stable(4)]))
    lane.note_stable(10)
    lane.disconnected()
    assert lane.join_at() == 4
    assert connect(lane) == [Insert(b"x", 1, 5), Stable(4)]


# Skipping.


def test_a_skip_stands_in_its_place_for_servers_that_have_come_so_far_and_others_start_again(engine: str) -> None:
    outbox = Outbox("a")
    ahead, behind = outbox.lane(), outbox.lane()
    connect(ahead, 100)
    connect(behind, 40)
    outbox.put_row((INSERT, 1, 90, 0, b"before"))
    outbox.skip(100)
    outbox.put_row((INSERT, 1, 110, 0, b"after"))
    taken = ahead.take()
    assert taken is not None
    assert [item.until if isinstance(item, Skip) else item.payloads for item in taken.items] == [
        [b"before"],
        100,
        [b"after"],
    ]
    assert behind.was_dropped
    assert behind.join_at() == 100


def test_a_skip_while_a_server_accepts_makes_it_start_again(engine: str) -> None:
    outbox = Outbox("a")
    lane = outbox.lane()
    lane.join_at()
    outbox.skip(7)
    assert lane.restart() is None
    assert lane.join_at() == 7
    assert lane.restart() is not None


@pytest.mark.parametrize("until", [NEG_INF, INF, 1.5, None])
def test_a_skip_to_what_is_no_time_is_refused(until: object) -> None:
    with pytest.raises(UsageError, match="cannot skip"):
        Outbox("a").skip(until)  # type: ignore[arg-type]  # wrong on purpose


def test_after_a_seed_every_connection_joins_at_its_stable_or_later(engine: str) -> None:
    outbox = Outbox("a")
    outbox.seed(Batch.of([Insert(b"open", 1, 50), Stable(20)]))
    lane = outbox.lane()
    assert lane.join_at() == 20
    assert connect(lane) == [Insert(b"open", 1, 50), Stable(20)]
