"""Switching to a more general algorithm at run time: at once, without loss, with the reason (laws 2, 6; IV.G)."""

from __future__ import annotations

import json
from random import Random

import pytest
from helpers import COPIES_WORDS, R0_WORDS, R1_WORDS, R2_WORDS, WORDS, a, f, m

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.core.properties import Case
from lmerge.errors import PropertiesTooWeak
from lmerge.testing.generate import ordered, present, reference
from lmerge.testing.oracle import Follow


def two(words: tuple[str, ...]) -> Follow:
    follow = Follow(Merge(allow_downgrade=True))
    follow.attach("1", words)
    follow.attach("2", words)
    return follow


@pytest.mark.parametrize(("runs", "after"), [("r2", "r2"), ("r3", "r4")])
def test_an_input_that_promises_no_key_is_not_held_to_one(runs: str, after: str) -> None:
    """The cases are no chain: R1 needs no key, R3 does, and a merge that runs it does not go back. R2 does without."""
    follow = Follow(Merge())
    follow.attach("1", WORDS[runs])
    follow.publish("1", a("A", 5, 8))
    assert follow.merge.algorithm == runs
    follow.detach("1")
    outcome = follow.attach("2", R1_WORDS)
    changes = [(switched.before, switched.after) for switched in outcome.switched]
    assert changes == ([(runs, after)] if after != runs else [])
    assert follow.merge.algorithm_reason == {
        "r2": "r2 runs, and nothing goes back to r1; copies are counted because key is not promised by '2'",
        "r4": "r3 runs, but key is not promised by '2', and nothing goes back to r1",
    }[after]
    assert not follow.publish("2", a("A", 5, 8), a("A", 5, 8), f(INF)).detached
    assert len(follow.events()) == 2


@pytest.mark.parametrize(("runs", "after"), [("r2", "r2"), ("r3", "r4")])
def test_a_broken_key_is_believed_though_what_is_left_would_do_for_r1(runs: str, after: str) -> None:
    follow = Follow(Merge(allow_downgrade=True))
    follow.attach("1", WORDS[runs])
    follow.publish("1", a("A", 5, 8))
    follow.attach("2", (*R1_WORDS, "key"))
    follow.detach("1")
    assert follow.merge.algorithm == runs
    outcome = follow.publish("2", a("A", 5, 8), a("A", 5, 8), f(INF))
    assert not outcome.detached
    assert [(switched.before, switched.after) for switched in outcome.switched] == [(runs, after)]
    assert len(follow.events()) == 2


@pytest.mark.parametrize(
    ("words", "before", "offender", "after"),
    [
        (R0_WORDS, "r0", a("T", 5, 9), "r4"),
        ((*R0_WORDS, "ordered", "deterministic-ties"), "r0", a("T", 5, 9), "r1"),
        ((*R0_WORDS, "ordered", "key"), "r0", a("T", 5, 9), "r2"),
        ((*R0_WORDS, "key"), "r0", a("T", 4, 9), "r3"),
        (R1_WORDS, "r1", a("T", 4, 9), "r4"),
        (COPIES_WORDS, "r2", a("T", 4, 9), "r4"),
        (COPIES_WORDS, "r2", m("A", 5, 8, 9), "r4"),
        (R2_WORDS, "r2", a("T", 4, 9), "r3"),
        (R2_WORDS, "r2", m("A", 5, 8, 9), "r3"),
        (R2_WORDS, "r2", a("A", 5, 8), "r2"),
        (("key",), "r3", a("A", 5, 12), "r4"),
    ],
)
def test_a_broken_property_is_believed_and_the_algorithm_changes(
    words: tuple[str, ...], before: str, offender: Element, after: str
) -> None:
    follow = two(words)
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
    merge = Merge(allow_downgrade=True)
    for name, join_at in (("1", None), ("late", 5), ("liar", 5)):
        merge.attach(name, R2_WORDS, join_at=join_at)
    merge.apply("liar", Batch.of([a("A", 6, 9), a("A", 6, 9)]))
    outcome = merge.apply("1", Batch.of([a("B", 4, 9), f(5), m("B", 4, 9, 8)]))
    assert [(s.before, s.after) for s in outcome.switched] == [("r2", "r3")]
    assert outcome.joined == ("late", "liar")
    assert [(d.input, d.violation and d.violation.code) for d in outcome.detached] == [("liar", "duplicate-key")]
    merge.check()


