"""Switching to a more general algorithm at run time: at once, without loss, with the reason (laws 2, 6; IV.G)."""

from __future__ import annotations

import json
from random import Random

import pytest
from core_world import a, f, m

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.properties import Case
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.errors import PropertiesTooWeak
from lmerge.testing.merges.declared import COPIES_PROMISES, PROMISES, R0_PROMISES, R1_PROMISES, R2_PROMISES
from lmerge.testing.oracle import Follow
from lmerge.testing.streams.merge_inputs import ordered, present, reference


def two(promises: tuple[str, ...]) -> Follow:
    follow = Follow(Merge(MergeConfig(allow_downgrade=True)))
    follow.attach("1", promises)
    follow.attach("2", promises)
    return follow


@pytest.mark.parametrize(("runs", "after"), [("r2", "r2"), ("r3", "r4")])
def test_an_input_that_promises_no_key_is_not_held_to_one(runs: str, after: str) -> None:
    """The needs of the cases are not a chain: R1 needs no key, R3 does, and a merge that runs R3 does not go back. R2
    needs no key."""
    follow = Follow(Merge())
    follow.attach("1", PROMISES[runs])
    follow.publish("1", a("A", 5, 8))
    assert follow.merge.algorithm == runs
    follow.detach("1")
    outcome = follow.attach("2", R1_PROMISES)
    changes = [(switched.before, switched.after) for switched in outcome.switched]
    assert changes == ([(runs, after)] if after != runs else [])
    assert (
        follow.merge.algorithm_reason
        == {
            "r2": "r2 runs, and a merge does not return to r1; copies are counted because key is not promised by '2'",
            "r4": "r3 runs, but key is not promised by '2', and a merge does not return to r1",
        }[after]
    )
    assert not follow.publish("2", a("A", 5, 8), a("A", 5, 8), f(INF)).detached
    assert len(follow.events()) == 2


@pytest.mark.parametrize(("runs", "after"), [("r2", "r2"), ("r3", "r4")])
def test_a_broken_key_is_dropped_though_the_remaining_promises_allow_r1(runs: str, after: str) -> None:
    follow = Follow(Merge(MergeConfig(allow_downgrade=True)))
    follow.attach("1", PROMISES[runs])
    follow.publish("1", a("A", 5, 8))
    follow.attach("2", (*R1_PROMISES, "key"))
    follow.detach("1")
    assert follow.merge.algorithm == runs
    outcome = follow.publish("2", a("A", 5, 8), a("A", 5, 8), f(INF))
    assert not outcome.detached
    assert [(switched.before, switched.after) for switched in outcome.switched] == [(runs, after)]
    assert len(follow.events()) == 2


@pytest.mark.parametrize(
    ("promises", "before", "offender", "after"),
    [
        (R0_PROMISES, "r0", a("T", 5, 9), "r4"),
        ((*R0_PROMISES, "ordered", "deterministic-ties"), "r0", a("T", 5, 9), "r1"),
        ((*R0_PROMISES, "ordered", "key"), "r0", a("T", 5, 9), "r2"),
        ((*R0_PROMISES, "key"), "r0", a("T", 4, 9), "r3"),
        (R1_PROMISES, "r1", a("T", 4, 9), "r4"),
        (COPIES_PROMISES, "r2", a("T", 4, 9), "r4"),
        (COPIES_PROMISES, "r2", m("A", 5, 8, 9), "r4"),
        (R2_PROMISES, "r2", a("T", 4, 9), "r3"),
        (R2_PROMISES, "r2", m("A", 5, 8, 9), "r3"),
        (R2_PROMISES, "r2", a("A", 5, 8), "r2"),
        (("key",), "r3", a("A", 5, 12), "r4"),
    ],
)
def test_a_broken_property_is_dropped_and_the_algorithm_changes(
    promises: tuple[str, ...], before: str, offender: Element, after: str
) -> None:
    follow = two(promises)
    follow.publish("1", a("A", 5, 8))
    follow.publish("2", a("A", 5, 8))
    assert follow.merge.algorithm == before
    outcome = follow.publish("1", offender)
    assert not outcome.detached
    (switched,) = outcome.switched
    assert (switched.before, switched.after) == (before, after)
    assert str(offender) in follow.merge.algorithm_reason
    follow.publish("2", offender)
    follow.restore()
    for name in ("1", "2"):
        follow.publish(name, f(INF))
    assert follow.merge.stable_point == INF
    tdb = follow.prefixes[0].tdb
    assert follow.events() == tdb.events(), "nothing lost, nothing twice"


