"""L1: for every prefix P, TDB(out(P)) = form(SQL(TDB(P)), c, m), on every implementation.

The SQL is DuckDB's and shares no code with the plan. tests/canonical has further choices of windows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from canonical_world import NUMBERS, RecordedRuns, StreamClock
from law_world import CASES, FORMS, KINDS, PlanUnderLaw, history_of, plan_of

from lmerge.core.elements import NEG_INF
from lmerge.temporal.changes import Lifetime
from lmerge.testing.canonical import forms, joins, presence, samples, spans, windows
from lmerge.testing.canonical.forms import StreamTimes

AB, RIGHT = ("a", "b"), (("a_right", "a"), ("b_right", "b"))
LEFT_RUN, PAIRED = ("run", *AB), ("a", "b", "a_right", "b_right")
TIMES = ("stable", "mark", "begun", "passed")


def outer(how: str, keeps: tuple[bool, bool], condition: str) -> str:
    right = (("run_right", "run"), *RIGHT)
    on = f"l.run = r.run AND {condition}"
    query = joins.outer("lefts", "rights", LEFT_RUN, right, on, keeps_left=keeps[0], keeps_right=keeps[1])
    return f"SELECT * REPLACE (coalesce(run, run_right) AS run) FROM ({query})"


def with_itself() -> str:
    kept, moved = spans.filtered("lefts", "b > 0"), spans.shifted("lefts", 2)
    query = joins.outer(
        f"({kept})",
        f"({moved})",
        LEFT_RUN,
        (("run_right", "run"), *RIGHT),
        "l.run = r.run AND l.a = r.a",
        keeps_left=True,
        keeps_right=False,
    )
    return f"SELECT * FROM ({query})"


def as_of(is_outer: bool, within: int | None) -> str:
    pairs = (("run", "l.run"), ("a", "l.a"), ("b", "l.b"), ("a_right", "s.a"), ("b_right", "s.b"))
    keys = (("run", "run"), ("a", "a"))
    return samples.as_of("lefts", "rights", keys, pairs, AB, is_outer=is_outer, within=within)


def nested(query: str) -> str:
    return f"({query})"


# By case: the query, and the columns of its rows.
QUERIES: Mapping[str, tuple[str, Sequence[str]]] = {
    "filter": (spans.filtered("lefts", "b > 0"), AB),
    "select": (spans.projected("lefts", [("run", "run"), ("a", "a"), ("c", "b * 2")]), ("a", "c")),
    "lost column": (spans.projected("lefts", [("run", "run"), ("a", "a")]), ("a",)),
    "shift": (spans.shifted("lefts", 3), AB),
    "shift back": (spans.shifted("lefts", -5), AB),
    "set duration": (spans.with_duration("lefts", 4), AB),
    "clip duration": (spans.clipped("lefts", 2), AB),
    "extend": (spans.extended("lefts", 5), AB),
    "at end": (spans.at_end("lefts", 2), AB),
    "chain": (
        spans.projected(
            nested(spans.shifted(nested(spans.filtered(nested(spans.extended("lefts", 2)), "b < 2")), 1)),
            [("run", "run"), ("c", "b + 1")],
        ),
        ("c",),
    ),
    "union": (spans.union(["lefts", "rights"]), AB),
    "inner join": (outer("inner", (False, False), "l.a = r.a"), PAIRED),
    "left join": (outer("left", (True, False), "l.a = r.a"), PAIRED),
    "right join": (outer("right", (False, True), "l.a = r.a"), PAIRED),
    "full join": (outer("full", (True, True), "l.a = r.a"), PAIRED),
    "anti-join": (
        joins.uncovered("lefts", "rights", [(name, f"l.{name}") for name in LEFT_RUN], "l.run = r.run AND l.a = r.a"),
        AB,
    ),
    "join by predicate": (outer("inner", (False, False), "l.b < r.b"), PAIRED),
    "join with itself": (with_itself(), PAIRED),
    "as of": (as_of(False, None), PAIRED),
    "as of, within, or nothing": (as_of(True, 3), PAIRED),
    "edges": (samples.edges("lefts", ("run", "a"), LEFT_RUN), AB),
    "edges that end": (samples.edges("lefts", ("run", "a"), LEFT_RUN, lasts=4), AB),
    "coalesce": (presence.coalesced("lefts", LEFT_RUN), AB),
    "cleanse": (presence.released("lefts", "stable", ("run",)), AB),
}


MEMBERS: Mapping[str, tuple[forms.Kind, Sequence[str], str]] = {
    "tumbling": ("hopping", ("run", "a"), windows.in_hopping("lefts", 5, 5, 0, "begun")),
    "hopping": ("hopping", ("run",), windows.in_hopping("lefts", 4, 2, 1, "begun")),
    "gaps": ("hopping", ("run", "a"), windows.in_hopping("lefts", 2, 5, 0, "begun")),
    "snapshot": ("snapshot", ("run", "a"), windows.in_snapshots("lefts", ("run", "a"))),
    "whole snapshot": ("snapshot", ("run",), windows.in_snapshots("lefts", ("run",))),
    "two starts": ("count", ("run", "a"), windows.in_count_windows("lefts", 2, False, ("run", "a"))),
    "three starts": ("count", ("run",), windows.in_count_windows("lefts", 3, False, ("run",))),
    "two ends": ("count", ("run",), windows.in_count_windows("lefts", 2, True, ("run",))),
    "session": ("session", ("run", "a"), windows.in_sessions("lefts", 2, ("run", "a"))),
}
FORM_NAMES: Mapping[str, forms.Form] = {
    "final": "final",
    "settled": "settled",
    "watermark": "watermark",
    "eager": "eager",
}


def counted(kind: str, form: str) -> tuple[str, Sequence[str]]:
    """Return the query of counts and sums in windows of a kind, in a form."""
    name, keys, members = MEMBERS[kind]
    results = windows.grouped(members, keys, [("n", "count(*)"), ("s", "sum(b)")], TIMES)
    is_closed = forms.closed(name, "stable", sees_ends=False, gap=2)
    settles = "stable" if name == "snapshot" else None
    marked = forms.marked(results, is_closed, settles_behind_start=settles, is_point_at_end=False)
    peers = ["run"] if name == "hopping" else keys
    emitted = forms.emitted(marked, FORM_NAMES[form], StreamTimes("stable", "mark", "passed"), peers)
    return windows.aligned(emitted), (*keys[1:], "n", "s")


COUNTED = {f"{kind}, {form}: count": (kind, form) for kind in KINDS for form in FORMS}


@pytest.mark.parametrize("case", [*QUERIES, *COUNTED])
def test_l1_after_every_batch_the_table_is_the_query_over_the_tables(case: str, implementation: str) -> None:
    plan = plan_of(CASES[case])
    names = [one.label for one in plan.sources]
    query, columns = QUERIES[case] if case in QUERIES else counted(*COUNTED[case])
    runs = RecordedRuns(dict.fromkeys(names, NUMBERS), TIMES)
    for seed in range(12):
        random_ = random.Random(seed)
        run, clock = PlanUnderLaw(plan, implementation), StreamClock()
        tables: dict[str, Counter[Lifetime]] = {name: Counter() for name in names}
        for name, item in history_of(random_, plan, 12):
            passed = run.table.stable
            run.give(name, [item])
            entrance = run.entrances[run.names.index(name)]
            if isinstance(item, int):
                clock.take_stable(entrance.live.stable)
            else:
                clock.take_start(item.vs)
                table = tables[name]
                if item.old > item.vs:
                    table[Lifetime(item.row, item.vs, item.old)] -= 1
                if item.new > item.vs:
                    table[Lifetime(item.row, item.vs, item.new)] += 1
            given = {name: +table for name, table in tables.items()}
            begun = clock.begun_over(event for table in given.values() for event in table)
            runs.note(given, Counter(run.table.events), (run.input_stable, clock.mark, begun, passed))
    runs.judge(query, columns)
    assert run.table.stable > NEG_INF


def test_l1_every_case_has_a_query_or_is_a_variant_of_one_that_has() -> None:
    """Top-k, clipping, own lifetimes and points: see tests/canonical."""
    variants = ("first", "point", "top", "own lifetimes", "time-bound")
    assert {case for case in CASES if case.rpartition(": ")[2] not in variants} == {*QUERIES, *COUNTED}
