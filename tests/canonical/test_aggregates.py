"""Every aggregate and top-k in windows against SQL in DuckDB, after every batch (sheets O9, O10).

The values are those with which DuckDB's sums are exact too: integers, decimals and halves.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from canonical_world import RecordedRuns, StreamClock, graph_of
from queried_windows import WindowPolicy, emitted_of, members_of
from temporal_world import StreamTable, cut, random_stream

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.modules.builtin import BUILTIN_AGGREGATES
from lmerge.temporal.plan.compiling import CompiledPlan, compile_plan
from lmerge.temporal.plan.stream import Stream, WindowedStream, aggregate, count, source
from lmerge.temporal.values import Values
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Sessions, Snapshots, WindowKind
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.testing.canonical import aggregates, windows

SCHEMA = {"g": "int", "i": "int?", "f": "float?", "d": "decimal(2)?", "s": "string?"}
TYPES = {"g": "int", "i": "int", "f": "float", "d": "decimal", "s": "string"}
ROWS: Sequence[Values] = (
    (0, 5, 0.5, Decimal("0.25"), "b"),
    (0, None, -1.25, None, "ä"),
    (0, 7, None, Decimal("-7.50"), None),
    (1, -2, 8.75, Decimal("0.25"), "a"),
    (1, 5, 0.5, Decimal("3.00"), ""),
    (1, None, None, None, None),
)
KINDS: dict[str, WindowKind] = {
    "tumbling": Hopping(5, 5),
    "hopping": Hopping(6, 1),  # by panes
    "hopping, uneven": Hopping(7, 3, 1),
    "snapshot": Snapshots(),
    "two starts": CountWindows(2),
    "two ends": CountWindows(2, CountedEnd.ENDS),
    "session": Sessions(1),
}
EVENTS = source("events", SCHEMA)
KEYS = ("run", "g")
TIMES = ("form", "stable", "mark", "begun", "passed")
FORMS = list(Form)
NEARLY = ("avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp", "percentile_cont", "median")
PART = 0.3


def columns_of(name: str) -> str:
    """Return the columns that an aggregate takes; DuckDB's averages of decimals are not those of lmerge."""
    if name == "sum":
        return "ifd"
    return "if" if name in NEARLY else "ifds"


def recorded(
    make: Callable[[Form], Stream], implementations: Sequence[str], places: Sequence[int], seeds: Iterable[int]
) -> RecordedRuns:
    """Run all forms over random streams; ``places``: of floats that are rounded in the results."""
    runs = RecordedRuns({"events": TYPES}, TIMES)
    for form in Form:
        plan = compile_plan([make(form).node])
        for implementation in implementations:
            for seed in seeds:
                random_ = random.Random(f"{seed} {form} {implementation}")
                record(runs, plan, implementation, random_, form, places)
    return runs


def record(
    runs: RecordedRuns,
    plan: CompiledPlan,
    implementation: str,
    random_: random.Random,
    form: Form,
    places: Sequence[int],
    native_from: int | None = 0,
) -> None:
    graph = graph_of(plan, implementation, native_from=native_from)
    given, output, clock = StreamTable(), StreamTable(), StreamClock()
    for delta in cut(random_, random_stream(random_, 16, ROWS)):
        passed = output.stable
        given.apply(delta)
        output.apply(graph.step([clock.take(delta, given)])[0])
        emitted = Counter({rounded(event, places): count for event, count in output.events.items()})
        times = (FORMS.index(form), given.stable, clock.mark, clock.begun(given), passed)
        runs.note({"events": given.events}, emitted, times, f"{form}, {implementation}")


def rounded(event: Lifetime, places: Sequence[int]) -> Lifetime:
    row = [shortened(value) if at in places else value for at, value in enumerate(event.row)]
    return Lifetime(tuple(row), event.vs, event.ve)


def shortened(value: Any) -> Any:
    return None if value is None else round(float(value), 9) + 0.0


def in_windows(kind: WindowKind) -> WindowedStream:
    return EVENTS.group_by("g").over(kind)


def queried(kind: WindowKind, results: Sequence[tuple[str, str]], clip: Clip = Clip.NONE, *, is_point: bool) -> str:
    members = windows.clipped(members_of(kind, "events", KEYS), left=clip.cuts_left, right=clip.cuts_right)
    stamp = Stamp.POINT_AT_END if is_point else Stamp.ALIGN
    return emitted_of(kind, windows.grouped(members, KEYS, results, TIMES), KEYS, WindowPolicy(None, stamp, clip))


