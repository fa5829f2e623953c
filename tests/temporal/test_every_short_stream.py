"""Every legal stream of a few elements over a small axis of time: every operator, form and cut (L1, L2, L4, L6).

Starts are 0 and 1, ends up to 2 and +inf. Each stream comes in every way to cut it into batches, on each implementation
that computes it otherwise: of windows, table and stable point are those of the definition; of other operators the table
is that of a query, and the stable point the same in every cut. The default takes some streams of three elements. The
long tests take all of them for every choice of policies, and all of four and five for each kind of window and results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import pytest
from canonical_world import NUMBERS, RecordedRuns, StreamClock
from implementations import built_implementations
from law_queries import BY, KEYED, TIMES, of_group, of_three, window_query
from law_world import LEFTS, RIGHTS, THIRDS, B, doubled, is_small
from queried_windows import RESULTS, QueriedResults, stamps_of
from short_streams import Stream as ShortStream
from short_streams import TimeBoundDefinition, alike, outcome, streams, tables_of
from window_definition import WindowDefinition

from lmerge.core.elements import NEG_INF
from lmerge.core.engines.selection import PYTHON
from lmerge.temporal.changes import Delta
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.joining import join
from lmerge.temporal.plan.stream import Stream
from lmerge.temporal.plan.windows import WindowNode
from lmerge.temporal.values import Values
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Sessions, Snapshots, WindowKind
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.testing.canonical import groups, joins, presence, samples, spans

KINDS: dict[str, WindowKind] = {
    "tumbling": Hopping(2, 2),
    "hopping": Hopping(2, 1),
    "gaps": Hopping(1, 2),
    "snapshot": Snapshots(),
    "two starts": CountWindows(2),
    "two ends": CountWindows(2, CountedEnd.ENDS),
    "session": Sessions(0),
}
ROW: Values = (0, 3)
SHARE, THIN = 14, 160
"""Of streams of three elements the default takes one of so many: of windows for each kind and results, of others."""


@pytest.fixture(scope="session")
def implementations(demand: Callable[[str], None]) -> Sequence[str]:
    return built_implementations(demand)


# Windows, by the definition.


def choices(kind: WindowKind, results: QueriedResults) -> Iterator[tuple[Clip, Stamp, Form]]:
    """Yield the policies that go together. Windows that need a second event are not time-bound."""
    for clip, stamp, form in product(results.clips, stamps_of(kind, results), Form):
        if stamp is not Stamp.TIME_BOUND or not isinstance(kind, CountWindows):
            yield clip, stamp, form


def judge_windows(
    kind: str, module: str, implementations: Sequence[str], chosen: Callable[[int, int], Sequence[ShortStream]]
) -> int:
    """Judge each choice of policies on the streams that ``chosen`` has for its number; return how many there are."""
    results, judged = RESULTS[module], 0
    policies = list(choices(KINDS[kind], results))
    for at, (clip, stamp, form) in enumerate(policies):
        node = results.made(LEFTS.group_by().over(KINDS[kind]), form, clip, stamp).node
        assert isinstance(node, WindowNode)
        plan = compile_plan([node])
        # A user's module is computed by the operator in Python on either implementation.
        on = implementations if module == "no time" else [PYTHON]
        for stream in chosen(at, len(policies)):
            found = alike(plan, on, stream)
            definition = (TimeBoundDefinition if stamp is Stamp.TIME_BOUND else WindowDefinition)(node.rules, whole)
            for _, item in stream:
                expected = definition.take(Delta([], item) if isinstance(item, int) else Delta([item], None))
            assert found.events == expected, (clip, stamp, form, stream)
            assert found.stable == definition.output_stable, (clip, stamp, form, stream)
            judged += 1
    return judged


def whole(row: Values) -> Values:
    return ()


ALONE = ((ROW,),)


@pytest.mark.parametrize("module", RESULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_streams_of_three_elements_have_their_windows(kind: str, module: str, implementations: Sequence[str]) -> None:
    """The choices of policies share one of fourteen streams; each kind and each module begin at another one."""
    first = (list(KINDS).index(kind) + list(RESULTS).index(module)) % SHARE
    judged = judge_windows(
        kind, module, implementations, lambda at, of: streams(ALONE, 3)[first * of + at :: SHARE * of]
    )
    assert judged > 20


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("module", RESULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_stream_of_three_elements_has_its_windows_by_every_policy(
    kind: str, module: str, implementations: Sequence[str]
) -> None:
    assert judge_windows(kind, module, implementations, lambda at, _: streams(ALONE, 3)) > 500


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("elements", [4, 5])
@pytest.mark.parametrize("module", RESULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_stream_of_up_to_five_elements_has_its_windows(
    kind: str, module: str, elements: int, implementations: Sequence[str]
) -> None:
    """The choices of policies share the streams: each takes as many of them as the others."""
    found = streams(ALONE, elements)
    assert judge_windows(kind, module, implementations, lambda at, of: found[at::of]) == len(found)


# Other operators, by a query.

AB, RIGHT = ("a", "b"), (("a_right", "a"), ("b_right", "b"))
LEFT_RUN, PAIRED = ("run", *AB), ("a", "b", "a_right", "b_right")
BY_A = LEFTS.group_by("a")
BY_K = LEFTS.group_by(k=LEFTS["a"])


@dataclass(frozen=True)
class ShortCase:
    """A plan, its query and the columns of its rows. ``rows``: of the events of each source."""

    stream: Stream
    query: str
    columns: Sequence[str]
    rows: tuple[tuple[Values, ...], ...] = ((ROW, (0, 0)),)


def outer(how: str, keeps: tuple[bool, bool]) -> ShortCase:
    right = (("run_right", "run"), *RIGHT)
    on = "l.run = r.run AND l.a = r.a"
    query = joins.outer("lefts", "rights", LEFT_RUN, right, on, keeps_left=keeps[0], keeps_right=keeps[1])
    query = f"SELECT * REPLACE (coalesce(run, run_right) AS run) FROM ({query})"
    return ShortCase(LEFTS.join(RIGHTS, "a", how=how), query, PAIRED, (((0, 5),), ((0, 8),)))


def as_of(how: str, within: int | None) -> ShortCase:
    pairs = (("run", "l.run"), ("a", "l.a"), ("b", "l.b"), ("a_right", "s.a"), ("b_right", "s.b"))
    keys = (("run", "run"), ("a", "a"))
    query = samples.as_of("lefts", "rights", keys, pairs, AB, is_outer=how == "left", within=within)
    return ShortCase(LEFTS.as_of(RIGHTS, "a", within=within, how=how), query, PAIRED, (((0, 5),), ((0, 8),)))


def span(stream: Stream, query: str, columns: Sequence[str] = AB) -> ShortCase:
    return ShortCase(stream, query, columns, (((0, 0), (0, 1)),))


SPANS = {
    "filter": span(LEFTS.where(B > 0), spans.filtered("lefts", "b > 0")),
    "map": span(LEFTS.select(c=B - B), spans.projected("lefts", [("run", "run"), ("c", "b - b")]), ("c",)),
    "function": span(
        LEFTS.where(is_small(B)).select(c=doubled(B)),
        spans.projected("(SELECT * FROM lefts WHERE b < 2)", [("run", "run"), ("c", "b * 2")]),
        ("c",),
    ),
    "shift": span(LEFTS.shift(1), spans.shifted("lefts", 1)),
    "shift back": span(LEFTS.shift(-1), spans.shifted("lefts", -1)),
    "set duration": span(LEFTS.set_duration(1), spans.with_duration("lefts", 1)),
    "clip duration": span(LEFTS.clip_duration(1), spans.clipped("lefts", 1)),
    "extend": span(LEFTS.extend(1), spans.extended("lefts", 1)),
    "at end": span(LEFTS.at_end(1), spans.at_end("lefts", 1)),
}
SHAPED = {
    "edges": ShortCase(LEFTS.edges("a"), samples.edges("lefts", ("run", "a"), LEFT_RUN), AB),
    "edges that end": ShortCase(LEFTS.edges("a", lasts=1), samples.edges("lefts", ("run", "a"), LEFT_RUN, lasts=1), AB),
    "coalesce": span(LEFTS.coalesce(), presence.coalesced("lefts", LEFT_RUN)),
    "cleanse": span(LEFTS.cleanse(), presence.released("lefts", "stable", ("run",))),
}
JOINED = {
    "union": ShortCase(LEFTS.union(RIGHTS), spans.union(["lefts", "rights"]), AB, ((ROW,), (ROW,))),
    "inner join": outer("inner", (False, False)),
    "left join": outer("left", (True, False)),
    "right join": outer("right", (False, True)),
    "full join": outer("full", (True, True)),
    "anti-join": ShortCase(
        LEFTS.without(RIGHTS, "a"),
        joins.uncovered("lefts", "rights", [(name, f"l.{name}") for name in LEFT_RUN], "l.run = r.run AND l.a = r.a"),
        AB,
        (((0, 5),), ((0, 8),)),
    ),
    "as of": as_of("inner", None),
    "as of, within, or nothing": as_of("left", 1),
    "join of three": ShortCase(
        join(LEFTS, RIGHTS, THIRDS, on="a"),
        of_three(),
        ("a", "b", "a_2", "b_2", "a_3", "b_3"),
        ((ROW,), (ROW,), (ROW,)),
    ),
}
IN_GROUPS: tuple[tuple[Values, ...], ...] = (((0, 0), (1, 0)),)
GROUPS = {
    "groups, coalesced": ShortCase(
        BY_K.apply(lambda group: group.select("b").coalesce()),
        presence.coalesced(of_group("b", "b"), (*BY, "b")),
        ("k", "b"),
        IN_GROUPS,
    ),
    "groups, with themselves later": ShortCase(
        BY_K.apply(lambda group: group.select("b").join(group.shift(1).select(c=col.b), where=col.b <= col.c)),
        joins.inner(
            of_group("b", "b"),
            of_group("b", "c", f"({spans.shifted(KEYED, 1)})"),
            (("run", "l.run"), ("k", "l.k"), ("b", "l.b"), ("c", "r.c")),
            f"{groups.same_group(BY)} AND l.b <= r.c",
        ),
        ("k", "b", "c"),
        IN_GROUPS,
    ),
    "groups, cleansed": ShortCase(
        BY_K.apply(lambda group: group.cleanse().select("b")),
        f"SELECT run, k, b, vs, ve FROM ({presence.released(KEYED, 'stable', BY)})",
        ("k", "b"),
        IN_GROUPS,
    ),
}


def ranked(kind: str, form: Form) -> ShortCase:
    stream = BY_A.over(KINDS[kind]).top(1, by="b", form=form)
    query, columns = window_query(stream.node, "top", k=1)
    return ShortCase(stream, query, columns)


RANKED = {f"top of {kind}, {form}": ranked(kind, form) for kind in KINDS for form in Form}
CASES = {**SPANS, **SHAPED, **JOINED, **GROUPS, **RANKED}


def judge(case: ShortCase, implementations: Sequence[str], chosen: Sequence[ShortStream]) -> None:
    plan = compile_plan([case.stream.node])
    names = [source.label for source in plan.sources]
    runs = RecordedRuns(dict.fromkeys(names, NUMBERS), TIMES)
    for stream in chosen:
        found = alike(plan, implementations, stream)
        clock, stables = StreamClock(), dict.fromkeys(names, NEG_INF)
        given = tables_of(stream, names)
        for place, item in stream:
            if isinstance(item, int):
                stables[names[place]] = item
                clock.take_stable(min(stables.values()))
            else:
                clock.take_start(item.vs)
        before = outcome(plan, PYTHON, stream[:-1], [True] * (len(stream) - 2)).stable if len(stream) > 1 else NEG_INF
        begun = clock.begun_over(event for table in given.values() for event in table)
        runs.note(given, Counter(found.events), (min(stables.values()), clock.mark, begun, before), str(stream))
    # Few streams of three elements end, and have two ends before.
    runs.judge(case.query, case.columns, may_be_empty=len(chosen) < 100)


@pytest.mark.parametrize("name", CASES)
def test_streams_of_three_elements_have_their_table(name: str, implementations: Sequence[str]) -> None:
    case, at = CASES[name], list(CASES).index(name)
    judge(case, implementations, streams(case.rows, 3)[at % THIN :: THIN])


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("elements", [3, 4])
@pytest.mark.parametrize("name", CASES)
def test_every_stream_of_up_to_four_elements_has_its_table(
    name: str, elements: int, implementations: Sequence[str]
) -> None:
    """Of three sources, or with two rows, they are of three elements."""
    case = CASES[name]
    wide = len(case.rows) > 2 or sum(map(len, case.rows)) > 2
    judge(case, implementations, streams(case.rows, 3 if wide else elements))


def test_there_are_hundreds_of_streams() -> None:
    assert len(streams(ALONE, 3)) > 500
    assert len(streams(CASES["inner join"].rows, 3)) > 4000
