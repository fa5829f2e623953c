"""What windows promise (IV.G, D15, D16, G1 to G7), by window, form, groups, stamps and module: every run keeps it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from random import Random
from typing import Any, ClassVar

import plan_modules  # noqa: F401  (it registers its modules)
import pytest
from history_world import collect
from temporal_world import StreamTable, cut, random_stream

from lmerge.core.elements import INF, NEG_INF
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.properties import DETERMINISTIC_TIES, INSERT_ONLY, KEY, ORDERED, STRICTLY_ORDERED, Properties, closure
from lmerge.core.tdb import Tdb
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.modules.kinds import TimedOperator
from lmerge.temporal.modules.properties import Properties as Declared
from lmerge.temporal.modules.properties import Stamped, TimedRow, Window
from lmerge.temporal.modules.registry import MODULES
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.properties import algorithm_of, derive, explain
from lmerge.temporal.plan.stream import Stream, WindowedStream, count, module, source
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.running import ElementWriter
from lmerge.temporal.windows.policies import Form
from lmerge.wire.schema import SchemaLike

ROWS = ((0, 0), (0, 1), (1, 0), (1, 2))


class EachStart(TimedOperator[tuple[Any, ...]]):
    """An event of one unit of time at each start. More events only add to it, in the order of their starts."""

    results: ClassVar[SchemaLike] = {"one": "int"}
    properties = Declared(reads=("start",), insert_only=True, preserves_order=True)

    def compute(self, rows: Sequence[TimedRow[tuple[Any, ...]]], window: Window) -> Iterator[Stamped]:
        for one in rows:
            yield Stamped((1,), one.start, one.start + 1)


@pytest.fixture(autouse=True, scope="module")
def modules() -> Iterator[None]:
    MODULES.named(EachStart)
    yield
    MODULES.forget("each_start")


def numbers(*promises: str) -> Stream:
    return source("numbers", {"a": "int", "b": "int"}, promises=promises)


KINDS: dict[str, Callable[[Any], WindowedStream]] = {
    "tumbling": lambda stream: stream.tumbling(5),
    "hopping": lambda stream: stream.hopping(6, 4),
    "with gaps": lambda stream: stream.hopping(2, 5),
    "snapshot": lambda stream: stream.snapshot(),
    "count": lambda stream: stream.count_windows(2),
    "count of ends": lambda stream: stream.count_windows(2, by="ends"),
    "sessions": lambda stream: stream.sessions(1),
}
RESULTS: dict[str, Callable[[WindowedStream, str], Stream]] = {
    "count": lambda windows, form: windows.agg(n=count(), form=form),
    "top": lambda windows, form: windows.top(2, by=col.b, form=form),
    "rows": lambda windows, form: windows.apply(module("each_once"), form=form),
    "running": lambda windows, form: windows.apply(module("started_so_far"), form=form),
    "clipped": lambda windows, form: windows.apply(module("started_so_far"), form=form, output="clip"),
    "starts": lambda windows, form: windows.apply(module("each_start"), form=form, output="clip", clip="left"),
}


def query(kind: str, results: str, form: str, is_grouped: bool, *promises: str) -> Stream:
    stream = numbers(*promises)
    if not is_grouped:
        return RESULTS[results](KINDS[kind](stream), form)
    if results == "rows":  # keys and rows are columns
        return RESULTS[results](KINDS[kind](stream.group_by(key=col.a)), form)
    return RESULTS[results](KINDS[kind](stream.group_by("a")), form)


# Every promise is kept.


def batches(random_: Random, changes: Sequence[Change]) -> list[Delta]:
    """Return changes in order of their starts in batches, some with a stable that the rest allows."""
    found: list[Delta] = []
    taken: list[Change] = []
    for at, change in enumerate(changes):
        taken.append(change)
        next_start = changes[at + 1].vs if at + 1 < len(changes) else change.vs
        if random_.random() < 0.5:
            is_ahead = change.vs < next_start and random_.random() < 0.6
            found.append(Delta(taken, random_.randint(change.vs + 1, next_start) if is_ahead else None))
            taken = []
    return [*found, Delta(taken, INF)]


def in_order(random_: Random) -> list[Change]:
    times = sorted(random_.randint(-5, 25) for _ in range(14))
    return [
        Change(random_.choice(ROWS), t, t, INF if random_.random() < 0.05 else t + random_.randint(1, 9)) for t in times
    ]


def ties_shuffled(random_: Random, changes: Sequence[Change]) -> list[Change]:
    return sorted(random_.sample(changes, len(changes)), key=lambda change: change.vs)


class PromiseJudge:
    """Judges one run by what is promised. ``starts``: rows by their starts, in the order in which they came."""

    def __init__(self, stream: Stream, promised: Properties) -> None:
        self._graph = compile_plan([stream.node]).graph()
        self._promised, self.table = promised, StreamTable()
        self.starts: list[tuple[int, Any]] = []

    def run(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            (found,) = self._graph.step([delta])
            self.table.apply(found)
            self._check(found)
        if KEY in self._promised:
            keys = Counter((event.row, event.vs) for event in self.table.events.elements())
            assert max(keys.values(), default=1) == 1

    def _check(self, found: Delta) -> None:
        assert INSERT_ONLY not in self._promised or all(change.is_insert for change in found.changes)
        for change in found.changes:
            last = self.starts[-1][0] if self.starts else NEG_INF
            assert ORDERED not in self._promised or change.vs >= last
            assert STRICTLY_ORDERED not in self._promised or change.vs > last
            self.starts.append((change.vs, change.row))


@pytest.mark.parametrize("is_grouped", [False, True], ids=["one group", "groups"])
@pytest.mark.parametrize("kind", KINDS)
def test_runs_keep_what_windows_promise(kind: str, is_grouped: bool) -> None:
    for results, form in product(RESULTS, map(str, Form)):
        if results == "starts" and form != "eager":
            continue
        for promises in ((), (INSERT_ONLY, ORDERED)):
            stream = query(kind, results, form, is_grouped, *promises)
            promised = closure(derive(stream.node)[stream.node].promises)
            for seed in range(1):
                random_ = Random(f"{seed} {results} {form}")
                judge = PromiseJudge(stream, promised)
                if not promises:
                    judge.run(cut(random_, random_stream(random_, 18, rows=ROWS)))
                    continue
                changes = in_order(random_)
                judge.run(batches(random_, changes))
                if DETERMINISTIC_TIES in promised:
                    other = PromiseJudge(stream, promised)
                    other.run(batches(random_, ties_shuffled(random_, changes)))
                    assert other.starts == judge.starts, explain(stream.node)


# What is promised: the examples of the paper, and the departures.

IN_ORDER = (INSERT_ONLY, ORDERED)


@pytest.mark.parametrize(
    ("kind", "results", "form", "is_grouped", "promises", "algorithm"),
    [
        ("tumbling", "count", "final", False, IN_ORDER, "r0"),  # G3
        ("tumbling", "count", "watermark", False, IN_ORDER, "r0"),
        ("tumbling", "count", "settled", False, IN_ORDER, "r0"),
        ("tumbling", "count", "eager", False, IN_ORDER, "r3"),  # D16: it retracts
        ("tumbling", "count", "final", False, (), "r0"),  # D16: over any input
        ("tumbling", "count", "watermark", False, (), "r3"),
        ("hopping", "top", "final", False, IN_ORDER, "r1"),  # G4
        ("hopping", "top", "watermark", False, IN_ORDER, "r1"),
        ("snapshot", "top", "final", False, IN_ORDER, "r1"),
        ("hopping", "top", "eager", False, IN_ORDER, "r4"),
        ("tumbling", "count", "final", True, IN_ORDER, "r1"),  # G5: groups of one start come in order
        ("tumbling", "count", "watermark", True, IN_ORDER, "r1"),
        ("snapshot", "count", "final", True, IN_ORDER, "r3"),  # D15
        ("snapshot", "count", "watermark", True, IN_ORDER, "r3"),
        ("snapshot", "count", "watermark", False, IN_ORDER, "r0"),
        ("snapshot", "count", "settled", False, IN_ORDER, "r3"),
        ("sessions", "count", "final", False, (), "r0"),
        ("sessions", "count", "watermark", False, IN_ORDER, "r3"),  # a session can grow
        ("sessions", "count", "final", True, IN_ORDER, "r3"),
        ("tumbling", "count", "watermark", True, (), "r3"),  # G6
        ("tumbling", "count", "eager", True, (), "r3"),
        ("tumbling", "count", "final", True, (), "r1"),
        ("count", "count", "watermark", False, IN_ORDER, "r0"),
        ("count", "count", "final", True, (), "r3"),
        ("tumbling", "running", "final", False, IN_ORDER, "r4"),  # a result can start behind the next window
        ("tumbling", "clipped", "final", False, (), "r1"),
        ("hopping", "clipped", "final", False, (), "r4"),
        ("tumbling", "starts", "eager", False, IN_ORDER, "r2"),  # by what the module declares
        ("tumbling", "starts", "eager", True, IN_ORDER, "r4"),
        ("hopping", "starts", "eager", False, IN_ORDER, "r4"),
        ("tumbling", "rows", "eager", False, IN_ORDER, "r2"),
        ("tumbling", "rows", "eager", False, (), "r4"),
    ],
)
def test_the_algorithm_follows_from_window_form_and_groups(
    kind: str, results: str, form: str, is_grouped: bool, promises: Sequence[str], algorithm: str
) -> None:
    stream = query(kind, results, form, is_grouped, *promises)
    assert algorithm_of(stream.node).case.algorithm == algorithm, explain(stream.node)


def by_watermark(stream: Stream) -> Stream:
    return stream.tumbling(4).agg(n=count(), form="watermark")


@pytest.mark.parametrize(
    "stream",
    [
        by_watermark(numbers().cleanse()),
        by_watermark(numbers().cleanse().where(col.a >= 0).shift(1)),
        by_watermark(numbers(*IN_ORDER).tumbling(2).agg(a=count())),
        numbers().cleanse().group_by("a").apply(by_watermark),
    ],
    ids=["cleanse", "cleanse, filter, shift", "windows", "groups"],
)
def test_where_events_are_held_back_the_watermark_promises_nothing(stream: Stream) -> None:
    """It has passed the end of a window, and events come into it that an operator below has held back."""
    assert INSERT_ONLY not in derive(stream.node)[stream.node].promises, explain(stream.node)


def test_a_window_that_the_watermark_has_passed_is_revised_behind_cleanse() -> None:
    graph = compile_plan([by_watermark(numbers().cleanse()).node]).graph()
    came = [Change((0, 0), start, start, start + 1) for start in (0, 2, 20)]
    found = [str(change) for delta in (Delta(came, 2, 20), Delta([], 4)) for change in graph.step([delta])[0].changes]
    assert found == ["insert((1), 0, 4)", "adjust((1), 0, 4, 0)", "insert((2), 0, 4)"]


def merged(stream: Stream, algorithm: str, random_: Random) -> tuple[Counter[Lifetime], Counter[Lifetime]]:
    """Merge two runs in a merge that is fixed to an algorithm; return its table, and that of the query."""
    changes = in_order(random_)
    merge, output, forms = Merge(MergeConfig(algorithm=algorithm)), Tdb(), RowForms(stream.schema)
    writer = ElementWriter(stream.node)
    for name in ("one", "other"):
        merge.attach(name, derive(stream.node)[stream.node].promises)
    for name in ("one", "other"):
        graph = compile_plan([stream.node]).graph()
        for delta in batches(random_, ties_shuffled(random_, changes)):
            outcome = merge.apply(name, writer.batch(graph.step([delta])))
            assert not outcome.detached, outcome.detached
            output.apply_batch(outcome.batch)
    found = Counter(Lifetime(forms.of_payload(event.payload), event.vs, event.ve) for event in output.events())
    return found, Counter(collect(stream.node, {"numbers": changes}))


@pytest.mark.parametrize(
    ("kind", "results", "form", "is_grouped", "algorithm"),
    [
        ("tumbling", "count", "final", False, "r0"),
        ("snapshot", "count", "watermark", False, "r0"),
        ("hopping", "top", "final", False, "r1"),
        ("tumbling", "count", "watermark", True, "r1"),
        ("tumbling", "starts", "eager", False, "r2"),
        ("snapshot", "count", "final", True, "r3"),
        ("tumbling", "count", "eager", True, "r3"),
        ("hopping", "running", "settled", False, "r4"),
    ],
)
def test_a_merge_fixed_to_the_algorithm_takes_the_stream(
    kind: str, results: str, form: str, is_grouped: bool, algorithm: str
) -> None:
    stream = query(kind, results, form, is_grouped, *IN_ORDER)
    assert algorithm_of(stream.node).case.algorithm == algorithm, explain(stream.node)
    for seed in range(20):
        found, expected = merged(stream, algorithm, Random(seed))
        assert found == expected


def test_a_merge_fixed_to_more_than_is_promised_detaches_the_stream() -> None:
    stream = query("tumbling", "count", "eager", False, *IN_ORDER)
    merge, writer = Merge(MergeConfig(algorithm="r0")), ElementWriter(stream.node)
    graph = compile_plan([stream.node]).graph()
    merge.attach("eager", frozenset({INSERT_ONLY, STRICTLY_ORDERED}))
    outcomes = [
        merge.apply("eager", writer.batch(graph.step([Delta([Change((0, 0), start, start, 3)])]))) for start in (1, 2)
    ]
    assert [bool(outcome.detached) for outcome in outcomes] == [False, True]


def test_results_of_grouped_snapshots_come_in_the_order_of_their_ends() -> None:
    stream = numbers(INSERT_ONLY, ORDERED).group_by("a").snapshot().agg(n=count(), form="watermark")
    graph = compile_plan([stream.node]).graph()
    events = [((0, 0), 5, 100), ((1, 0), 7, 9), ((2, 0), 10, 11), ((3, 0), 101, 102)]
    starts = []
    for row, vs, ve in events:
        starts.append([change.vs for change in graph.step([Delta([Change(row, vs, vs, ve)])])[0].changes])
    assert starts == [[], [], [7], [5, 10]]
    assert ORDERED not in derive(stream.node)[stream.node].promises


def test_reasons_are_given() -> None:
    stream = query("snapshot", "count", "final", True, *IN_ORDER)
    assert derive(stream.node)[stream.node].reason == (
        "one row for each group and window, emitted once, but windows of groups come in order of their ends"
    )
    eager = query("tumbling", "starts", "eager", False, *IN_ORDER)
    assert "never taken away, as the module declares insert_only" in derive(eager.node)[eager.node].reason
