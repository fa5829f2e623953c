"""The bound of the lead (``core/lead.py``): which stables are held, when they are released, and the effect."""

from __future__ import annotations

from random import Random

import pytest
from core_world import a, emitted, f, merge_of

from lmerge.core.elements import INF, NEG_INF, Event, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.policy import LAZY, Policy, parse_policy
from lmerge.errors import UnknownInput, UsageError
from lmerge.testing.merges.declared import PROMISES, R3_PROMISES
from lmerge.testing.oracle import Follow
from lmerge.testing.streams.merge_inputs import present, reference

LEAD = 60
FAR = 10**12


def leading(inputs: int = 3, closing: str = "all") -> Follow:
    return merge_of(inputs, policy=f"lazy+lead:{LEAD}", closing=closing)


def held(follow: Follow) -> list[str]:
    return [status.name for status in follow.merge.inputs() if status.held]


def test_a_stable_far_ahead_is_held_and_the_others_go_on() -> None:
    follow = leading()
    emitted(follow, "1", f(100))
    assert emitted(follow, "2", f(95)) == [f(100)]
    assert emitted(follow, "3", f(90)) == []
    assert emitted(follow, "1", f(FAR)) == []
    assert held(follow) == ["1"]
    assert emitted(follow, "3", a("A", 110, 115), f(120)) == [a("A", 110, 115), f(120)]
    assert follow.events() == [Event(110, b"A", 115)]


def test_the_elements_of_an_input_that_is_held_are_merged() -> None:
    follow = leading(2)
    emitted(follow, "1", f(10))
    emitted(follow, "2", f(10))
    assert emitted(follow, "1", a("A", 200, 205), f(300)) == [a("A", 200, 205)]


@pytest.mark.parametrize("t", [FAR, INF])
def test_it_is_released_when_another_one_follows_to_within_the_bound(t: int) -> None:
    follow = leading(2, closing="any")
    emitted(follow, "1", f(10))
    emitted(follow, "2", f(10))
    assert emitted(follow, "1", f(t)) == []
    near = INF if t == INF else t - LEAD
    assert emitted(follow, "2", f(near - 1)) == [f(near - 1)] if t < INF else True
    assert emitted(follow, "2", f(near)) == [f(t)]
    assert not held(follow)


def test_it_is_released_when_all_others_are_gone() -> None:
    follow = leading()
    for name in "123":
        emitted(follow, name, f(10))
    emitted(follow, "1", f(FAR))
    assert not list(follow.detach("2").batch.elements())
    assert list(follow.detach("3").batch.elements()) == [f(FAR)]


def test_one_input_alone_may_lead_as_it_likes() -> None:
    assert emitted(leading(1), "1", f(FAR)) == [f(FAR)]


def test_two_that_lead_together_are_followed_and_one_behind_does_not_hold_them() -> None:
    follow = leading()
    for name in "123":
        emitted(follow, name, f(10))
    assert emitted(follow, "1", f(500)) == []
    assert emitted(follow, "2", f(450)) == [f(500)]


def test_a_chain_of_leads_is_held_down_to_the_last() -> None:
    follow = leading()
    for name in "123":
        emitted(follow, name, f(10))
    assert emitted(follow, "1", f(10_000)) == []
    assert emitted(follow, "2", f(1_000)) == []
    assert held(follow) == ["1", "2"]
    assert emitted(follow, "3", f(20)) == [f(20)]


def test_two_that_have_ended_do_not_confirm_a_stable_that_is_no_end() -> None:
    follow = leading(4)
    for name in "1234":
        emitted(follow, name, f(10))
    assert not emitted(follow, "1", f(INF))
    assert not emitted(follow, "2", f(INF))
    assert not emitted(follow, "3", f(FAR))
    assert "3" in held(follow)
    assert emitted(follow, "4", f(20)) == [f(20)]


