"""Properties by rule, fast-forward and jumpstart (IV.G, V.D and II.4 of the paper; rows G1 to G7, F1 to F3)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from operator_world import from_then_on
from paper_world import PlanTrace, adjust, insert, numbers
from temporal_world import Item, StreamTable, cut, random_stream

from lmerge.core.elements import INF
from lmerge.core.merge import Merge
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation
from lmerge.temporal.expressions.functions import FunctionRegistry
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.properties import algorithm_of, derive, explain
from lmerge.temporal.plan.stream import Stream, aggregate, count
from lmerge.temporal.running import ElementWriter, QueryRun

ROWS = ((0, 0), (0, 1), (1, 0), (1, 2))


def algorithm(stream: Stream) -> str:
    return algorithm_of(stream.node).case.algorithm


def merged(stream: Stream, items: Sequence[Item]) -> tuple[Merge, list[str]]:
    """Publish a plan's output to a merge with what is derived as its promise; return what the merge objects to."""
    run, writer, merge = QueryRun({"out": stream.node}), ElementWriter(stream.node), Merge()
    merge.attach("one", derive(stream.node)[stream.node].promises)
    table, problems = Tdb(), list[str]()
    for item in items:
        outcome = merge.apply("one", writer.batch([step["out"] for step in run.take("numbers", [item])]))
        problems += [str(detached) for detached in outcome.detached]
        table.apply_batch(outcome.batch)
    return merge, problems


def in_order(count_of: int, seed: int = 0) -> list[Item]:
    random_ = random.Random(seed)
    items: list[Item] = [insert(random_.choice(ROWS), vs, vs + random_.randint(1, 9)) for vs in range(count_of)]
    return [*items, INF]


def disordered(seed: int) -> list[Item]:
    return [item for item in random_stream(random.Random(seed), 25, ROWS) if item != INF] + [INF]


def test_g1_a_source_declares_order_revisions_and_duplicates_and_is_held_to_it() -> None:
    """IV.G.1: a promise that is broken names source and element."""
    for promise, items in (
        ("ordered", [insert((0, 0), 5, 6), insert((0, 0), 4, 6)]),
        ("strictly-ordered", [insert((0, 0), 5, 6), insert((1, 0), 5, 6)]),
        ("insert-only", [insert((0, 0), 5, 9), adjust((0, 0), 5, 9, 7)]),
        ("key", [insert((0, 0), 5, 6), insert((0, 0), 5, 7)]),
    ):
        run = PlanTrace(numbers(*({"insert-only", promise} if "ordered" in promise else {promise})))
        with pytest.raises(InputViolation, match="numbers") as found:
            run.give(*items)
        assert str(items[-1]) in str(found.value)


def test_g2_cleansing_makes_order_of_disorder() -> None:
    """IV.G.2: R1, with a key R2 at the least, on the running stream."""
    plan = numbers("key").cleanse()
    assert algorithm(plan) in ("r0", "r1", "r2")
    for seed in range(20):
        assert merged(numbers().cleanse(), disordered(seed))[1] == []


def test_g3_in_order_into_a_window_is_strictly_increasing() -> None:
    """IV.G.3: R0 for final and watermark; the eager form revises, and R0 would detach it (D16)."""
    ordered = numbers("insert-only", "ordered")
    for form, expected in (("final", "r0"), ("watermark", "r0"), ("eager", "r3")):
        plan = ordered.tumbling(5).agg(n=count(), form=form)
        assert algorithm(plan) == expected
        assert merged(plan, in_order(30))[1] == []
    eager = ordered.tumbling(5).agg(n=count(), form="eager")
    run, writer, merge = QueryRun({"out": eager.node}), ElementWriter(eager.node), Merge()
    merge.attach("one", frozenset({"insert-only", "strictly-ordered"}))
    detached = [
        found
        for item in in_order(10)
        for found in merge.apply("one", writer.batch([step["out"] for step in run.take("numbers", [item])])).detached
    ]
    assert detached


def test_g4_in_order_into_top_k_has_deterministic_ties() -> None:
    """IV.G.4: several rows for each window, in the order of rows: R1."""
    plan = numbers("insert-only", "ordered").hopping(4, 2).top(2, by="b")
    assert algorithm(plan) == "r1"
    assert merged(plan, in_order(30))[1] == []


def test_g5_a_grouped_aggregate_over_order_is_ordered_on_a_grid_alone() -> None:
    """IV.G.5 gives R2 for all windows; a grouped snapshot comes in the order of its ends (D15)."""
    ordered = numbers("insert-only", "ordered").group_by("a")
    assert algorithm(ordered.tumbling(5).agg(n=count())) in ("r1", "r2")
    assert algorithm(ordered.snapshot().agg(n=count())) == "r3"
    for windows in (ordered.tumbling(5), ordered.snapshot(), ordered.count_windows(2)):
        assert merged(windows.agg(n=count(), form="watermark"), in_order(40))[1] == []


def test_g6_a_grouped_aggregate_over_disorder_depends_on_its_form() -> None:
    """IV.G.6: R3; the final form is R1 although the input is disordered (D16)."""
    grouped = numbers().group_by("a").tumbling(5)
    found = {form: algorithm(grouped.agg(n=count(), form=form)) for form in ("watermark", "eager", "settled", "final")}
    assert found == {"watermark": "r3", "eager": "r3", "settled": "r1", "final": "r1"}
    for form in found:
        for seed in range(10):
            assert merged(grouped.agg(n=count(), form=form), disordered(seed))[1] == []


