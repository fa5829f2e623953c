"""Output policies (V.A): what each promises, as a definition that does not use the index.

One input delivers one element at a time. The test keeps each input's table, and compares every change of the output
with the promise of the policy, at each step: on both engines, with inputs that join, leave, lead in turns and are
admitted early. C1-C3 are checked as well.
"""

from __future__ import annotations

import pytest
from core_world import a, emitted, f, m, merge_of

from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.policy import Leader, Policy, Show, parse_policy
from lmerge.errors import UsageError
from lmerge.testing.merges.declared import JUDGED_POLICIES, PROMISES
from lmerge.testing.merges.policies import policy_session
from lmerge.testing.oracle import Follow


@pytest.mark.parametrize("policy", JUDGED_POLICIES)
@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_what_is_shown_is_what_the_policy_promises_at_each_step(algorithm: str, policy: str) -> None:
    checked = sum(policy_session(algorithm, policy, seed) for seed in range(4))
    assert checked > 5 or policy in ("half-frozen-only", "final-only")


@pytest.mark.long
@pytest.mark.parametrize("policy", JUDGED_POLICIES)
@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_what_is_shown_is_what_the_policy_promises_for_many_seeds(
    algorithm: str, policy: str, long_seeds: range
) -> None:
    for seed in long_seeds:
        policy_session(algorithm, policy, 1000 + seed)


@pytest.mark.python_engine
@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("lazy", Policy()),
        ("eager+lag:3", Policy(reflects_adjusts=True, lag=3)),
        ("quorum:2", Policy(Show.QUORUM, quorum=2)),
        ("quorum:50%+adjusts", Policy(Show.QUORUM, quorum_percent=50, reflects_adjusts=True)),
        ("leading-input-only", Policy(Show.LEADING)),
        ("leading-input-only:highest-insert+adjusts+lag:5", Policy(Show.LEADING, True, lag=5, leader=Leader.INSERT)),
        ("half-frozen-only+adjusts", Policy(Show.HALF_FROZEN, True)),
        ("final-only+lag:2", Policy(Show.FINAL, lag=2)),
    ],
)
def test_a_policy_has_one_canonical_text(text: str, policy: Policy) -> None:
    assert parse_policy(text) == policy
    assert str(policy) == text


@pytest.mark.python_engine
def test_modifiers_come_in_any_order_and_the_default_leader_has_a_name() -> None:
    assert str(parse_policy("quorum:3+lag:2+adjusts")) == "quorum:3+adjusts+lag:2"
    assert str(parse_policy("leading-input-only:furthest-stable")) == "leading-input-only"


@pytest.mark.python_engine
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lazy+adjusts", "lazy shows no adjust at once; with adjusts it is eager"),
        ("eager+lag:1+adjusts", "eager shows every adjust already"),
        ("final-only+adjusts", "what final-only shows has no adjusts any more"),
        ("quorum:2+adjusts+adjusts", "it has adjusts twice"),
        ("lazy+lag:1+lag:2", "it has lag twice"),
        ("quorum:101%", "there is no more than 100% of the inputs"),
        ("quorum:0%", "must be a positive whole number, not '0'"),
        ("quorum:", "must be a positive whole number, not ''"),
        ("leading-input-only:", "the leading input is that with furthest-stable, highest-insert, most-unfrozen"),
        ("lazy+loud", r"\+loud is not one of \+adjusts, \+lag:T"),
        ("first", "it is lazy, eager, half-frozen-only"),
    ],
)
def test_a_combination_without_meaning_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_policy(text)


@pytest.mark.parametrize("policy", ["leading-input-only:highest-insert", "leading-input-only:most-unfrozen+adjusts"])
def test_a_leader_by_elements_needs_one_shard(policy: str, engine: str) -> None:
    if engine == "native":
        with pytest.raises(UsageError, match=r"needs one shard: of 2 shards none gets all inserts$"):
            Merge(MergeConfig("r3", policy, shards=2))


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_an_event_that_only_joining_inputs_have_makes_no_quorum(algorithm: str) -> None:
    follow = Follow(Merge(MergeConfig(algorithm, "quorum:2")))
    follow.attach("late", PROMISES[algorithm], join_at=9)
    assert emitted(follow, "late", a("A", 1, 20)) == []
    follow.attach("one", PROMISES[algorithm])
    assert emitted(follow, "one", a("B", 2, 20)) == [a("B", 2, 20)], "all that are joined"
    follow.attach("two", PROMISES[algorithm])
    assert emitted(follow, "two", a("C", 3, 20)) == []
    assert list(follow.detach("one").batch.elements()) == [a("C", 3, 20)], "one is a quorum of one"


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_half_frozen_events_follow_adjusts_at_once(algorithm: str) -> None:
    follow = merge_of(algorithm=algorithm, policy="half-frozen-only+adjusts", promises=PROMISES[algorithm])
    assert emitted(follow, "1", a("A", 1, 20), m("A", 1, 20, 30)) == []
    assert emitted(follow, "1", f(5)) == [a("A", 1, 30), f(5)]
    assert emitted(follow, "1", m("A", 1, 30, 25)) == [m("A", 1, 30, 25)]
