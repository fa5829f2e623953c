"""The laws beyond the paper (docs/laws.md), by their numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from random import Random

import pytest
from core_world import a, emitted, f, m, merge_of

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Event, Insert, Stable
from lmerge.core.merge import Merge, Outcome
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.errors import InputTaken, StaleIncarnation, UsageError
from lmerge.testing.merges.declared import PROMISES, R1_PROMISES
from lmerge.testing.oracle import Follow, chattiness
from lmerge.testing.streams.large_inputs import LARGE, LargeInputs
from lmerge.testing.streams.merge_inputs import present, reference


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_law_1_a_joining_inputs_stable_does_not_move_the_output(algorithm: str) -> None:
    follow = merge_of(1, algorithm)
    follow.publish("1", a("short", 1, 5), a("long", 2, 30))
    follow.attach("2", PROMISES[algorithm], join_at=20)
    assert emitted(follow, "2", a("long", 2, 30), f(25)) == [], "short would have been removed"
    assert emitted(follow, "1", f(20)) == [f(20), f(25)], "joined: what it delivered before counts at once"
    assert follow.events() == [Event(1, b"short", 5), Event(2, b"long", 30)]


@pytest.mark.parametrize("algorithm", ["r0", "r1", "r2"])
def test_law_1_a_joining_inputs_insert_does_not_raise_max_vs(algorithm: str) -> None:
    """In R0-R2 an insert is progress as well: the elements of a joining input wait."""
    follow = merge_of(1, algorithm, promises=PROMISES[algorithm])
    follow.publish("1", a("A", 8, 9))
    follow.attach("2", PROMISES[algorithm], join_at=20)
    assert emitted(follow, "2", a("D", 20, 40), a("E", 25, 40)) == []
    assert emitted(follow, "1", a("B", 9, 12)) == [a("B", 9, 12)], "it would have been dropped below MaxVs"
    assert emitted(follow, "1", f(20)) == [f(20), a("D", 20, 40), a("E", 25, 40)]
    assert emitted(follow, "1", a("D", 20, 40)) == []


@pytest.mark.parametrize("algorithm", PROMISES)
def test_law_1_a_joining_input_can_be_admitted_when_no_other_is_left(algorithm: str) -> None:
    """``admit`` is used when no earlier elements will come; what the input has delivered counts at once."""
    follow = merge_of(0)
    follow.attach("1", PROMISES[algorithm], join_at=10)
    assert f(15) not in emitted(follow, "1", a("A", 12, 20), f(15))
    outcome = follow.merge.admit("1")
    assert list(outcome.batch.elements())[-1] == f(15)
    assert outcome.joined == ("1",)
    assert follow.merge.admit("1") == Outcome()
    follow.merge.check()


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_law_2_stable_visits_only_what_changes(algorithm: str) -> None:
    """Many half-frozen events with far ends: further stables visit none of them."""
    merge = Merge(MergeConfig(algorithm))
    merge.attach("1", PROMISES[algorithm])
    merge.apply("1", Batch.of([Insert(b"%d" % at, at, 10**9) for at in range(1000)] + [Stable(2000)]))
    assert merge.visits == 1000, "each becomes half frozen once"
    merge.apply("1", Batch.of([Stable(t) for t in range(2001, 3000)]))
    assert merge.visits == 1000
    merge.apply("1", Batch.of([Insert(b"x", 3000, 3005), Stable(3001), Stable(3006)]))
    assert merge.visits == 1002, "half frozen, then fully frozen"


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_law_2_visits_are_bounded_by_changes_whatever_is_alive(algorithm: str) -> None:
    """At most two visits per event, and one more for every element that lowers an end."""
    for live in (100, 3000):
        spec = LargeInputs(replace(LARGE, events=4000, alive=live, revised=0.2, stables=0.05), batch_rows=64)
        merge = Merge(MergeConfig(algorithm))
        inputs = spec.batches()
        for at in range(spec.inputs):
            merge.attach(str(at), PROMISES[algorithm])
        for turn in range(max(map(len, inputs))):
            for at, batches in enumerate(inputs):
                if turn < len(batches):
                    merge.apply(str(at), batches[turn])
        assert merge.visits <= 2 * spec.facets.events + merge.received.adjusts


def test_law_3_a_new_incarnation_starts_with_nothing_of_the_old_one() -> None:
    follow = merge_of()
    follow.compatible = False
    follow.publish("1", a("A", 2, 9))
    follow.publish("2", a("B", 3, 9))
    follow.merge.attach("1", ("key",), incarnation=7)
    follow._current["1"] = type(follow.output)("1")
    assert follow.merge.inputs()[1].inserts == 0
    assert emitted(follow, "1", f(4)) == [m("A", 2, 9, 2), m("B", 3, 9, 3), f(4)], "it has neither event"


def test_law_3_elements_of_an_old_incarnation_are_refused_and_counted() -> None:
    merge = Merge()
    merge.attach("1", ("key",), incarnation=1)
    merge.attach("1", ("key",), incarnation=2)
    outcome = merge.apply("1", Batch.of([Insert(b"A", 1, 2), Stable(5)]), incarnation=1)
    assert (outcome.refused, merge.refused, outcome.batch.count, merge.stable_point) == (2, 2, 0, -(2**63))
    with pytest.raises(StaleIncarnation):
        merge.attach("1", ("key",), incarnation=1)
    with pytest.raises(InputTaken):
        merge.attach("1", ("key",), incarnation=2)
    with pytest.raises(InputTaken):
        merge.attach("1", ("key",))


def test_law_4_r1_after_a_replay_inside_a_slot_neither_doubles_nor_drops() -> None:
    follow = merge_of(promises=R1_PROMISES)
    follow.publish("1", a("x", 5, 9), a("y", 5, 9))
    follow.detach("1")
    assert emitted(follow, "2", a("x", 5, 9)) == [], "the counter of 1 left with it; the output's has not"
    follow.attach("1", R1_PROMISES)
    assert emitted(follow, "1", a("x", 5, 9), a("y", 5, 9), a("z", 5, 9)) == [a("z", 5, 9)]
    assert emitted(follow, "2", a("y", 5, 9), a("z", 5, 9), a("w", 5, 9)) == [a("w", 5, 9)]


def test_law_4_a_replay_that_begins_in_the_middle_of_a_slot_is_aligned() -> None:
    follow = merge_of(1, promises=R1_PROMISES)
    follow.compatible = False
    follow.publish("1", a("x", 5, 9), a("y", 5, 9))
    follow.detach("1")
    follow.attach("1", R1_PROMISES)
    assert emitted(follow, "1", a("y", 5, 9), a("z", 5, 9)) == [a("z", 5, 9)]


@pytest.mark.parametrize("algorithm", PROMISES)
def test_law_5_one_inputs_end_does_not_close_the_output(algorithm: str) -> None:
    follow = merge_of(2, algorithm, promises=PROMISES[algorithm])
    follow.compatible = False  # input 1 ends too early: it and input 2 are not consistent
    assert emitted(follow, "1", a("A", 1, 5), f(INF)) == [a("A", 1, 5)]
    assert emitted(follow, "2", a("A", 1, 5), a("B", 2, 5)) == [a("B", 2, 5)]
    assert emitted(follow, "2", f(INF)) == [f(INF)]


def test_law_5_the_rest_agrees_when_the_one_that_had_not_ended_leaves() -> None:
    follow = merge_of()
    follow.publish("1", a("A", 1, 5), f(INF))
    assert list(follow.detach("2").batch.elements()) == [f(INF)]


@pytest.mark.parametrize(("closing", "closes_after"), [("any", 1), ("quorum:2", 2), ("all", 3)])
def test_law_5_closing_is_a_policy(closing: str, closes_after: int) -> None:
    follow = merge_of(3, closing=closing)
    for count in (1, 2, 3):
        shown = emitted(follow, str(count), f(INF))
        assert (f(INF) in shown) == (count == closes_after)


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_law_6_an_input_that_breaks_its_promise_ends_and_the_output_is_untouched(algorithm: str) -> None:
    follow = merge_of(2, algorithm, promises=PROMISES[algorithm])
    follow.publish("1", a("A", 1, 5), f(3))
    follow.publish("2", a("B", 4, 9))
    before = list(follow.elements)
    outcome = follow.merge.apply("1", Batch.of([m("A", 1, 7, 9), a("C", 5, 6)]))
    assert outcome.batch.count == 0
    assert follow.elements == before
    (detached,) = outcome.detached
    assert detached.violation is not None
    assert detached.violation.code == "unknown-event"
    assert "adjust(A, 1, 7, 9)" in detached.reason
    assert emitted(follow, "2", a("C", 5, 6)) == [a("C", 5, 6)]


@pytest.mark.parametrize("algorithm", ["r2", "r3", "r4"])
def test_law_7_hash_and_set_order_never_reach_an_output(algorithm: str, engine: str) -> None:
    """The same session under different hash seeds, each in its own process."""
    program = f"""
