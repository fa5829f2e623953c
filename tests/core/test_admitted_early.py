"""V.B without the past: an input that was admitted before MaxStable has reached its join_at.

A server that lost its state begins in this way if the first replica joined late. That input lacks events that ended
before its join_at. Other inputs have such events, with their final end or not yet. The output must be right for all
events that end at join_at or later, in whatever order the inputs deliver and leave.
"""

from __future__ import annotations

from random import Random

import pytest
from core_world import a, emitted, f, m, merge_of

from lmerge.core.elements import INF, NEG_INF, Element, Event
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.testing.merges.declared import INDEX_POLICIES, PROMISES
from lmerge.testing.oracle import Follow
from lmerge.testing.streams.merge_inputs import joining, mistaken, present, reference

BOTH = pytest.mark.parametrize("algorithm", ["r3", "r4", "r3-"])


def begun(algorithm: str, policy: str = "lazy", join_at: int = 39) -> Follow:
    """``late`` counts already, but is right only from ``join_at`` on; A is half frozen at 27, with the end 55."""
    promises = PROMISES["r3" if algorithm == "r3-" else algorithm]
    follow = merge_of(0, algorithm, policy)
    follow.attach("late", promises, join_at=join_at)
    follow.admit("late")
    for name in ("complete", "lags"):
        follow.attach(name, promises)
        follow.publish(name, a("A", 26, 55))
    follow.publish("complete", f(27), m("A", 26, 55, 29))
    return follow


@BOTH
def test_an_end_that_it_refutes_is_not_frozen(algorithm: str) -> None:
    follow = begun(algorithm)
    follow.detach("complete")
    assert emitted(follow, "late", f(58)) == [m("A", 26, 55, 27), f(58)], "over before 39; 27 is the first end left"
    assert follow.merge.live_count == 0


@BOTH
def test_the_end_of_the_input_that_has_it_decides(algorithm: str) -> None:
    follow = begun(algorithm)
    assert emitted(follow, "late", f(58)) == [m("A", 26, 55, 29), f(58)]


@BOTH
def test_the_witness_is_an_input_whose_end_is_not_refuted(algorithm: str) -> None:
    """Also before its join_at, where otherwise the input with the largest stable point would be the witness."""
    follow = begun(algorithm)
    follow.publish("complete", f(28))
    follow.publish("lags", f(29))
    assert emitted(follow, "late", f(30)) == [m("A", 26, 55, 29), f(30)]


@BOTH
def test_before_its_join_at_an_end_may_still_be_delivered(algorithm: str) -> None:
    follow = begun(algorithm)
    follow.detach("complete")
    assert emitted(follow, "late", f(35)) == [f(35)], "nothing is frozen that it refutes"
    assert emitted(follow, "lags", m("A", 26, 55, 37), f(38)) == [m("A", 26, 55, 37), f(38)]


@BOTH
@pytest.mark.parametrize("ve", [80, INF])
def test_what_is_due_later_ends_when_the_join_at_is_reached(algorithm: str, ve: int) -> None:
    """Afterwards the event could have no end that the input does not refute."""
    follow = begun(algorithm)
    follow.detach("complete")
    follow.publish("lags", m("A", 26, 55, ve))
    follow.publish("lags", a("B", 26, ve), a("C", 40, 50))
    follow.publish("late", a("C", 40, 50), f(35))  # from here on A is due at 55
    before = follow.merge.visits
    assert emitted(follow, "late", f(39)) == [m("A", 26, 55, 35), f(39)]
    assert algorithm == "r3-" or follow.merge.visits - before == 1
    follow.restore()
    assert emitted(follow, "late", f(45), f(90)) == [f(45), f(90)]


@BOTH
def test_what_it_has_stays(algorithm: str) -> None:
    follow = begun(algorithm)
    follow.publish("late", a("A", 26, 39))
    follow.publish("lags", a("A2", 26, 60))
    assert emitted(follow, "late", f(39)) == [f(39)], "A2 was dropped, A is alive"
    assert emitted(follow, "late", f(58)) == [m("A", 26, 55, 39), f(58)]


