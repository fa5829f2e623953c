"""``resumed``: a merge that has emitted an output continues as if it had never ended; all algorithms and policies.

The property: a merge is cut anywhere, and another one is made from its output. The replicas attach again with any
join_at up to its stable point, deliver their live events again and continue. The whole output is one legal stream,
equals the reference, emits no event twice, and keeps C1-C3.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from core_world import a, f, m

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Element, Event, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.resume import OutputReplay, emitted_events, resumed
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.core.tdb import Tdb
from lmerge.errors import StaleIncarnation, UsageError
from lmerge.testing.merges.declared import COPIES_PROMISES, INDEX_POLICIES, PROMISES, R1_PROMISES, R3_PROMISES
from lmerge.testing.oracle import Follow
from lmerge.testing.streams.merge_inputs import ordered, present, reference

CASES = [(algorithm, policy) for algorithm in ("r3", "r4") for policy in INDEX_POLICIES] + [
    (algorithm, policy) for algorithm in ("r0", "r1", "r2", "r2 copies") for policy in ("lazy", "eager", "lazy+lag:3")
]


class ReplicaStream:
    """A replica's stream, the position in it, and the live events."""

    def __init__(self, stream: list[Element]) -> None:
        self.stream = stream
        self.position = 0
        self._tdb = Tdb("replica")

    def next(self, count: int) -> list[Element]:
        part = self.stream[self.position : self.position + count]
        self.position += len(part)
        for element in part:
            self._tdb.apply(element)
        return part

    def again(self, join_at: int) -> list[Element]:
        """Return what it delivers when it attaches again: its events that are not fully frozen both at join_at and at
        its own stable point, in the order in which it delivered them."""
        known = [event for event in self._tdb.events() if event.ve >= min(join_at, self._tdb.stable_point)]
        delivered: list[Element] = []
        for element in self.stream[: self.position]:
            if isinstance(element, Insert):
                for event in [e for e in known if (e.vs, e.payload) == (element.vs, element.payload)]:
                    known.remove(event)
                    delivered.append(Insert(event.payload, event.vs, event.ve))
        assert not known
        if self._tdb.stable_point > NEG_INF:
            delivered.append(Stable(self._tdb.stable_point))
        return delivered


def stream_of(random: Random, algorithm: str, events: list[Event]) -> list[Element]:
    if algorithm in ("r3", "r4"):
        return present(random, events)
    if algorithm[:2] == "r2":
        return ordered(random, events, ties="shuffled")
    # Ties in an order that sorting would not give.
    return ordered(random, sorted(events, key=lambda e: (e.vs, [-byte for byte in e.payload], e.ve)))


def restarted(merge: Merge, elements: list[Element], random: Random) -> Merge:
    """Return the merge after a restart: from a snapshot at some point, and the output emitted since."""
    replay = OutputReplay(merge.algorithm, merge.engine)
    replay.add(emitted_events(merge) if random.random() < 0.5 else Batch.of(elements))
    live = replay.live_events()
    assert sorted(live.rows()) == sorted(emitted_events(merge).rows())
    return resumed(
        live,
        merge.stable_point,
        merge.algorithm,
        MergeConfig(policy=merge.policy, engine=merge.engine),
        incarnations={"0": 1, "1": 1, "2": 1},
    )