@pytest.mark.parametrize("declares", ["attach", "breaks"])
@pytest.mark.parametrize("tracks", [True, False])
def test_where_the_key_is_lost_what_it_kept_from_the_output_at_this_vs_is_emitted(declares: str, tracks: bool) -> None:
    """By copies, A has two ends at this Vs and B came twice; what has left and what lies below counts no more."""
    if declares == "breaks" and not tracks:
        return  # a broken promise is believed only where the live events are tracked
    merge = Merge(track_live=tracks, allow_downgrade=declares == "breaks")
    for name in "xyz":
        merge.attach(name, R2_WORDS)
    for name, elements in (("x", [a("A", 2, 9)]), ("y", [a("A", 2, 8), a("C", 5, 9)]), ("x", [a("A", 5, 9)]),
                           ("y", [a("A", 5, 8), a("E", 5, 5)]), ("z", [a("A", 5, 7)]), ("x", [a("B", 5, 9)])):
        merge.apply(name, Batch.of(elements))
    merge.detach("z")
    if declares == "attach":
        outcome = merge.attach("w", COPIES_WORDS)
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
    assert Merge.restore(merge.snapshot()).snapshot() == merge.snapshot()
    outcome = merge.apply("y", Batch.of([a("A", 6, 9), a("A", 6, 8)]))
    assert bool(outcome.detached) == (declares == "attach"), "its own promise of a key still binds y"


def test_r1_that_has_output_a_key_twice_is_followed_by_r2_that_counts() -> None:
    """R1 checks no key. A replay of both events into R2 adds nothing, and another end of it is output."""
    merge = Merge(track_live=True)
    merge.attach("x", (*R1_WORDS, "key"))
    merge.apply("x", Batch.of([a("A", 5, 8), a("A", 5, 9)]))
    outcome = merge.attach("y", R2_WORDS)
    assert [(change.before, change.after) for change in outcome.switched] == [("r1", "r2")]
    assert not outcome.batch.count
    assert not merge.attach("z", COPIES_WORDS).batch.count
    outcome = merge.apply("z", Batch.of([a("A", 5, 9), a("A", 5, 8), a("A", 5, 7)]))
    assert list(outcome.batch.elements()) == [a("A", 5, 7)]
    merge.check()


@pytest.mark.parametrize("tracks", [True, False])
def test_r2_in_a_snapshot_of_the_version_before_finds_the_ends_again(tracks: bool) -> None:
    """It has the payloads without their ends, which are needed when the key is lost in this slot."""
    merge = Merge("r2", track_live=tracks)
    for name in "xy":
        merge.attach(name, R2_WORDS)
    merge.apply("x", Batch.of([a("A", 5, 9), a("B", 5, 9), a("E", 5, 5)]))
    merge.apply("y", Batch.of([a("A", 5, 9)]))
    document = json.loads(merge.snapshot())
    del document["algorithm"]["ends"]
    merge = Merge.restore(json.dumps(document).encode())
    assert not merge.attach("z", COPIES_WORDS).batch.count
    outcome = merge.apply("z", Batch.of([a("A", 5, 9), a("B", 5, 9), a("E", 5, 5), a("A", 5, 9)]))
    assert list(outcome.batch.elements()) == [a("A", 5, 9)]


def test_without_leave_the_input_ends_instead() -> None:
    merge = Merge()
    merge.attach("1", R0_WORDS)
    outcome = merge.apply("1", Batch.of([a("A", 5, 8), a("T", 5, 8)]))
    assert outcome.detached
    assert not outcome.switched


def test_what_is_wrong_under_every_algorithm_ends_the_input_all_the_same() -> None:
    follow = two(R0_WORDS)
    follow.publish("1", f(10))
    assert follow.publish("1", a("A", 5, 8)).detached


def test_a_merge_without_live_events_refuses_a_weaker_input() -> None:
    merge = Merge(track_live=False)
    merge.attach("1", R0_WORDS)
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

        # The key holds of the data whatever the inputs promise, so R1 may be followed by R2 and R3.
        words = tuple(set(WORDS[first]) | {"key"})
        follow = Follow(Merge())
        streams = {"1": stream(first), "2": stream(first)}
        for name in streams:
            follow.attach(name, words)
        for _ in range(random.randint(1, 25)):
            name = random.choice([name for name in streams if streams[name]] or ["-"])
            if name != "-":
                follow.publish(name, streams[name].pop(0))
        before = follow.merge.algorithm
        streams["3"] = stream(then)
        follow.attach("3", WORDS[then])
        assert Case[follow.merge.algorithm.upper()] >= Case[before.upper()]
        while any(streams.values()):
            name = random.choice([name for name in streams if streams[name]])
            assert not follow.publish(name, streams[name].pop(0)).detached
        assert follow.events() == events