def test_of_several_equal_events_those_end_that_it_lacks() -> None:
    follow = begun("r4")
    for end in (50, 60, 65, 71):
        follow.publish("lags", a("B", 28, end))
    for end in (60, 70):
        follow.publish("late", a("B", 28, end))
    follow.publish("lags", f(30))
    assert [e.ve for e in follow.output.live_events() if e.payload == b"B"] == [50, 60, 65, 71]
    follow.detach("lags")
    assert emitted(follow, "late", f(62)) == [
        m("A", 26, 55, 30),
        m("B", 28, 50, 70),
        m("B", 28, 65, 30),
        m("B", 28, 71, 30),
        f(62),
    ]
    assert emitted(follow, "late", f(99)) == [f(99)]


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_final_only_shows_no_end_that_it_refutes(algorithm: str) -> None:
    follow = begun(algorithm, "final-only")
    follow.detach("complete")
    assert emitted(follow, "late", f(58)) == [f(58)]
    assert follow.merge.live_count == 0


@BOTH
def test_at_its_join_at_it_is_an_input_like_all(algorithm: str) -> None:
    """From its join_at on, an event that it lacks is a contradiction, and a witness decides, as for all inputs."""
    follow = begun(algorithm, join_at=20)
    follow.compatible = False  # a contradiction
    follow.detach("complete")
    assert emitted(follow, "late", f(58)) == [f(58)]
    assert follow.events() == [Event(26, b"A", 55)]


@pytest.mark.parametrize("is_started", [True, False])
def test_a_switch_does_not_forget_it(is_started: bool) -> None:
    follow = Follow(Merge())
    follow.attach("late", PROMISES["r3"], join_at=39)
    follow.admit("late")
    follow.attach("lags", PROMISES["r3"])
    if not is_started:
        follow.attach("promises less", PROMISES["r4"])
    follow.publish("lags", a("A", 26, 55), f(27))
    if is_started:
        assert follow.merge.algorithm == "r3"
        follow.attach("promises less", PROMISES["r4"])
    assert follow.merge.algorithm == "r4"
    assert emitted(follow, "late", f(58)) == [m("A", 26, 55, 27), f(58)]


def play(algorithm: str, seed: int) -> None:
    """Inputs with all events lag and leave; inputs with a part attach, the first of them to an empty merge."""
    random = Random(f"{algorithm} {seed}")
    policy = "lazy" if algorithm == "r3-" else random.choice(INDEX_POLICIES)
    events = reference(
        random,
        random.choice((4, 12, 25)),
        payloads=random.choice((1, 3)),
        step_max=random.choice((1, 3)),
        duplicates=algorithm == "r4",
    )
    promises = PROMISES["r3" if algorithm == "r3-" else algorithm]
    latest = events[-1].vs + 10
    join_at = random.randint(1, latest)
    follow = Follow(Merge(MergeConfig(algorithm, policy)))
    streams: dict[str, list[Element]] = {}
    rights: dict[str, int] = {}

    def attach(name: str, right_from: int) -> None:
        if right_from > NEG_INF and random.random() < 0.8:
            streams[name] = present(random, mistaken(random, events, right_from))
        else:
            streams[name] = joining(present(random, events), right_from, events)
        rights[name] = right_from
        follow.attach(name, promises, join_at=None if right_from == NEG_INF else right_from)

    attach("late", join_at)
    follow.admit("late")
    for name in ("one", "two"):
        if random.random() < 0.8:
            attach(name, NEG_INF)
    attach("later", random.randint(join_at, latest))
    while any(streams.values()):
        name = random.choice([name for name, stream in streams.items() if stream])
        count = random.randint(1, 8)
        part, streams[name] = streams[name][:count], streams[name][count:]
        assert not follow.publish(name, *part).detached
        chance = random.random()
        if chance < 0.05 and name in ("one", "two"):
            follow.detach(name)
            del streams[name]
        elif chance < 0.1:
            follow.restore()
    right = [event for event in events if event.ve >= join_at]
    shown = [event for event in follow.events() if event.ve >= join_at]
    assert shown == right, (policy, join_at)


@BOTH
def test_the_output_is_right_from_its_join_at_on(algorithm: str) -> None:
    for seed in range(150):
        play(algorithm, seed)


@pytest.mark.long
@BOTH
def test_the_output_is_right_from_its_join_at_on_for_many_seeds(algorithm: str, long_seeds: range) -> None:
    for seed in long_seeds:
        play(algorithm, 1000 + seed)
