"""The journal: segments begin when they are worth it, end when there is no room, and are found by time."""

from __future__ import annotations

import pytest

from lmerge.core.batch import EMPTY, Batch
from lmerge.core.elements import NEG_INF, Insert, Stable
from lmerge.service.output.fanout import Message
from lmerge.service.output.journal import MESSAGES_PER_SEGMENT, Journal
from lmerge.service.output.transaction import Changes


def live(count: int, stable_point: int) -> Batch:
    return Batch.of([*(Insert(b"x" * 75, vs, 10**9) for vs in range(count)), Stable(stable_point)])


def message(at: int, size: int = 100) -> Message:
    return Message(b"%d " % at + b"x" * (size - len(b"%d " % at)), 2, 1)


def filled(journal: Journal, turns: int, live_count: int = 0, size: int = 100) -> Journal:
    """Fill the journal as a hub does, with stable points 1, 2, ..."""
    journal.begin(EMPTY, NEG_INF, NEG_INF)
    for at in range(1, turns + 1):
        journal.append(message(at, size))
        if journal.needs_segment(at):
            journal.begin(live(live_count, at), at, NEG_INF)
        journal.trim(at)
    return journal


def test_the_past_is_the_snapshot_and_every_message_since() -> None:
    journal = filled(Journal(100_000, None, 1_000), 25)
    segment = journal.find(24)
    assert segment is not None
    assert segment.stable_point == 20
    history = journal.history(segment)
    assert [int(m.data.split()[0]) for m in history.messages] == [21, 22, 23, 24, 25]
    assert (history.complete_from, history.events) == (20, 5)
    beginning = journal.find(NEG_INF)
    assert beginning is not None
    everything = journal.history(beginning)
    assert [int(m.data.split()[0]) for m in everything.messages] == list(range(1, 26))
    assert everything.events == 25


def test_what_is_emitted_after_a_history_was_taken_is_not_in_it() -> None:
    journal = filled(Journal(100_000, None, 1_000), 5)
    segment = journal.find(3)
    assert segment is not None
    history = journal.history(segment)
    journal.append(message(6))
    assert len(history.messages) == 5


def test_a_segment_of_many_small_messages_ends_long_before_it_is_large() -> None:
    """A resuming reader needs the same time for each message, however small it is."""
    journal = filled(Journal(10**9, None, 10**8), 3 * MESSAGES_PER_SEGMENT + 5)
    assert len(journal) == 4
    segment = journal.find(3 * MESSAGES_PER_SEGMENT + 5)
    assert segment is not None
    assert len(journal.history(segment).messages) == 5


def test_bytes_are_bounded_and_the_oldest_go_first() -> None:
    journal = filled(Journal(5_000, None, 1_000), 200)
    assert 3_000 < journal.bytes <= 5_000
    assert journal.retained_from is not None
    assert 150 <= journal.retained_from <= 170
    assert journal.find(journal.retained_from - 1) is None


def test_times_are_bounded_but_all_that_is_needed_is_kept() -> None:
    journal = filled(Journal(10**9, 30, 200), 200)
    assert journal.retained_from is not None
    assert 200 - 30 - 5 <= journal.retained_from <= 200 - 30


def test_a_slow_stream_forgets_by_time_though_its_segments_are_not_full() -> None:
    journal = filled(Journal(10**9, 30, 10**6), 200)
    assert journal.retained_from is not None
    assert journal.retained_from >= 200 - 2 * 30 - 1


def test_snapshots_cost_a_part_of_the_output_not_a_multiple() -> None:
    journal = Journal(10**9, None, 1_000)
    filled(journal, 1_000, live_count=50)
    snapshots = sum(segment.snapshot_bytes for segment in journal._segments)
    assert len(journal) > 5
    assert snapshots < journal.bytes - snapshots


def test_a_snapshot_that_does_not_fit_is_not_kept_and_tried_again_when_as_much_was_emitted() -> None:
    journal = filled(Journal(3_000, None, 1_000), 60, live_count=50)
    assert journal.retained_from is None
    assert journal.find(60) is None
    assert journal.bytes == 0
    due = []
    for at in range(61, 200):
        journal.append(message(at))
        if journal.needs_segment(at):
            due.append(at)
    assert due[0] < 100
    journal.begin(live(1, 200), 200, NEG_INF)
    assert journal.retained_from == 200


def test_a_store_keeps_even_a_snapshot_above_the_bound_but_does_not_repeat_it_all_the_time() -> None:
    changes = Changes()
    journal = filled(Journal(3_000, None, 1_000, changes), 400, live_count=50)
    assert len(journal) == 1
    assert 3 < len(changes.segments) < 20
    assert changes.forgotten == [segment.number for segment in changes.segments[:-1]]


def test_a_store_gets_everything_and_memory_keeps_nothing() -> None:
    changes = Changes()
    journal = filled(Journal(10_000, None, 1_000, changes), 25)
    assert [number for number, *_ in changes.messages] == list(range(1, 26))
    assert {segment: first for segment, first, *_ in changes.segments} == {1: 1, 2: 11, 3: 21}
    assert [of for _, of, *_ in changes.messages] == [1] * 10 + [2] * 10 + [3] * 5
    segment = journal.find(12)
    assert segment is not None
    history = journal.history(segment)
    assert (history.snapshot, history.messages, history.segment, history.first, history.end) == (None, [], 2, 11, 26)
    taken = changes.take()
    assert taken.messages
    assert not changes


def test_nothing_before_complete_from_can_be_resumed() -> None:
    journal = Journal(10_000, None, 1_000)
    journal.begin(EMPTY, NEG_INF, 100)
    assert (journal.retained_from, journal.find(99)) == (100, None)
    journal.begin(live(1, 50), 50, 100)
    found = journal.find(100)
    assert found is not None
    assert found.stable_point == 50


@pytest.mark.parametrize("turns", [0, 7, 25])
def test_a_journal_that_is_opened_again_goes_on_with_its_numbers(turns: int) -> None:
    first = Changes()
    before = filled(Journal(10_000, None, 1_000, first), turns)
    after = Journal(10_000, None, 1_000, changes := Changes())
    after.reopen(list(before._segments))
    assert (after.bytes, after.retained_from) == (before.bytes, before.retained_from)
    after.append(message(turns + 1))
    after.begin(live(0, turns), turns, NEG_INF)
    assert changes.messages[0][0] == turns + 1
    assert changes.segments[0].number > max(segment.number for segment in first.segments)