def test_what_happened_before_the_downgrade_in_the_same_batch_is_still_reported() -> None:
    merge = Merge(MergeConfig(allow_downgrade=True))
    for name, join_at in (("1", None), ("late", 5), ("wrong", 5)):
        merge.attach(name, R2_PROMISES, join_at=join_at)
    merge.apply("wrong", Batch.of([a("A", 6, 9), a("A", 6, 9)]))
    outcome = merge.apply("1", Batch.of([a("B", 4, 9), f(5), m("B", 4, 9, 8)]))
    assert [(s.before, s.after) for s in outcome.switched] == [("r2", "r3")]
    assert outcome.joined == ("late", "wrong")
    assert [(d.input, d.violation and d.violation.code) for d in outcome.detached] == [("wrong", "duplicate-key")]
    merge.check()


@pytest.mark.parametrize("declares", ["attach", "breaks"])
@pytest.mark.parametrize("tracks", [True, False])
def test_where_the_key_is_lost_what_it_kept_from_the_output_at_this_vs_is_emitted(declares: str, tracks: bool) -> None:
    """Counting copies, A has two ends at this Vs and B came twice. Inputs that have left and lower Vs do not count."""
    if declares == "breaks" and not tracks:
        return  # a broken promise is dropped only where the live events are tracked
    merge = Merge(MergeConfig(track_live=tracks, allow_downgrade=declares == "breaks"))
    for name in "xyz":
        merge.attach(name, R2_PROMISES)
    for name, elements in (
        ("x", [a("A", 2, 9)]),
        ("y", [a("A", 2, 8), a("C", 5, 9)]),
        ("x", [a("A", 5, 9)]),
        ("y", [a("A", 5, 8), a("E", 5, 5)]),
        ("z", [a("A", 5, 7)]),
        ("x", [a("B", 5, 9)]),
    ):
        merge.apply(name, Batch.of(elements))
    merge.detach("z")
    if declares == "attach":
        outcome = merge.attach("w", COPIES_PROMISES)
        assert list(outcome.batch.elements()) == [a("A", 5, 8)]
        assert not outcome.switched
        outcome = merge.apply("w", Batch.of([a("B", 5, 9), a("B", 5, 9), a("A", 5, 8), a("E", 5, 5)]))
        assert list(outcome.batch.elements()) == [a("B", 5, 9)]
    else:
        outcome = merge.apply("x", Batch.of([a("B", 5, 9)]))
        assert list(outcome.batch.elements()) == [a("A", 5, 8), a("B", 5, 9)]
        (switched,) = outcome.switched
        assert (switched.before, switched.after) == ("r2", "r2")
        assert "copies are counted because key is not promised by 'x'; not r1" in switched.reason
        assert "insert(B, 5, 9)" in switched.reason
    merge.check()
    assert snapshot_of(restored(snapshot_of(merge))) == snapshot_of(merge)
    outcome = merge.apply("y", Batch.of([a("A", 6, 9), a("A", 6, 8)]))
    assert bool(outcome.detached) == (declares == "attach"), "its own promise of a key still binds y"


def test_r1_that_has_output_a_key_twice_is_followed_by_r2_that_counts() -> None:
    """R1 checks no key. A replay of both events into R2 adds no event, and another end of the key is output."""
    merge = Merge(MergeConfig(track_live=True))
    merge.attach("x", (*R1_PROMISES, "key"))
    merge.apply("x", Batch.of([a("A", 5, 8), a("A", 5, 9)]))
    outcome = merge.attach("y", R2_PROMISES)
    assert [(change.before, change.after) for change in outcome.switched] == [("r1", "r2")]
    assert not outcome.batch.count
    assert not merge.attach("z", COPIES_PROMISES).batch.count
    outcome = merge.apply("z", Batch.of([a("A", 5, 9), a("A", 5, 8), a("A", 5, 7)]))
    assert list(outcome.batch.elements()) == [a("A", 5, 7)]
    merge.check()