def test_g7_properties_are_inferred_operator_by_operator_with_their_reasons() -> None:
    """IV.G: what is derived is what is promised to the merge."""
    plan = numbers("insert-only", "ordered").where(numbers()["a"] > 0).group_by("a").tumbling(5).agg(n=count())
    text = explain(plan.node)
    assert [line.split(":")[0].split()[0] for line in text.splitlines() if line.startswith("    ")] == ["promises"] * 3
    assert "algorithm r1" in text
    assert all(one.reason for one in derive(plan.node).values())


FORWARDED = {
    "filter": lambda: numbers().where(numbers()["b"] < 2),
    "windows": lambda: numbers().group_by("a").tumbling(5).agg(n=count(), form="eager"),
    "join": lambda: numbers().where(numbers()["b"] < 2).join(numbers(), "a"),
    "snapshot": lambda: numbers().snapshot().agg(s=aggregate("sum", numbers()["b"]), form="eager"),
}


@pytest.mark.parametrize("name", FORWARDED)
def test_f1_what_ends_at_or_behind_the_feedback_stays_as_it_is(name: str) -> None:
    """V.D: avoid computing, purge state, propagate upstream, and keep what later output needs."""
    left_out = 0
    for seed in range(60):
        random_ = random.Random(seed)
        plan = compile_plan([FORWARDED[name]().node])
        graph, reference = plan.graph(), plan.graph()
        output, expected, stable = StreamTable(), StreamTable(), StreamTable()
        t = random_.randint(0, 15)
        for delta in cut(random_, disordered(seed)):
            if random_.random() < 0.2:
                graph.fast_forward(0, t)
            output.apply(graph.step([delta])[0])
            expected.apply(reference.step([delta])[0])
            stable.apply(delta)
            if stable.stable > t + 10:
                assert from_then_on(output.events, t) == from_then_on(expected.events, t)
        left_out += sum(step.operator.skipped for step in graph.steps)
    assert left_out > 0 or name == "snapshot"


def test_f3_a_plan_goes_on_from_its_snapshot_in_a_new_process() -> None:
    """II.4: state from a checkpoint, then the live stream; it joins the merge at its stable point."""
    plan = compile_plan([numbers().group_by("a").snapshot().agg(n=count(), form="eager").node])
    for seed in range(30):
        random_ = random.Random(seed)
        batches = cut(random_, disordered(seed))
        at = random_.randrange(len(batches))
        first, again = plan.graph(), plan.graph()
        for delta in batches[:at]:
            first.step([delta])
        again.restore(first.state())
        assert [first.step([delta]) for delta in batches[at:]] == [again.step([delta]) for delta in batches[at:]]


class SlowPlan:
    """A plan with a function that is slow for some rows, on a clock of its own that its calls move (VI.E.3)."""

    def __init__(self, name: str, slow: int) -> None:
        self.name, self.clock, self._slow = name, 0, slow
        functions = FunctionRegistry()
        made = functions.scalar(["int"], "int", name=f"work_of_{name}")(self._work)
        self.plan = numbers("insert-only", "ordered").with_columns(b=made(numbers()["b"]))
        self._run, self._writer = QueryRun({"out": self.plan.node}), ElementWriter(self.plan.node)

    def _work(self, value: int) -> int:
        self.clock += 20 if value % 2 == self._slow else 1
        return value

    def publish(self, items: Sequence[Item], merge: Merge) -> None:
        steps = self._run.take("numbers", items)
        merge.apply(self.name, self._writer.batch([step["out"] for step in steps]))

    def fast_forward(self, t: int) -> None:
        self._run.fast_forward("out", t)

    @property
    def skipped(self) -> int:
        return sum(step.operator.skipped for step in self._run.graph.steps)


def time_until_all_is_merged(slow: Sequence[int], has_feedback: bool, count_of: int = 2000) -> tuple[int, int]:
    """Return the clock when the merge has the last event, and how many events were left out."""
    random_, items, part = random.Random(3), list[Item](), 0
    while len(items) < count_of:
        items += [insert((0, part), len(items) + at, len(items) + at + 1) for at in range(random_.randint(100, 300))]
        part += 1
    merge = Merge()
    plans = dict.fromkeys((SlowPlan(f"plan{at}", which) for at, which in enumerate(slow)), 0)
    for plan in plans:
        merge.attach(plan.name, derive(plan.plan.node)[plan.plan.node].promises)
    while True:
        plan = min(plans, key=lambda one: one.clock)
        at = plans[plan]
        if has_feedback:
            plan.fast_forward(merge.stable_point)
        plan.publish([*items[at : at + 5], min(at + 5, len(items))], merge)
        plans[plan] += 5
        if merge.stable_point >= len(items):
            return plan.clock, sum(one.skipped for one in plans)


def test_f2_two_plans_with_feedback_are_as_fast_as_the_faster_one_at_each_moment() -> None:
    """VI.E.3: 176 s and 163 s alone, 163 s merged, 34 s with feedback; here on clocks that calls move."""
    alone = [time_until_all_is_merged([which], False)[0] for which in (0, 1)]
    merged_, skipped_without = time_until_all_is_merged([0, 1], False)
    forwarded, skipped = time_until_all_is_merged([0, 1], True)
    assert merged_ > 0.8 * min(alone)
    assert (skipped_without, skipped > 500) == (0, True)
    assert min(alone) >= 4 * forwarded
