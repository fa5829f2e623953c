"""The operator sheets (2.4 of the description, II.D; rows O1 to O16): what each emits, keeps and needs."""

from __future__ import annotations

import random

import pytest
from history_world import collect
from paper_world import PlanTrace, adjust, event, insert, names, numbers, result

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LimitExceeded
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.properties import derive
from lmerge.temporal.plan.stream import Stream, aggregate, count, source


def promises(stream: Stream) -> frozenset[str]:
    return derive(stream.node)[stream.node].promises


def lefts(*given: str) -> Stream:
    return source("lefts", {"k": "int", "l": "string"}, promises=given)


def rights(*given: str) -> Stream:
    return source("rights", {"k": "int", "r": "string"}, promises=given)


def test_o1_filter_takes_null_as_false_and_inserts_what_was_skipped_when_it_grows() -> None:
    """O1: one bit for each skipped live event, so that a revision brings it in."""
    nullable = source("n", {"a": "int?"})
    assert result(nullable.where(nullable["a"] > 0), insert(None, 1, 2), insert(1, 1, 2)) == [event(1, 1, 2)]
    run = PlanTrace(numbers().where(numbers()["a"] > 0))
    assert run.fast_forward(10) == [10]
    assert run.give(insert((1, 0), 1, 5), 4) == ["stable 1"]
    assert run.give(adjust((1, 0), 1, 5, 12)) == ["+(1, 0)[1,12)"]
    assert promises(numbers("insert-only", "ordered", "key").where(col.a > 0)) >= {"insert-only", "ordered", "key"}


def test_o2_projection_keeps_copies_and_loses_the_key_with_its_columns() -> None:
    """O2: a multiset; the key stays if its columns are kept."""
    items = [insert((1, 1), 1, 5), insert((1, 2), 1, 5)]
    assert result(numbers().select("a"), *items) == [event(1, 1, 5), event(1, 1, 5)]
    assert "key" in promises(numbers("key").select("b", "a"))
    assert "key" not in promises(numbers("key").select("a"))
    strict = promises(numbers("insert-only", "strictly-ordered").select("a"))
    assert "strictly-ordered" in strict


def test_o3_union_adds_up_and_waits_for_the_input_that_lags() -> None:
    """O3: an input that has ended counts as +inf."""
    run = PlanTrace(numbers(name="one").union(numbers(name="other")))
    assert run.give(insert((0, 0), 1, 5), 3, to="one") == ["+(0, 0)[1,5)"]
    assert run.give(insert((0, 0), 1, 5), 2, to="other") == ["+(0, 0)[1,5)", "stable 2"]
    assert run.give(INF, to="other") == ["stable 3"]
    assert len(run.events) == 2
    assert promises(numbers("insert-only", "ordered").union(numbers("insert-only", name="o"))) == {"insert-only"}


def test_o4_join_pairs_what_is_valid_together() -> None:
    """O4: [max LE, min RE), left columns first; an event goes when nothing that comes can overlap it."""
    run = PlanTrace(lefts().join(rights(), "k"))
    run.give(insert((1, "l"), 1, 6), to="lefts")
    assert run.give(insert((1, "r"), 4, 9), to="rights") == ["+(1, l, 1, r)[4,6)"]
    assert run.give(adjust((1, "l"), 1, 6, 12), to="lefts") == ["(1, l, 1, r)[4,6) to 9"]
    assert run.give(adjust((1, "r"), 4, 9, 4), to="rights") == ["(1, l, 1, r)[4,9) gone"]
    run.give(12, to="lefts")
    run.give(13, to="rights")
    assert run.stable == 12
    assert run.graph.live() == 1
    run.give(13, to="lefts")
    assert run.graph.live() == 0
    limited = lefts().join(rights(), where=col.l < col.r, pairs_max=3)
    history = {"lefts": [insert((0, "x"), 1, 5)] * 4, "rights": [insert((0, "y"), 1, 5)]}
    with pytest.raises(LimitExceeded, match="more than 3 pairs"):
        collect(limited.node, history)
    swapped = lefts().join(rights(), "k").select("l", "r")
    assert list(swapped.schema.names) == ["l", "r"]