def run(random: Random, algorithm: str, policy: str) -> None:
    duplicates = algorithm in ("r1", "r2 copies", "r4") and random.random() < 0.7
    promises = COPIES_PROMISES if algorithm == "r2 copies" else PROMISES[algorithm]
    events = reference(random, random.randint(1, 20), duplicates=duplicates, strict=algorithm == "r0")
    replicas = {str(at): ReplicaStream(stream_of(random, algorithm, events)) for at in range(random.randint(1, 3))}
    follow = Follow(Merge(MergeConfig("auto", policy)))
    for name in replicas:
        follow.attach(name, promises)
    for restart in range(random.randint(1, 3)):
        for _ in range(random.randint(0, 30)):
            name = random.choice(list(replicas))
            part = replicas[name].next(random.randint(1, 4))
            if follow.merge.is_attached(name):
                assert not follow.publish(name, *part).detached
        follow.merge = restarted(follow.merge, follow.elements, random)
        follow.merge.check()
        if random.random() < 0.2:
            follow.restore()
        for name in random.sample(list(replicas), len(replicas)):
            if random.random() < 0.8 or name == "0":
                replicas[name].next(random.randint(0, 3))  # the elements that the merge received and emitted were lost
                stable_point = follow.merge.stable_point
                join_at = random.choice((stable_point, stable_point, max(NEG_INF, stable_point - random.randint(0, 9))))
                follow.attach(name, promises, join_at=join_at)
                for element in replicas[name].again(join_at):
                    assert not follow.publish(name, element).detached, (restart, name)
    rest = {name: replica for name, replica in replicas.items() if follow.merge.is_attached(name)}
    while any(replica.position < len(replica.stream) for replica in rest.values()):
        name = random.choice(list(rest))
        assert not follow.publish(name, *rest[name].next(random.randint(1, 4))).detached
    assert follow.events() == events
    assert follow.merge.stable_point == INF


@pytest.mark.parametrize(("algorithm", "policy"), CASES)
def test_a_resumed_merge_continues_as_if_it_had_never_ended(
    algorithm: str, policy: str, seeds_of: Callable[[int, int], range]
) -> None:
    for seed in seeds_of(15, 3):
        run(Random(f"{seed} {algorithm} {policy}"), algorithm, policy)


@pytest.mark.long
@pytest.mark.parametrize(("algorithm", "policy"), CASES)
def test_resumed_merges_of_many_seeds(algorithm: str, policy: str, long_seeds: range) -> None:
    for seed in long_seeds:
        run(Random(f"{seed} {algorithm} {policy} resumed"), algorithm, policy)


def emitted(merge: Merge, name: str, *elements: Element) -> list[Element]:
    return list(merge.apply(name, Batch.of(elements)).batch.elements())


def test_what_was_emitted_is_not_emitted_again_and_what_was_wrong_is_adjusted() -> None:
    merge = resumed(Batch.of([a("A", 1, 20), a("B", 6, 9), f(5)]), 5, "r3")
    merge.attach("x", R3_PROMISES, join_at=5)
    assert emitted(merge, "x", a("A", 1, 30), a("B", 6, 9), a("C", 7, 8)) == [a("C", 7, 8)]
    assert emitted(merge, "x", f(25)) == [m("A", 1, 20, 30), f(25)]


def test_an_event_that_only_a_lost_input_had_delivered_is_retracted_if_it_is_not_frozen() -> None:
    merge = resumed(Batch.of([a("A", 1, 20), a("never", 6, 9), f(5)]), 5, "r4")
    merge.attach("x", join_at=5)
    assert emitted(merge, "x", a("A", 1, 20), f(8)) == [m("never", 6, 9, 6), f(8)]


def test_a_half_frozen_event_that_no_input_has_any_more_stays_as_it_was_emitted() -> None:
    merge = resumed(Batch.of([a("A", 1, 20), f(5)]), 5, "r3")
    merge.attach("x", R3_PROMISES, join_at=5)
    assert emitted(merge, "x", f(30)) == [f(30)]


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_before_a_resumed_merge_is_right_a_half_frozen_event_that_no_input_has_any_more_ends(algorithm: str) -> None:
    """The resumed output had an input that was admitted early: events that ended before 20 may have another end."""
    merge = resumed(Batch.of([a("A", 1, 40), f(5)]), 5, algorithm, right_from=20)
    merge.attach("x", R3_PROMISES, join_at=5)
    assert emitted(restored(snapshot_of(merge)), "x", f(60)) == [m("A", 1, 40, 5), f(60)]
    assert emitted(merge, "x", f(20)) == [m("A", 1, 40, 5), f(20)]


