"""The cases of the laws as SQL: for each its query, and the columns of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from law_world import CASES
from queried_windows import RESULTS, WindowPolicy, emitted_of, members_of

from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.windows import WindowNode
from lmerge.testing.canonical import aggregates, groups, joins, presence, samples, spans, windows

AB, RIGHT = ("a", "b"), (("a_right", "a"), ("b_right", "b"))
LEFT_RUN, PAIRED = ("run", *AB), ("a", "b", "a_right", "b_right")
TIMES = ("stable", "mark", "begun", "passed")
KEYED = f"({groups.keyed('lefts', [('k', 'a')])})"
BY = ("run", "k")


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


def of_three() -> str:
    chosen = "l.run AS run, l.a AS a, l.b AS b, r.a AS a_2, r.b AS b_2, t.a AS a_3, t.b AS b_3"
    lifetime = "greatest(l.vs, r.vs, t.vs) AS vs, least(l.ve, r.ve, t.ve) AS ve"
    same = "l.run = r.run AND r.run = t.run AND l.a = r.a AND r.a = t.a"
    return f"SELECT * FROM (SELECT {chosen}, {lifetime} FROM lefts l, rights r, thirds t WHERE {same}) WHERE vs < ve"


def of_group(column: str, name: str, events: str = KEYED) -> str:
    """Return the query of a column of the events of all groups, with run and key."""
    return nested(spans.projected(events, [("run", "run"), ("k", "k"), (name, column)]))


def groups_in_windows() -> str:
    members = windows.in_hopping(nested(spans.filtered(KEYED, "b < 2")), 4, 2, 0, "begun")
    results = windows.grouped(members, BY, [("n", "count(*)")], TIMES)
    return windows.aligned(f"SELECT * FROM ({results}) WHERE window_start <= mark")


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
    "function": (
        spans.projected("(SELECT * FROM lefts WHERE b < 2)", [("run", "run"), ("a", "a"), ("c", "b * 2")]),
        ("a", "c"),
    ),
    "join of three": (of_three(), ("a", "b", "a_2", "b_2", "a_3", "b_3")),
    "groups, coalesced": (presence.coalesced(of_group("b", "b"), (*BY, "b")), ("k", "b")),
    "groups, with themselves later": (
        joins.inner(
            of_group("b", "b"),
            of_group("b", "c", nested(spans.shifted(KEYED, 3))),
            (("run", "l.run"), ("k", "l.k"), ("b", "l.b"), ("c", "r.c")),
            f"{groups.same_group(BY)} AND l.b <= r.c",
        ),
        ("k", "b", "c"),
    ),
    "groups, in windows": (groups_in_windows(), ("k", "n")),
}


# Windows.


def window_query(node: PlanNode, what: str, k: int = 2) -> tuple[str, Sequence[str]]:
    """Return the query of windows over ``lefts`` and its columns.

    ``what``: the last word of the title of a case. ``k``: how many ranks of rows are there.
    """
    assert isinstance(node, WindowNode)
    kind, chosen = node.window, node.policies
    names = [name for name, _ in node.keys]
    keys = ["run", *names]
    members = members_of(kind, "lefts", keys)
    members = windows.clipped(members, left=chosen.clip.cuts_left, right=chosen.clip.cuts_right)
    policy = WindowPolicy(chosen.form, chosen.stamp, chosen.clip)
    if what in RESULT_OF:
        made = RESULTS[RESULT_OF[what]]
        policy = WindowPolicy(chosen.form, chosen.stamp, chosen.clip, made.reads_ends, made.reads_window)
        results, columns = made.query(members, keys, TIMES), made.columns
    elif what == "top":
        place = windows.ranked(members, keys, "b NULLS LAST", k)
        kept = ", ".join([*keys, "b", "rank", *TIMES, "window_start", "window_end"])
        results, columns = f"SELECT {kept} FROM ({place})", ("b", "rank")
    else:
        computed = AGGREGATES[what]
        results, columns = windows.grouped(members, keys, computed, TIMES), [name for name, _ in computed]
    return emitted_of(kind, results, keys, policy), (*names, *columns)


RESULT_OF: Final[Mapping[str, str]] = {
    "own lifetimes": "started so far",
    "time-bound": "started so far",
    "durations": "durations",
}
AGGREGATES: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "count": [("n", "count(*)"), ("s", "sum(b)")],
    "point": [("n", "count(*)")],
    "first": [("f", aggregates.aggregate("first", "b", AB))],
}


def query_of(case: str) -> tuple[str, Sequence[str]]:
    """Return the query of a case, and the columns of its rows."""
    if case in QUERIES:
        return QUERIES[case]
    return window_query(CASES[case].node, case.rpartition(": ")[2])