def test_o5_outer_joins_fill_the_rest_with_missing_values() -> None:
    """O5: a match and its absence never stand for one instant."""
    history = {"lefts": [insert((1, "l"), 1, 10)], "rights": [insert((1, "r"), 4, 6), insert((2, "s"), 4, 6)]}
    found = collect(lefts().join(rights(), "k", how="full").node, history)
    assert found == [
        event((1, "l", None, None), 1, 4),
        event((1, "l", 1, "r"), 4, 6),
        event((None, None, 2, "s"), 4, 6),
        event((1, "l", None, None), 6, 10),
    ]


def test_o6_an_anti_join_is_adjusted_where_a_match_comes_into_it() -> None:
    """O6: the pieces that no match covers; a right event that has ended still decides where one starts."""
    run = PlanTrace(lefts().without(rights(), "k"))
    assert run.give(insert((1, "l"), 1, 10), to="lefts") == ["+(1, l)[1,10)"]
    run.give(3, to="lefts")
    run.give(3, to="rights")
    assert run.give(insert((1, "r"), 4, 6), to="rights") == ["(1, l)[1,10) to 4", "+(1, l)[6,10)"]
    forwarded = PlanTrace(lefts().without(rights(), "k"))
    assert forwarded.fast_forward(10)[1] == NEG_INF
    forwarded.give(insert((1, "r"), 4, 8), to="rights")
    assert forwarded.give(insert((1, "l"), 5, 12), to="lefts") == ["+(1, l)[8,12)"]


def test_o7_both_arms_of_a_diamond_have_each_stable_in_one_step() -> None:
    """O7: a self-join needs no queue; feedback is the minimum of the consumers'."""
    base = numbers().where(col.a >= 0)
    run = PlanTrace(base.join(base.shift(0).select("a", c=col.b), "a"))
    run.give(insert((1, 2), 1, 5))
    assert run.give(4) == ["stable 4"]
    graph = compile_plan([base.shift(1).node, base.set_duration(3).node]).graph()
    assert graph.fast_forward(0, 20) == [NEG_INF]
    assert graph.fast_forward(1, 10) == [8]


def test_o8_groups_are_apart_and_their_time_is_that_of_the_stream() -> None:
    """O8: a result is of one group; a watermark moves all of them; an empty group leaves nothing behind."""
    run = PlanTrace(numbers().group_by("a").tumbling(5).agg(n=count(), form="watermark"))
    run.give(insert((1, 0), 1, 2), insert((2, 0), 1, 2))
    assert run.give(insert((3, 0), 5, 6)) == ["+(1, 1)[0,5)", "+(2, 1)[0,5)"]
    run.give(adjust((3, 0), 5, 6, 5), 20)
    assert run.graph.live() == 0


def test_o9_aggregates_are_exact_and_ignore_missing_values() -> None:
    """O9: 1e100 + 1 - 1e100 is 1; NaN and infinities can be taken back."""
    floats = source("floats", {"x": "float?"})
    run = PlanTrace(
        floats.tumbling(5).agg(s=aggregate("sum", floats["x"]), n=count(), of=count(floats["x"]), form="eager")
    )
    run.give(insert(1e100, 1, 2), insert(1.0, 1, 2), insert(-1e100, 1, 2), insert(None, 1, 2))
    assert run.events == [event((1.0, 4, 3), 0, 5)]
    run.give(insert(float("nan"), 1, 2))
    assert run.events[0].row[0] != run.events[0].row[0]
    live = run.graph.live()
    run.give(insert(float("inf"), 2, 3), adjust(float("inf"), 2, 3, 2))
    assert run.graph.live() == live


def test_o9_results_do_not_depend_on_the_order_of_arrival() -> None:
    """O9: bit for bit."""
    floats = source("floats", {"x": "float"})
    plan = floats.tumbling(5).agg(s=aggregate("sum", floats["x"]), d=aggregate("stddev_samp", floats["x"]))
    items = [insert(value, 1, 2) for value in (0.1, 0.2, 0.3, 1e16, -1e16, 3e-300)]
    found = {str(result(plan, *random.Random(seed).sample(items, len(items)))) for seed in range(20)}
    assert len(found) == 1


