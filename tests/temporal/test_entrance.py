"""Streams where they enter a plan: checked, with stable points by rule, and late changes dropped, moved or refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import msgpack
import pytest
from temporal_world import FIRST, LAST, StreamTable, cut, random_stream

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import InputViolation, UsageError
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.entrance import LatePolicy, ProgressRule, StreamEntrance

A, B = ("a",), ("b",)


def insert(row: tuple[str, ...], vs: int, ve: int) -> Change:
    return Change(row, vs, vs, ve)


def test_a_declared_stream_passes_as_it_is_and_is_cut_at_its_stables() -> None:
    for seed in range(300):
        stream = random_stream(random.Random(seed), 20)
        entrance = StreamEntrance("s")
        given, taken = StreamTable(), StreamTable()
        for delta in cut(random.Random(seed), stream):
            given.apply(delta)
        for delta in entrance.take(stream):
            assert not delta.is_empty
            taken.apply(delta)
            entrance.live.check()
        assert (taken.events, taken.stable) == (given.events, given.stable)
        live = Counter(event for event in taken.events.elements() if event.ve >= taken.stable)
        assert Counter(entrance.live) == (live if taken.stable < INF else Counter())


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ([insert(A, 1, 5), 3, insert(A, 2, 5)], "below-stable"),
        ([insert(A, 1, 5), 3, Change(A, 1, 5, 2)], "below-stable"),
        ([insert(A, 1, 5), 6, Change(A, 1, 5, 7)], "below-stable"),
        ([insert(A, 1, 5), 3, Change(A, 1, 5, 1)], "below-stable"),
        ([insert(A, 1, 5), Change(A, 1, 6, 7)], "unknown-event"),
        ([insert(A, 1, 5), Change(A, 1, 5, 1), Change(A, 1, 5, 6)], "unknown-event"),
        ([insert(A, 1, 5), Change(B, 1, 5, 6)], "unknown-event"),
        ([insert(A, 5, 1)], "end-before-start"),
    ],
)
def test_a_change_that_is_not_legal_is_named(items: list[Change | int], code: str) -> None:
    with pytest.raises(InputViolation, match=str(items[-1]).replace("(", r"\(").replace(")", r"\)")) as found:
        StreamEntrance("sensors").take(items)
    assert found.value.code == code
    assert "sensors" in str(found.value)


def test_changes_at_the_stable_point_are_legal() -> None:
    entrance = StreamEntrance("s")
    entrance.take([insert(A, 1, 5), 5, Change(A, 1, 5, 9), 7, insert(B, 7, 8), Change(A, 1, 9, 7), Change(B, 7, 8, 7)])
    assert list(entrance.live) == [Lifetime(A, 1, 7)]
    entrance.take([8])
    assert len(entrance.live) == 0


def test_the_rule_makes_stable_points_behind_the_latest_start() -> None:
    assert stables_of(ProgressRule(delay=3), (5, 9, 7, 12)) == [2, 6, None, 9]  # the one at 7 moves nothing
    assert stables_of(ProgressRule(every=4), range(9)) == [0, None, None, None, 4, None, None, None, 8]
    assert stables_of(ProgressRule(events=3), range(7)) == [None, None, 2, None, None, 5, None]


def stables_of(rule: ProgressRule, starts: Iterable[int]) -> list[int | None]:
    """Return the stable point behind each event, taken one by one."""
    entrance = StreamEntrance("s", rule)
    return [entrance.take([insert(A, t, 99)])[0].stable for t in starts]


@pytest.mark.parametrize("late", [LatePolicy.DROP, LatePolicy.MOVE])
def test_what_a_rule_does_depends_on_no_cut(late: LatePolicy) -> None:
    """Taken at once, changes are one batch with the last stable point, and the same of them are late."""
    counts = 0
    for seed in range(300):
        random_ = random.Random(seed)
        changes = [item for item in random_stream(random_, 25) if not isinstance(item, int)]
        rule = ProgressRule(delay=random_.choice((0, 2, 5)), every=random_.choice((0, 3)))
        single, whole, found = StreamEntrance("s", rule, late), StreamEntrance("s", rule, late), StreamTable()
        apart = [delta for change in changes for delta in single.take([change])]
        together = whole.take(changes)
        assert len(together) == 1
        whole.live.check()
        found.apply(together[0])
        expected = StreamTable()
        for delta in apart:
            expected.apply(delta)
        assert (found.events, found.stable) == (expected.events, expected.stable)
        assert (whole.dropped, whole.moved, whole.mark) == (single.dropped, single.moved, single.mark)
        assert whole.state(tuple) == single.state(tuple)
        counts += whole.dropped + whole.moved
    assert counts > 100


def test_a_source_with_a_rule_declares_its_end_alone() -> None:
    with pytest.raises(UsageError, match=r"declares stable\(4\)"):
        StreamEntrance("s", ProgressRule()).take([4])
    assert StreamEntrance("s", ProgressRule(delay=9)).take([insert(A, 5, 6), INF])[-1].stable == INF


@pytest.mark.parametrize("late", [LatePolicy.DROP, LatePolicy.MOVE])
def test_late_changes_leave_a_legal_stream_and_what_is_in_time_as_it_is(late: LatePolicy) -> None:
    counts = 0
    for seed in range(400):
        random_ = random.Random(seed)
        changes = [item for item in random_stream(random_, 25) if not isinstance(item, int)]
        rule = ProgressRule(delay=random_.choice((0, 2, 5, 40)), every=random_.choice((0, 3)))
        entrance, taken, claimed = StreamEntrance("s", rule, late), StreamTable(), StreamTable()
        for change in changes:
            claimed.apply(Delta([change]))
            for delta in entrance.take([change]):
                taken.apply(delta)
            entrance.live.check()
        counts += entrance.dropped + entrance.moved
        if not entrance.dropped + entrance.moved:
            assert taken.events == claimed.events
        assert late is LatePolicy.MOVE or entrance.moved == 0
        # Moved starts lie at the stable point, so from there on both tables are the same.
        for t in range(max(taken.stable, FIRST), LAST) if late is LatePolicy.MOVE else ():
            assert alive_at(taken, t) == alive_at(claimed, t)
    assert counts > 100


def alive_at(table: StreamTable, t: int) -> Counter[tuple[str, ...]]:
    """Return how often each row is valid at a time."""
    return Counter(event.row for event in table.events.elements() if event.vs <= t < event.ve)


@pytest.mark.parametrize(
    ("late", "items", "events", "dropped", "moved"),
    [
        (LatePolicy.DROP, [insert(B, 10, 11), insert(A, 5, 20)], [Lifetime(B, 10, 11)], 1, 0),
        (LatePolicy.MOVE, [insert(B, 10, 11), insert(A, 5, 20)], [Lifetime(A, 10, 20), Lifetime(B, 10, 11)], 0, 1),
        (LatePolicy.MOVE, [insert(B, 10, 11), insert(A, 5, 10)], [Lifetime(B, 10, 11)], 1, 0),
        (LatePolicy.MOVE, [insert(B, 10, 11), insert(A, 9, 10)], [Lifetime(B, 10, 11)], 1, 0),
        # A revision of an event that was dropped or moved.
        (LatePolicy.DROP, [insert(B, 10, 11), insert(A, 5, 20), Change(A, 5, 20, 30)], [Lifetime(B, 10, 11)], 2, 0),
        (
            LatePolicy.MOVE,
            [insert(B, 10, 11), insert(A, 5, 20), Change(A, 5, 20, 30), Change(A, 5, 30, 5)],
            [Lifetime(B, 10, 11)],
            0,
            2,
        ),
        (
            LatePolicy.MOVE,
            [insert(A, 5, 20), insert(B, 10, 11), Change(A, 5, 20, 7)],
            [Lifetime(A, 5, 10), Lifetime(B, 10, 11)],
            0,
            1,
        ),
        (
            LatePolicy.DROP,
            [insert(A, 5, 20), insert(B, 10, 11), Change(A, 5, 20, 7), Change(A, 5, 7, 15)],
            [Lifetime(A, 5, 15), Lifetime(B, 10, 11)],
            1,
            0,
        ),
    ],
)
def test_what_becomes_of_a_late_change(
    late: LatePolicy, items: list[Change], events: list[Lifetime], dropped: int, moved: int
) -> None:
    entrance, table = StreamEntrance("s", ProgressRule(), late), StreamTable()
    for item in items:
        for delta in entrance.take([item]):
            table.apply(delta)
    assert sorted(table.events.elements()) == sorted(events)
    assert (entrance.dropped, entrance.moved) == (dropped, moved)


def test_a_late_change_can_end_the_query() -> None:
    entrance = StreamEntrance("sensors", ProgressRule())
    entrance.take([insert(B, 10, 11)])
    with pytest.raises(InputViolation, match=r"sensors.*insert\(\('a'\), 5, 20\).*no change before stable\(10\)"):
        entrance.take([insert(A, 5, 20)])
    assert entrance.live.stable == 10
    assert entrance.live.stable > NEG_INF


@pytest.mark.parametrize("late", list(LatePolicy))
def test_a_restored_entrance_goes_on_in_the_same_way(late: LatePolicy) -> None:
    rules = (
        [None] if late is LatePolicy.FAIL else [ProgressRule(delay=3), ProgressRule(every=4), ProgressRule(events=3)]
    )
    for seed in range(200):
        random_ = random.Random(seed)
        rule = random_.choice(rules)
        entrance = StreamEntrance("s", rule, late)
        for item in random_stream(random_, 25):
            if rule is not None and isinstance(item, int):
                continue
            twin = StreamEntrance("s", rule, late)
            twin.restore(msgpack.unpackb(msgpack.packb(entrance.state(tuple))))
            twin.live.check()
            assert twin.take([item]) == entrance.take([item])
            assert twin.state(tuple) == entrance.state(tuple)
            assert (twin.mark, twin.dropped, twin.moved) == (entrance.mark, entrance.dropped, entrance.moved)