def test_before_the_first_stable_inputs_that_have_delivered_none_are_awaited_until_they_are_excused() -> None:
    follow = leading()
    assert emitted(follow, "1", f(5)) == []
    assert not list(follow.excuse("2").batch.elements())
    assert list(follow.excuse("3").batch.elements()) == [f(5)]


def test_one_that_was_excused_is_awaited_again_from_its_next_stable_on() -> None:
    follow = leading(2)
    emitted(follow, "1", f(10))
    emitted(follow, "2", f(10))
    emitted(follow, "1", f(100))
    assert list(follow.excuse("2").batch.elements()) == [f(100)]
    emitted(follow, "2", f(90))
    assert emitted(follow, "1", f(200)) == []


def test_an_input_far_behind_the_output_does_not_hold_it() -> None:
    """A replica that comes back hours behind must not stop the stream until it has caught up."""
    follow = leading(1)
    emitted(follow, "1", f(1000))
    follow.attach("2", R3_PROMISES)
    emitted(follow, "2", f(10))
    assert emitted(follow, "1", f(1100)) == [f(1100)]
    emitted(follow, "2", f(1090))
    assert emitted(follow, "1", f(1200)) == []


def test_what_is_held_is_held_again_after_a_restore() -> None:
    follow = leading()
    for name in "123":
        emitted(follow, name, f(10))
    emitted(follow, "1", f(FAR))
    follow.excuse("3")
    follow.restore()
    assert held(follow) == ["1"]
    assert [status.excused for status in follow.merge.inputs()] == [False, False, True]


def test_a_held_input_decides_nothing_else() -> None:
    """It is no witness, never leads, and does not count for a quorum."""
    follow = merge_of(3, policy=f"leading-input-only+lead:{LEAD}")
    for name in "123":
        emitted(follow, name, f(10))
    emitted(follow, "1", f(FAR))
    assert emitted(follow, "1", a("X", FAR + 1)) == []
    assert emitted(follow, "2", f(20)) == [f(20)]
    assert emitted(follow, "2", a("A", 30)) == [a("A", 30)]


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_a_quorum_is_of_those_that_count_when_one_has_left_or_joined(algorithm: str) -> None:
    """An input that leaves can release another, and one that joins can be held at once: this is determined first."""

    def world() -> Follow:
        follow = merge_of(3, algorithm=algorithm, promises=PROMISES[algorithm], policy=f"quorum:2+lead:{LEAD}")
        emitted(follow, "1", f(100))
        emitted(follow, "2", f(100))
        emitted(follow, "1", f(FAR))
        return follow

    follow = world()
    assert held(follow) == ["1"]
    assert emitted(follow, "3", a("A", 2 * FAR)) == []
    assert list(follow.detach("2").batch.elements()) == [f(FAR)], "one of two that count now is no quorum"
    follow = world()
    follow.attach("4", PROMISES[algorithm], join_at=200)
    assert emitted(follow, "4", a("A", 2 * FAR), f(2 * FAR)) == []
    assert emitted(follow, "3", a("A", 2 * FAR)) == []
    assert list(follow.admit("4").batch.elements()) == [], "it is held: one of two"


def test_a_bound_needs_an_index_and_a_number() -> None:
    assert parse_policy("eager+lag:5+lead:7") == Policy(reflects_adjusts=True, lag=5, lead_max=7)
    assert str(parse_policy("eager+lag:5+lead:7")) == "eager+lag:5+lead:7"
    assert str(parse_policy("lazy+lead:3+lag:2")) == "lazy+lag:2+lead:3"
    for text in ("lazy+lead:", "lazy+lead:0", "lazy+lead:x"):
        with pytest.raises(UsageError, match="the lead of policy"):
            parse_policy(text)
    with pytest.raises(UsageError, match="needs r3 or r4"):
        Merge(MergeConfig("r0", "lazy+lead:5"))
    assert not LAZY.needs_index