def test_o10_ties_at_rank_k_all_come_out() -> None:
    """O10: rank() <= k, missing values last, then the order of rows."""
    nullable = source("n", {"name": "string", "x": "int?"})
    top = nullable.tumbling(5).top(2, by=col.x.desc())
    items = [insert((name, x), 1, 2) for name, x in (("a", 5), ("b", 7), ("c", 5), ("d", None), ("e", 1))]
    assert result(top, *items) == [event(("a", 5, 2), 0, 5), event(("b", 7, 1), 0, 5), event(("c", 5, 2), 0, 5)]
    assert promises(top) >= {"insert-only", "ordered", "deterministic-ties"}


def test_o11_shift_moves_events_stable_and_feedback() -> None:
    """O11: [LE+d, RE+d), saturated at the infinities."""
    run = PlanTrace(names().shift(3))
    assert run.give(insert("a", 1, 5), 2) == ["+(a)[4,8)", "stable 5"]
    assert run.give(insert("b", 2, INF)) == ["+(b)[5,inf)"]
    assert run.fast_forward(20) == [17]


def test_o12_other_lifetimes() -> None:
    """O12: a set duration passes no adjust on; what comes at the end moves with it."""
    duration = PlanTrace(names().set_duration(4))
    assert duration.give(insert("a", 1, 9), adjust("a", 1, 9, 12)) == ["+(a)[1,5)"]
    assert duration.give(adjust("a", 1, 12, 1)) == ["(a)[1,5) gone"]
    clipped = PlanTrace(names().clip_duration(4))
    assert clipped.give(insert("a", 1, 3), adjust("a", 1, 3, 9)) == ["+(a)[1,3)", "(a)[1,3) to 5"]
    extended = PlanTrace(names().extend(2))
    assert extended.give(insert("a", 1, 3), adjust("a", 1, 3, 4)) == ["+(a)[1,5)", "(a)[1,5) to 6"]
    at_end = PlanTrace(names().at_end(2))
    assert at_end.give(insert("a", 1, INF)) == []
    assert at_end.give(adjust("a", 1, INF, 6)) == ["+(a)[6,8)"]
    assert at_end.give(adjust("a", 1, 6, 7)) == ["(a)[6,8) gone", "+(a)[7,9)"]


def test_o13_the_last_sample_of_a_key_stays_below_the_stable_point() -> None:
    """O13: state until the next sample, however old the last one is."""
    run = PlanTrace(numbers().edges("a"))
    run.give(insert((1, 10), 1, 2), 100)
    assert run.graph.live() == 1
    assert run.give(insert((1, 20), 120, 121)) == ["(1, 10)[1,inf) to 120", "+(1, 20)[120,inf)"]


def test_o14_cleanse_gives_order_and_inserts() -> None:
    """O14, IV.G.2: released when it is final and nothing that starts before it can still come or change."""
    run = PlanTrace(names().cleanse())
    assert run.give(insert("b", 4, 6), insert("a", 2, 9), 7) == ["stable 2"]
    assert run.give(10) == ["+(a)[2,9)", "+(b)[4,6)", "stable 10"]
    assert promises(numbers().cleanse()) >= {"insert-only", "ordered", "deterministic-ties"}


def test_o15_functions_and_modules_have_the_rules_of_their_place() -> None:
    """O15: a projection that keeps all columns keeps all promises, a window gives those of its form."""
    kept = numbers("insert-only", "ordered", "key").with_columns(c=col.a + col.b)
    assert promises(kept) >= {"insert-only", "ordered", "key"}
    assert promises(numbers().tumbling(5).agg(n=count())) >= {"insert-only", "strictly-ordered"}


def test_o16_sessions_coalesce_and_as_of() -> None:
    """O16: what users look for first."""
    sessions = result(names().sessions(2).agg(n=count()), insert("a", 1, 3), insert("b", 5, 6), insert("c", 9, 10))
    assert sessions == [event(2, 1, 6), event(1, 9, 10)]
    coalesced = result(names().coalesce(), insert("a", 1, 3), insert("a", 3, 5), insert("a", 4, 9), insert("b", 1, 2))
    assert coalesced == [event("a", 1, 9), event("b", 1, 2)]
    joined = lefts().as_of(rights(), "k")
    history = {
        "lefts": [insert((1, "l"), 5, 9)],
        "rights": [insert((1, "old"), 1, 2), insert((1, "new"), 5, 6), insert((1, "later"), 6, 7)],
    }
    assert collect(joined.node, history) == [event((1, "l", 1, "new"), 5, 9)]