from random import Random
from lmerge.core.batch import Batch
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.session import format_row
from lmerge.core.snapshot import snapshot_of
from lmerge.testing.streams.merge_inputs import ordered, present, reference
random = Random(5)
merge = Merge(MergeConfig({algorithm!r}, engine={engine!r}))
events = reference(random, 60, payloads=20)
ties = "shuffled"
streams = [ordered(random, events, ties=ties) if {algorithm!r} == "r2" else present(random, events) for _ in range(3)]
for at in range(3):
    merge.attach(str(at))
for stream in zip(*streams):
    for at, element in enumerate(stream):
        for row in merge.apply(str(at), Batch.of([element])).batch.rows():
            print(format_row(row))
print(snapshot_of(merge))
"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 1000


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_law_8_chattiness_of_complete_streams_is_bounded(algorithm: str) -> None:
    """For complete, equivalent inputs: every spurious insert then has its removal among the inputs."""
    for seed in range(60):
        random = Random(seed)
        events = reference(random, random.randint(1, 20), duplicates=algorithm == "r4")
        streams = {str(at): present(random, events) for at in range(random.randint(1, 3))}
        total = [sum(counts) for counts in zip(*(chattiness(s) for s in streams.values()), strict=True)]
        follow = Follow(Merge(MergeConfig(algorithm)))
        for name in streams:
            follow.attach(name, PROMISES[algorithm])
        while any(streams.values()):
            name = random.choice([name for name in streams if streams[name]])
            follow.publish(name, streams[name].pop(0))
        inserts, adjusts, stables = chattiness(follow.elements)
        assert inserts <= total[0]
        assert inserts + adjusts <= total[0] + total[1]
        assert stables <= total[2]