def test_excusing_asks_for_an_attached_input_and_a_bound() -> None:
    merge = Merge()
    with pytest.raises(UnknownInput):
        merge.excuse("x")
    merge.attach("x", R3_PROMISES)
    assert not merge.excuse("x").batch.count
    assert not merge.status("x").excused


def ruined(seed: int, policy: str, closing: str) -> bool:
    """Play three right replicas, and one whose stable runs ahead at a random moment. True: the output is wrong.

    The skew of those that are right stays below half of the bound; each comes to its end while others have not.
    """
    random = Random(seed)
    events = [Event(vs, payload, min(ve, vs + 20)) for vs, payload, ve in reference(random, 40)]
    streams = {name: present(random, events) for name in "abc"}
    follow = Follow(Merge(MergeConfig("auto", policy, closing)), compatible=False)
    for name in random.sample("abcx", 4):
        follow.attach(name, random.choice((R3_PROMISES, ())))
    part = present(random, events)[: random.randrange(20)]
    follow.publish("x", *[e for e in part if not isinstance(e, Stable)], Stable(FAR)) if random.random() < 0.5 else None
    has_run = any(s.name == "x" and s.stable_point == FAR for s in follow.merge.inputs())
    points = dict.fromkeys("abc", NEG_INF)
    dead = random.choice("abc-")
    while any(streams.values()):
        low = min(points[name] for name in streams if streams[name])
        name = random.choice([n for n in streams if (streams[n] and points[n] - low <= LEAD // 2) or points[n] == low])
        now = streams[name].pop(0) if streams[name] else Stable(points[name])
        follow.publish(name, now)
        if isinstance(now, Stable):
            points[name] = now.vc
        if not has_run and random.random() < 0.05:
            has_run = True
            follow.publish("x", Stable(FAR))
        if name == dead and has_run and random.random() < 0.05:
            dead, streams[name] = "-", []
            follow.detach(name)
            del streams[name], points[name]
    return follow.events() != events


@pytest.mark.parametrize(
    ("policy", "closing"),
    [
        (policy, closing) if (count + turn) % 2 == 0 else pytest.param(policy, closing, marks=pytest.mark.long)
        for count, policy in enumerate(("lazy", "eager", "half-frozen-only", "final-only", "quorum:2+lag:5"))
        for turn, closing in enumerate(("all", "any", "quorum:2", "quorum:3"))
    ],
)
def test_one_that_runs_ahead_ruins_nothing_and_without_the_bound_it_does(
    engine: str, policy: str, closing: str
) -> None:
    """Each policy and each closing is here, half of the pairs only in the long run."""
    assert not [seed for seed in range(5) if ruined(seed, f"{policy}+lead:{LEAD}", closing)]
    assert sum(ruined(seed, policy, closing) for seed in range(4)) > 1


@pytest.mark.long
@pytest.mark.parametrize("closing", ["any", "quorum:2", "quorum:3", "all"])
@pytest.mark.parametrize("policy", ["lazy", "eager", "half-frozen-only", "final-only", "quorum:2+lag:5"])
def test_one_that_runs_ahead_ruins_nothing_in_many_sessions(
    engine: str, policy: str, closing: str, long_seeds: range
) -> None:
    assert not [seed for seed in long_seeds if ruined(seed, f"{policy}+lead:{LEAD}", closing)]


@pytest.mark.parametrize("shards", [1, 3])
def test_shards_hold_alike(shards: int, engine: str) -> None:
    if engine == "python" and shards > 1:
        return
    follow = Follow(Merge(MergeConfig("r3", f"lazy+lead:{LEAD}", shards=shards)))
    for name in "123":
        follow.attach(name, R3_PROMISES)
        follow.publish(name, f(10))
    assert list(follow.publish("1", Insert(b"A", 11, 12), f(FAR)).batch.elements()) == [Insert(b"A", 11, 12)]
    assert f(50) in follow.publish("2", f(50)).batch.elements()