@pytest.mark.parametrize("tracks", [True, False])
def test_r2_in_a_snapshot_of_the_version_before_finds_the_ends_again(tracks: bool) -> None:
    """Such a snapshot has the payloads without their ends, which are needed when the key is lost in this slot."""
    merge = Merge(MergeConfig("r2", track_live=tracks))
    for name in "xy":
        merge.attach(name, R2_PROMISES)
    merge.apply("x", Batch.of([a("A", 5, 9), a("B", 5, 9), a("E", 5, 5)]))
    merge.apply("y", Batch.of([a("A", 5, 9)]))
    document = json.loads(snapshot_of(merge))
    del document["algorithm"]["ends"]
    merge = restored(json.dumps(document).encode())
    assert not merge.attach("z", COPIES_PROMISES).batch.count
    outcome = merge.apply("z", Batch.of([a("A", 5, 9), a("B", 5, 9), a("E", 5, 5), a("A", 5, 9)]))
    assert list(outcome.batch.elements()) == [a("A", 5, 9)]


def test_where_no_downgrade_is_allowed_the_input_ends() -> None:
    merge = Merge()
    merge.attach("1", R0_PROMISES)
    outcome = merge.apply("1", Batch.of([a("A", 5, 8), a("T", 5, 8)]))
    assert outcome.detached
    assert not outcome.switched


def test_an_element_that_is_wrong_under_every_algorithm_ends_the_input() -> None:
    follow = two(R0_PROMISES)
    follow.publish("1", f(10))
    assert follow.publish("1", a("A", 5, 8)).detached


def test_a_merge_without_live_events_refuses_a_weaker_input() -> None:
    merge = Merge(MergeConfig(track_live=False))
    merge.attach("1", R0_PROMISES)
    merge.apply("1", Batch.of([a("A", 5, 8)]))
    with pytest.raises(PropertiesTooWeak, match="'2'"):
        merge.attach("2", ())


@pytest.mark.parametrize("first", ["r0", "r1", "r2", "r3"])
@pytest.mark.parametrize("then", ["r1", "r2", "r3", "r4"])
def test_an_input_that_promises_less_changes_a_running_merge_without_loss(first: str, then: str) -> None:
    for seed in range(25):
        random = Random(f"{seed} {first} {then}")
        events = reference(random, 15, strict=first == "r0")

        def stream(algorithm: str) -> list[Element]:
            if algorithm in ("r3", "r4"):
                return present(random, events)  # noqa: B023 - used within its turn
            return ordered(random, events, ties="shuffled" if algorithm == "r2" else "payload")  # noqa: B023

        # The data has a key whatever the inputs promise, so R2 and R3 may follow R1.
        promises = tuple(set(PROMISES[first]) | {"key"})
        follow = Follow(Merge())
        streams = {"1": stream(first), "2": stream(first)}
        for name in streams:
            follow.attach(name, promises)
        for _ in range(random.randint(1, 25)):
            name = random.choice([name for name in streams if streams[name]] or ["-"])
            if name != "-":
                follow.publish(name, streams[name].pop(0))
        before = follow.merge.algorithm
        streams["3"] = stream(then)
        follow.attach("3", PROMISES[then])
        assert Case[follow.merge.algorithm.upper()] >= Case[before.upper()]
        while any(streams.values()):
            name = random.choice([name for name in streams if streams[name]])
            assert not follow.publish(name, streams[name].pop(0)).detached
        assert follow.events() == events


@pytest.mark.parametrize("weaker", ["r2", "r3", "r4"])
def test_what_waits_to_join_is_kept_when_the_merge_switches(weaker: str) -> None:
    """Under R0-R2 elements of a joining input wait; the algorithm after the switch must have them nevertheless."""
    follow = Follow(Merge())
    follow.attach("1", R0_PROMISES)
    follow.publish("1", a("A", 5, 20))
    follow.attach("2", R0_PROMISES, join_at=5)
    follow.publish("2", a("A", 5, 20))
    follow.publish("2", a("B", 6, 20))
    assert follow.merge.inputs()[1].state == "joining"
    follow.attach("3", PROMISES[weaker])
    assert follow.merge.algorithm == weaker
    assert not follow.publish("1", f(5)).detached
    assert not follow.publish("2", f(21)).detached, "what it delivered while joining is its own"
    assert [event.payload for event in follow.events()] == [b"A", b"B"]