def test_law_8_an_insert_that_only_one_input_delivers_costs_one_adjust_more_until_it_is_removed() -> None:
    """The bound is valid for complete streams. For this prefix no merge that shows A at once can keep it."""
    follow = merge_of()
    follow.publish("1", a("A", 2, 9))
    follow.compatible = False
    assert emitted(follow, "2", f(3)) == [m("A", 2, 9, 2), f(3)]
    follow.publish("1", m("A", 2, 9, 2))
    assert chattiness(follow.elements)[:2] == (1, 1)


@pytest.mark.parametrize("algorithm", PROMISES)
def test_law_9_check_finds_a_damaged_snapshot(algorithm: str) -> None:
    """A snapshot can be damaged: either it is refused, or ``check`` finds the damage."""
    merge = Merge(MergeConfig(algorithm))
    merge.attach("1", PROMISES[algorithm])
    merge.apply("1", Batch.of([a("A", 1, 50), a("B", 2, 60), f(2)]))
    merge.check()
    document = json.loads(snapshot_of(merge))
    state = document["algorithm"]
    if algorithm in ("r3", "r4"):
        assert state["nodes"][0][0] == 1
        state["nodes"][0][2] = None  # half frozen and not in the output
    else:
        state["max_vs"] = 1
    with pytest.raises((AssertionError, UsageError)):
        restored(json.dumps(document).encode()).check()


@pytest.mark.python_engine
@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_law_9_check_finds_a_damaged_index(algorithm: str) -> None:
    """``check`` must be able to fail."""
    merge = Merge(MergeConfig(algorithm, engine="python"))
    merge.attach("1", PROMISES[algorithm])
    merge.apply("1", Batch.of([a("A", 1, 50), a("B", 2, 60), f(2)]))
    merge.check()
    nodes = merge._engine._algorithm.nodes  # type: ignore[attr-defined]  # of the Python engine
    next(iter(nodes.values()))[0] = 10**12
    with pytest.raises(AssertionError):
        merge.check()
