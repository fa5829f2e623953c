"""A broken promise switches the algorithm without loss (laws 6 and 11): random sessions, every point of small ones."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from core_world import a, f, interleavings, m

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Element, Event, Insert
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import snapshot_of
from lmerge.core.tdb import reconstitute
from lmerge.testing.merges.broken import DrawnInputs
from lmerge.testing.merges.declared import INDEXED, R0_PROMISES, R1_PROMISES, R2_PROMISES
from lmerge.testing.merges.judged import broken_session, irreparable
from lmerge.testing.oracle import Follow

SEEDS = 60


def test_a_downgrade_corrects_what_can_be_corrected() -> None:
    switched = sum(broken_session(seed).switches for seed in range(SEEDS))
    assert switched > SEEDS // 4, "too few of the sessions break a promise"


@pytest.mark.long
def test_a_downgrade_corrects_what_can_be_corrected_for_many_seeds(long_seeds: range) -> None:
    for seed in long_seeds:
        broken_session(f"many {seed}")


# By name: the declared properties, and for each input a stream of one TDB; an element breaks a property.
SMALL: dict[str, tuple[tuple[str, ...], list[list[Element]]]] = {
    "an end is corrected": (
        R0_PROMISES,
        [[a("A", 1, 9), f(5), f(20), f(INF)], [a("A", 1, 12), m("A", 1, 12, 9), f(INF)]],
    ),
    "an end is corrected below a later Vs": (
        R0_PROMISES,
        [[a("A", 1, 9), a("B", 2, 9), f(20), f(INF)], [a("A", 1, 12), m("A", 1, 12, 9), a("B", 2, 9), f(INF)]],
    ),
    "the first to deliver corrects nothing": (
        R0_PROMISES,
        [[a("A", 1, 9), f(INF)], [a("A", 1, 12), m("A", 1, 12, 9), f(20), f(INF)]],
    ),
    "another order": (
        (*R0_PROMISES, "key"),
        [[a("A", 1, 9), a("B", 2, 9), a("C", 3, 9), f(INF)], [a("A", 1, 9), a("C", 3, 9), a("B", 2, 9), f(20), f(INF)]],
    ),
    "ties where none were declared": (
        (*R0_PROMISES, "ordered", "deterministic-ties"),
        [[a("A", 1, 9), a("B", 1, 8), f(2), f(INF)], [f(1), a("A", 1, 9), a("B", 1, 8), f(INF)]],
    ),
    "ties in another order": (
        (*R0_PROMISES, "ordered", "key"),
        [[a("A", 1, 9), a("B", 1, 8), f(2), f(INF)], [f(1), a("B", 1, 8), a("A", 1, 9), f(INF)]],
    ),
    "two ends of one key": (
        (*R1_PROMISES, "key"),
        [[a("A", 1, 9), a("A", 1, 12), f(1), f(INF)], [a("A", 1, 12), a("A", 1, 5), m("A", 1, 5, 9), f(INF)]],
    ),
    "one key with an end that is corrected": (
        (*R1_PROMISES, "key"),
        [[a("A", 1, 9), a("C", 3, 9), m("A", 1, 9, 12), f(INF)], [a("A", 1, 12), a("C", 3, 9), f(10), f(INF)]],
    ),
    "a key that is none": (
        R2_PROMISES,
        [[a("A", 1, 9), a("A", 1, 9), f(3), f(INF)], [a("A", 1, 9), a("A", 1, 9), f(INF)]],
    ),
    "an event that never was": (
        R2_PROMISES,
        [[a("X", 1, 9), a("A", 2, 9), m("X", 1, 9, 1), f(INF)], [a("A", 2, 9), f(5), f(INF)]],
    ),
}


def every_order(promises: tuple[str, ...], streams: list[list[Element]]) -> tuple[int, int]:
    """Play all interleavings, with every point at which the second input leaves. Returns counts: sessions, switches."""
    expected = reconstitute(streams[0])
    assert expected == reconstitute(streams[1])
    sessions = switched = 0
    for order in interleavings([len(stream) for stream in streams]):
        for leaves_at in range(len(streams[1]) + 1):
            sessions += 1
            switched += _session(promises, streams, order, leaves_at, expected)
    return sessions, switched


def _session(
    promises: tuple[str, ...], streams: list[list[Element]], order: Sequence[int], leaves_at: int, expected: list[Event]
) -> bool:
    follow = Follow(Merge(MergeConfig(allow_downgrade=True)), compatible=False)
    for name in "01":
        follow.attach(name, promises)
    positions, lost = [0, 0], set()
    is_indexed = False
    for at in order:
        if at == 1 and positions[1] == leaves_at:
            follow.detach("1")
        if follow.merge.is_attached(str(at)):
            shown, stable = follow.events(), follow.merge.stable_point
            assert not follow.publish(str(at), streams[at][positions[at]]).detached
            if not is_indexed and follow.merge.algorithm in INDEXED:
                is_indexed, lost = True, irreparable(expected, shown, stable)
        positions[at] += 1
    if not is_indexed:
        lost = irreparable(expected, follow.events(), INF)
    events = [event for event in follow.events() if (event.vs, event.payload) not in lost]
    assert events == [event for event in expected if (event.vs, event.payload) not in lost], (order, leaves_at)
    return is_indexed


@pytest.mark.parametrize("name", SMALL)
def test_every_order_and_every_death(name: str) -> None:
    promises, streams = SMALL[name]
    sessions, switched = every_order(promises, streams)
    assert sessions
    assert switched or name.startswith(("ties", "a key that is none")), "R0-R2 go on without those"


def test_what_another_input_delivered_instead_is_emitted_by_the_downgrade_from_r0_to_r1_and_r2() -> None:
    for promise, after in (("deterministic-ties", "r1"), ("key", "r2")):
        follow = Follow(Merge(MergeConfig(allow_downgrade=True)), compatible=False)
        for name in "123":
            follow.attach(name, (*R0_PROMISES, "ordered", promise))
        follow.publish("1", a("A", 1, 9))
        follow.publish("2", a("B", 1, 9))
        follow.detach("2") if promise == "key" else None
        outcome = follow.publish("1", a("C", 1, 9))
        assert follow.merge.algorithm == after
        payloads = [e.payload for e in outcome.batch.elements() if isinstance(e, Insert)]
        assert payloads == ([b"C"] if promise == "key" else [b"B", b"C"]), "that of an input that has left went with it"


@pytest.mark.parametrize(("promises", "after"), [(R0_PROMISES, "r3"), (R1_PROMISES, "r4")])
def test_what_came_too_late_for_r0_and_r1_is_emitted_by_the_downgrade_itself(
    promises: tuple[str, ...], after: str
) -> None:
    """The next stable would correct it too, but an input that is slow would then be what the output waits for."""
    follow = Follow(Merge(MergeConfig(allow_downgrade=True)), compatible=False)
    for name in "12":
        follow.attach(name, promises)
    follow.publish("1", a("B", 3, 9))
    assert not list(follow.publish("2", a("A", 1, 9)).batch.elements()), "the output has passed it"
    outcome = follow.publish("1", m("B", 3, 9, 12))
    assert follow.merge.algorithm == after
    assert a("A", 1, 9) in list(outcome.batch.elements())


def test_where_no_downgrade_is_allowed_deliveries_are_not_kept() -> None:
    for allowed in (True, False):
        merge = Merge(MergeConfig(allow_downgrade=allowed))
        follow = Follow(merge)
        follow.attach("1", R0_PROMISES)
        follow.publish("1", a("A", 1, 9), a("B", 2, 3), f(4))
        assert (b'"delivered":[[1,"QQ==",9]]' in snapshot_of(merge)) == allowed
        follow.attach("2", ("key",))
        assert merge.algorithm == "r3"
        assert b'"delivered"' not in snapshot_of(merge)


def test_an_input_that_breaks_two_promises_in_one_call_is_ended_once() -> None:
    """The first makes the merge switch, a waiting element is found to break the second, and the rest ends the input."""
    merge = Merge(MergeConfig(allow_downgrade=True))
    merge.attach("1", R2_PROMISES)
    merge.attach("late", R2_PROMISES, join_at=5)
    merge.apply("late", Batch.of([a("A", 8, 9), a("A", 8, 9)]))
    outcome = merge.apply("late", Batch.of([m("B", 8, 20, 30)]))
    assert [switched.after for switched in outcome.switched] == ["r3"]
    assert [detached.input for detached in outcome.detached] == ["late"]
    merge.check()


def test_a_world_is_the_same_for_the_same_seed() -> None:
    one, other = (DrawnInputs(Random(7)) for _ in range(2))
    assert (one.events, one.stream(), one.promises()) == (other.events, other.stream(), other.promises())