def test_below_the_stable_point_r1_emits_nothing_and_at_max_vs_it_keeps_the_order() -> None:
    merge = resumed(Batch.of([a("A", 1, 20), a("Z", 6), a("B", 6), f(5)]), 5, "r1")
    merge.attach("x", R1_PROMISES, join_at=5)
    assert emitted(merge, "x", a("missed", 2, 9), a("Z", 6), a("B", 6), a("C", 6)) == [a("C", 6)]


def test_a_replay_of_r1_keeps_the_order_at_max_vs() -> None:
    replay = OutputReplay("r1")
    replay.add(Batch.of([a("A", 1, 20), a("Z", 6), a("B", 6), f(5)]))
    merge = resumed(replay.live_events(), 5, "r1")
    merge.attach("x", R1_PROMISES, join_at=5)
    assert emitted(merge, "x", a("Z", 6), a("B", 6), a("C", 6)) == [a("C", 6)]
    assert b"out_of_step" not in bytes(snapshot_of(merge))  # in another order the input would have left the fast path


def test_final_only_does_not_show_an_event_twice() -> None:
    merge = resumed(Batch.of([a("done", 6, 9), f(5)]), 5, "r3", MergeConfig(policy="final-only"))
    assert list(merge.live_events().elements()) == [a("done", 6, 9), f(5)]
    merge.attach("x", R3_PROMISES, join_at=5)
    assert emitted(merge, "x", a("open", 5), a("done", 6, 9), a("next", 7, 8), f(20)) == [a("next", 7, 8)]
    assert snapshot_of(restored(snapshot_of(merge))) == snapshot_of(merge)


def test_a_switch_after_a_restart_has_what_was_emitted() -> None:
    merge = resumed(Batch.of([a("Z", 6, 20), a("B", 6, 20), f(5)]), 5, "r1")
    merge.attach("x", R3_PROMISES, join_at=5)
    assert merge.algorithm == "r4" or merge.algorithm == "r3"
    assert emitted(merge, "x", a("Z", 6, 12), a("B", 6, 20), f(7)) == [f(7)]


def test_the_fence_is_kept() -> None:
    merge = resumed(Batch.of([]), NEG_INF, "r0", incarnations={"x": 7})
    with pytest.raises(StaleIncarnation):
        merge.attach("x", incarnation=7)


@pytest.mark.parametrize(
    ("elements", "stable_point", "running", "message"),
    [
        ([a("A", 1, 4), f(5)], 5, "r3", "fully frozen"),
        ([a("A", 6, 9), a("A", 6, 8)], NEG_INF, "r3", "same key"),
        ([], NEG_INF, "r3-", "cannot resume a merge that ran 'r3-'"),
        ([], NEG_INF, "r9", "cannot resume a merge that ran 'r9'"),
    ],
)
def test_what_no_merge_can_have_emitted_is_refused(
    elements: list[Element], stable_point: int, running: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        resumed(Batch.of(elements), stable_point, running)


def test_a_less_general_algorithm_cannot_go_on() -> None:
    with pytest.raises(UsageError, match="less general"):
        resumed(Batch.of([]), NEG_INF, "r4", MergeConfig("r3"))
    assert resumed(Batch.of([a("A", 1)]), NEG_INF, "r1", MergeConfig(policy="quorum:2")).algorithm == "r3"


def test_r1_does_not_need_the_order_of_what_was_emitted_before_the_stable_point() -> None:
    """The order of D and B, whose existence is frozen, is not in the live events; the order at 9 is."""
    merge = resumed(Batch.of([a("B", 6), a("D", 6), f(9)]), 9, "r1")
    for name in "01":
        merge.attach(name, R1_PROMISES, join_at=9)
        outcome = merge.apply(name, Batch.of([a("D", 6), a("B", 6)]))
        assert (outcome.detached, list(outcome.batch.elements())) == ((), [])
    assert emitted(merge, "0", a("Y", 9), a("X", 9)) == [a("Y", 9), a("X", 9)]
    assert emitted(merge, "1", a("Y", 9), a("X", 9), f(10)) == [f(10)]
