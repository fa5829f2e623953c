"""Windows against SQL in DuckDB, after every batch of random streams, in every form."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import pytest
from temporal_world import StreamTable, cut, random_stream

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Lifetime
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.stream import GroupedStream, Stream, aggregate, count, source
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Snapshots, WindowKind
from lmerge.testing.canonical import windows

ROWS = ((0, 0), (0, 1), (1, 0), (1, 2))
KINDS: dict[str, WindowKind] = {
    "tumbling": Hopping(5, 5),
    "hopping": Hopping(10, 5, 3),
    "with gaps": Hopping(2, 5),
    "snapshot": Snapshots(),
    "two starts": CountWindows(2),
    "three ends": CountWindows(3, CountedEnd.ENDS),
}
RESULTS = (("n", "count(*)"), ("s", "sum(b)"), ("m", "max(b)"), ("d", "count(DISTINCT b)"))


def planned(kind: WindowKind, is_grouped: bool, form: str) -> Stream:
    numbers = source("numbers", {"a": "int", "b": "int"})
    grouped: GroupedStream = numbers.group_by("a") if is_grouped else numbers.group_by()
    b = numbers["b"]
    return grouped.over(kind).agg(
        form=form, n=count(), s=aggregate("sum", b), m=aggregate("max", b), d=aggregate("distinct_count", b)
    )


def queried(kind: WindowKind, is_grouped: bool, begun: int) -> str:
    keys = ["a"] if is_grouped else []
    if isinstance(kind, Hopping):
        return windows.hopping("events", kind.size, kind.hop, kind.offset, begun, keys, RESULTS)
    if isinstance(kind, CountWindows):
        return windows.count_windows("events", kind.count, kind.by is CountedEnd.ENDS, keys, RESULTS)
    return windows.snapshot("events", keys, RESULTS)


class Canonical:
    """A database that holds the table of a stream."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("CREATE TABLE events (a BIGINT, b BIGINT, vs BIGINT, ve BIGINT)")

    def result(self, table: StreamTable, query: str) -> Counter[Lifetime]:
        """Return the table that a query has over the events."""
        self._connection.execute("DELETE FROM events")
        rows = [(*event.row, event.vs, event.ve) for event in table.events.elements()]
        if rows:
            self._connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
        found: list[tuple[Any, ...]] = self._connection.execute(query).fetchall()
        return Counter(Lifetime(tuple(map(int, row[:-2])), row[-2], row[-1]) for row in found)


@pytest.mark.parametrize("is_grouped", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_eager_form_is_the_query_over_the_table_after_every_batch(kind: str, is_grouped: bool) -> None:
    """What has not begun is left out, and so is what begins where another event ends in the future."""
    canonical = Canonical()
    for seed in range(8):
        random_ = random.Random(seed)
        graph = compile_plan([planned(KINDS[kind], is_grouped, "eager").node]).graph()
        given, output, mark = StreamTable(), StreamTable(), NEG_INF
        for delta in cut(random_, random_stream(random_, 15, rows=ROWS)):
            given.apply(delta)
            (emitted,) = graph.step([delta])
            output.apply(emitted)
            mark = max([mark, given.stable, *(change.vs for change in delta.changes)])
            if mark == INF:
                break
            found = canonical.result(given, queried(KINDS[kind], is_grouped, mark))
            assert output.events == Counter({event: n for event, n in found.items() if event.vs <= mark})


@pytest.mark.parametrize("form", ["final", "settled", "watermark", "eager"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_form_ends_with_the_query_over_the_whole_table(kind: str, form: str) -> None:
    canonical = Canonical()
    for seed in range(8):
        random_ = random.Random(seed)
        graph = compile_plan([planned(KINDS[kind], True, form).node]).graph()
        given, output, last = StreamTable(), StreamTable(), NEG_INF
        stream = [item for item in random_stream(random_, 20, rows=ROWS) if item != INF]
        for delta in cut(random_, [*stream, INF]):
            last = max([last, *(change.vs for change in delta.changes)], default=last)
            last = last if delta.stable in (None, INF) else max(last, delta.stable or last)
            given.apply(delta)
            output.apply(graph.step([delta])[0])
        begun = max([last, *(event.ve for event in given.events if event.ve < INF)])
        assert output.events == canonical.result(given, queried(KINDS[kind], True, begun))