def test_what_was_passed_over_before_the_order_of_ties_broke_counts_as_not_delivered() -> None:
    """R1 -> R2: the second input delivers the slot in another order, which breaks no key."""
    follow = two(("insert-only", "ordered", "deterministic-ties", "key"))
    follow.publish("1", a("A", 2, 9), a("B", 2, 9), a("C", 2, 9))
    assert follow.merge.algorithm == "r1"
    outcome = follow.publish("2", a("C", 2, 9), a("A", 2, 9), a("B", 2, 9), f(INF))
    assert not outcome.detached
    assert [(switched.before, switched.after) for switched in outcome.switched] == [("r1", "r2")]
    follow.publish("1", f(INF))
    assert len(follow.events()) == 3


def test_final_only_keeps_an_event_that_exists_though_its_input_has_left() -> None:
    """The stable of an input that has left froze the event's existence. It is not shown yet at the switch to R4."""
    follow = Follow(Merge(MergeConfig(policy="final-only")))
    for name in "12":
        follow.attach(name, PROMISES["r3"])
    follow.publish("1", a("B", 2, 7), f(3), m("B", 2, 7, 4))
    follow.detach("1")
    follow.attach("3", ())
    assert follow.merge.algorithm == "r4"
    follow.publish("3", a("B", 2, 4), a("C", 5, 9), f(13))
    assert follow.events() == [Event(2, b"B", 4), Event(5, b"C", 9)]


def test_an_input_that_broke_its_promise_while_it_waited_does_not_join_in_the_same_call() -> None:
    """R1 checks no key, so a waiting element is found to break it when the merge switches. A stable in the same batch
    reaches its join_at. However the batch is cut, the stable of that input does not move the output.
    """
    moved = 0
    for seed in range(40):
        random = Random(seed)
        promises = ("insert-only", "ordered", "deterministic-ties", "key")
        second = Insert(random.choice((b"W", b"V")), 5, 25)
        waited: list[Element] = [Insert(b"W", 5, 20), second, Stable(random.choice((30, 99)))]
        later: list[Element] = [Insert(b"B", 7, 40), Adjust(b"B", 7, 40, 35), Stable(random.choice((4, 8, 12)))]
        later += [Insert(b"C", 14, 45), Stable(random.choice((14, 20)))]
        found = []
        for parts in ([later], [[element] for element in later]):
            follow = Follow(Merge(MergeConfig(allow_downgrade=True)), compatible=False)
            follow.attach("1", promises)
            follow.publish("1", Insert(b"A", 3, 50))
            follow.attach("late", promises, join_at=8)
            follow.publish("late", *waited)
            assert follow.merge.status("late").state == "joining"
            outcomes = [follow.publish("1", *part) for part in parts]
            assert any(outcome.switched for outcome in outcomes)
            found.append((follow.events(), follow.merge.stable_point))
            is_broken = any(change.input == "late" for outcome in outcomes for change in outcome.detached)
            assert is_broken == (second.payload == b"W")
            moved += is_broken
            assert not is_broken or all("late" not in outcome.joined for outcome in outcomes)
        assert found[0] == found[1]
    assert moved > 10


@pytest.mark.parametrize("cut", [True, False])
def test_an_input_that_is_found_broken_at_its_own_switch_is_ended_there(cut: bool, engine: str) -> None:
    """Its elements waited, and R2 checked no key of them. What comes behind the switch is dropped, so it switches
    nothing: a batch means what its elements mean.
    """
    follow = Follow(Merge(MergeConfig(allow_downgrade=True, engine=engine)), compatible=False)
    follow.attach("1", R2_PROMISES)
    follow.attach("late", R2_PROMISES, join_at=5)
    waits = [a("A", 8, 9), a("A", 8, 9), a("B", 13, 19)]
    behind = [a("C", 10, 14), a("D", 14, 20), a("D", 14, 21)]
    outcomes = []
    for part in [[one] for one in waits + behind] if cut else [waits + behind]:
        if follow.merge.is_attached("late"):
            outcomes.append(follow.publish("late", *part))
    assert [change.input for outcome in outcomes for change in outcome.detached] == ["late"]
    assert [switched.after for outcome in outcomes for switched in outcome.switched] == ["r3"]
    assert b"D" not in {event.payload for event in follow.events()}