def parameters_of(name: str) -> dict[str, float]:
    return {"p": PART} if name.startswith("percentile") else {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BUILTIN_AGGREGATES)
def test_an_aggregate_in_windows_is_its_query_after_every_batch(
    name: str, kind: str, implementations: Sequence[str], seeds_of: Callable[[int, int], range]
) -> None:
    taken, window = columns_of(name), KINDS[kind]
    calls: dict[str, Any] = {f"r{column}": aggregate(name, col[column], **parameters_of(name)) for column in taken}
    results = [(f"r{column}", aggregates.aggregate(name, column, list(SCHEMA), PART)) for column in taken]
    nearly = [place for place in range(1, len(taken) + 1) if name in NEARLY]
    results = [(column, f"round({sql}, 9) + 0.0" if nearly else sql) for column, sql in results]
    runs = recorded(lambda form: in_windows(window).agg(form=form, **calls), implementations, nearly, seeds_of(9, 9))
    runs.judge(queried(window, results, is_point=False), ["g", *calls])


@pytest.mark.parametrize("output", ["align", "point-at-end"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("snapshot", "session")])
def test_aggregates_beside_each_other_are_one_query(kind: str, output: str, implementations: Sequence[str]) -> None:
    """Those by state, those by order and those that read starts, over one window."""
    window, of_i = KINDS[kind], ("sum", "min", "median", "distinct_count", "mode", "collect", "last")
    calls: dict[str, Any] = {
        "n": count(),
        **{name: aggregate(name, col.i) for name in of_i},
        "most": aggregate("max", col.s),
    }
    results = [("n", "count(*)"), *((name, aggregates.aggregate(name, "i", list(SCHEMA))) for name in of_i)]
    results = [(name, f"round({sql}, 9) + 0.0" if name == "median" else sql) for name, sql in results]
    made = lambda form: in_windows(window).agg(form=form, output=output, **calls)  # noqa: E731
    runs = recorded(made, implementations, [1 + list(calls).index("median")], range(3))
    results.append(("most", "max(s)"))
    runs.judge(queried(window, results, is_point=output == "point-at-end"), ["g", *calls])


@pytest.mark.parametrize("clip", Clip)
@pytest.mark.parametrize("kind", KINDS)
def test_first_and_last_are_those_of_clipped_lifetimes(kind: str, clip: Clip, implementations: Sequence[str]) -> None:
    """A start that is cut to the window ties with the others there, so the row decides."""
    window = KINDS[kind]
    calls: dict[str, Any] = {name: aggregate(name, col.i) for name in ("first", "last")}
    results = [(name, aggregates.aggregate(name, "i", list(SCHEMA))) for name in calls]
    runs = RecordedRuns({"events": TYPES}, TIMES)
    for form in Form:
        plan = compile_plan([in_windows(window).agg(form=form, clip=clip, **calls).node])
        for implementation in implementations:
            for seed in range(2):
                random_ = random.Random(f"{seed} {form} {implementation} {clip}")
                record(runs, plan, implementation, random_, form, (), 0 if clip is Clip.NONE else None)
    runs.judge(queried(window, results, clip, is_point=False), ["g", *calls])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("order", "k"), [("f", 1), ("f DESC", 2), ("s, i DESC", 3)])
def test_the_rows_of_rank_k_or_better_are_their_query_after_every_batch(
    kind: str, order: str, k: int, implementations: Sequence[str]
) -> None:
    window = KINDS[kind]
    parts = [part.split() for part in order.split(", ")]
    by = [col[name].desc() if rest else col[name] for name, *rest in parts]
    made = lambda form: EVENTS.group_by(og=col.g).over(window).top(k, by=by, rank="place", form=form)  # noqa: E731
    runs = recorded(made, implementations, (), range(3))
    in_sql = ", ".join(f"{' '.join(part)} NULLS LAST" for part in parts)
    ranked = windows.ranked(members_of(window, "events", KEYS), KEYS, in_sql, k)
    columns = ["run", "g AS og", "g", "i", "f", "d", "s", "rank AS place", *TIMES, "window_start", "window_end"]
    emitted = emitted_of(window, f"SELECT {', '.join(columns)} FROM ({ranked})", KEYS, WindowPolicy(None))
    runs.judge(emitted, ["og", "g", "i", "f", "d", "s", "place"])