@pytest.mark.parametrize("weaker", ["r2", "r3", "r4"])
def test_what_waits_to_join_is_kept_when_the_merge_switches(weaker: str) -> None:
    """Under R0-R2 elements of a joining input wait; the algorithm after the switch must know them all the same."""
    follow = Follow(Merge())
    follow.attach("1", R0_WORDS)
    follow.publish("1", a("A", 5, 20))
    follow.attach("2", R0_WORDS, join_at=5)
    follow.publish("2", a("A", 5, 20))
    follow.publish("2", a("B", 6, 20))
    assert follow.merge.inputs()[1].state == "joining"
    follow.attach("3", WORDS[weaker])
    assert follow.merge.algorithm == weaker
    assert not follow.publish("1", f(5)).detached
    assert not follow.publish("2", f(21)).detached, "what it said while joining is its own"
    assert [event.payload for event in follow.events()] == [b"A", b"B"]


def test_what_was_passed_over_before_the_order_of_ties_broke_counts_as_not_said() -> None:
    """R1 -> R2: the second input says the slot in another order, and breaks no key by it."""
    follow = two(("insert-only", "ordered", "deterministic-ties", "key"))
    follow.publish("1", a("A", 2, 9), a("B", 2, 9), a("C", 2, 9))
    assert follow.merge.algorithm == "r1"
    outcome = follow.publish("2", a("C", 2, 9), a("A", 2, 9), a("B", 2, 9), f(INF))
    assert not outcome.detached
    assert [(switched.before, switched.after) for switched in outcome.switched] == [("r1", "r2")]
    follow.publish("1", f(INF))
    assert len(follow.events()) == 3


def test_final_only_keeps_what_was_promised_though_who_did_has_left() -> None:
    """Its stable froze that the event is there; nothing was shown yet, and the merge switches to R4 meanwhile."""
    follow = Follow(Merge(policy="final-only"))
    for name in "12":
        follow.attach(name, WORDS["r3"])
    follow.publish("1", a("B", 2, 7), f(3), m("B", 2, 7, 4))
    follow.detach("1")
    follow.attach("3", ())
    assert follow.merge.algorithm == "r4"
    follow.publish("3", a("B", 2, 4), a("C", 5, 9), f(13))
    assert follow.events() == [Event(2, b"B", 4), Event(5, b"C", 9)]




def test_an_input_that_broke_its_promise_while_it_waited_does_not_join_in_the_same_call() -> None:
    """R1 checks no key, so what has waited is found to break it when the merge switches; a stable in the same batch
    reaches its join_at. However the batch is cut, its stable moves nothing.
    """
    moved = 0
    for seed in range(40):
        random = Random(seed)
        words = ("insert-only", "ordered", "deterministic-ties", "key")
        waited = [Insert(b"W", 5, 20), Insert(random.choice((b"W", b"V")), 5, 25), Stable(random.choice((30, 99)))]
        later: list[Element] = [Insert(b"B", 7, 40), Adjust(b"B", 7, 40, 35), Stable(random.choice((4, 8, 12)))]
        later += [Insert(b"C", 14, 45), Stable(random.choice((14, 20)))]
        found = []
        for parts in ([later], [[element] for element in later]):
            follow = Follow(Merge(allow_downgrade=True), compatible=False)
            follow.attach("1", words)
            follow.publish("1", Insert(b"A", 3, 50))
            follow.attach("late", words, join_at=8)
            follow.publish("late", *waited)
            assert follow.merge.status("late").state == "joining"
            outcomes = [follow.publish("1", *part) for part in parts]
            assert any(outcome.switched for outcome in outcomes)
            found.append((follow.events(), follow.merge.stable_point))
            is_broken = any(change.input == "late" for outcome in outcomes for change in outcome.detached)
            assert is_broken == (waited[1].payload == b"W")
            moved += is_broken
            assert not is_broken or all("late" not in outcome.joined for outcome in outcomes)
        assert found[0] == found[1]
    assert moved > 10
