"""The streams and queries of the benches of temporal plans. Batches are made before a clock starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

import lmerge.temporal as lt
from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Delta
from lmerge.temporal.columns import AnyDelta, as_rows
from lmerge.temporal.native.step import column_form
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.wire.schema import Schema, parse_schema

BATCH_ROWS: Final = 8_192
GROUPS: Final = 1_000
READINGS: Final = {"key": "int", "a": "int", "b": "int", "x": "float"}


@dataclass(frozen=True)
class StreamSpec:
    """A stream of inserts, one unit of time apart: how many, and for how long each lasts.

    ``disorder``: the part of the events that come up to ``late`` units behind their place. ``groups``: of column key.
    """

    events: int
    duration: int = 1
    disorder: float = 0.0
    late: int = 2_000
    groups: int = GROUPS
    seed: int = 15


def native_batches(spec: StreamSpec, schema: Schema | None = None) -> list[Any]:
    """Return the stream as native batches of 8,192 events, each with a stable point behind what can be late."""
    form = column_form(schema or parse_schema(READINGS))
    batches = []
    latest, stable = NEG_INF, NEG_INF
    for rows, starts in _arrow_batches(spec):
        times = pa.record_batch({"start": starts, "end": starts + spec.duration})
        latest = max(latest, int(starts.max()))
        before, stable = stable, latest - (spec.late if spec.disorder else 0)
        batches.append(form.inserts(rows, times, stable if stable > before else None, latest))
    return [*batches, form.batch([], INF, None)]


def row_batches(spec: StreamSpec) -> list[Delta]:
    """Return the same stream as batches of rows."""
    return [as_rows(batch) for batch in native_batches(spec)]


def _arrow_batches(spec: StreamSpec) -> Iterator[tuple[Any, Any]]:
    random = np.random.default_rng(spec.seed)
    places = np.arange(spec.events, dtype=np.int64)
    if spec.disorder:
        late = np.where(random.random(spec.events) < spec.disorder, random.integers(0, spec.late, spec.events), 0)
        places = places[np.argsort(places + late, kind="stable")]
    for at in range(0, spec.events, BATCH_ROWS):
        starts = places[at : at + BATCH_ROWS]
        count = len(starts)
        rows = pa.record_batch(
            {
                "key": random.integers(0, spec.groups, count),
                "a": random.integers(0, 100, count),
                "b": random.integers(0, 1_000, count),
                "x": random.integers(0, 1_000, count) / 8.0,
            }
        )
        yield rows, starts


@dataclass(frozen=True)
class BenchCase:
    """A query over one stream, or two of one kind, and what it must reach in events a second; 0: no target.

    ``python_events``: how many of its events Python takes.
    """

    name: str
    stream: lt.Stream
    spec: StreamSpec
    target: float = 0.0
    python_events: int = 50_000

    @property
    def inputs(self) -> int:
        """The number of its sources."""
        return len(compile_plan([self.stream.node]).sources)

    def smaller(self, events: int) -> BenchCase:
        """Return the case over fewer events."""
        return replace(self, spec=replace(self.spec, events=min(events, self.spec.events)))


def cases() -> list[BenchCase]:
    """Return queries of one operator each."""
    readings = lt.source("readings", READINGS)
    others = lt.source("others", READINGS)
    disordered = StreamSpec(2_000_000, disorder=0.2)
    groups = readings.group_by("key")
    hour = 10_000
    found = [
        BenchCase(
            "filter + project",
            readings.where(lt.col.a > 15).select("key", "a", twice=lt.col.b * 2, more=lt.col.x + 1.0),
            StreamSpec(8_000_000),
            30e6,
        )
    ]
    for form, target in (("final", 10e6), ("watermark", 5e6), ("eager", 2e6)):
        counted = groups.tumbling(hour).agg(n=lt.count(), form=form)
        found.append(BenchCase(f"tumbling count, {form}", counted, disordered, target))
    # As many results for as many events as of the tumbling windows, each over 60 times as long.
    hopping = groups.hopping(60 * hour, hour).agg(n=lt.count())
    found.append(BenchCase("hopping count, S/H = 60, final", hopping, disordered))
    alive = StreamSpec(1_000_000, duration=10_000)
    summed = readings.snapshot().agg(s=lt.sum(lt.col.a), form="settled")
    found.append(BenchCase("snapshot sum, 10,000 alive", summed, alive, 2e6, python_events=2_000))
    # As many keys as live events, so an event has one partner on average.
    joined = readings.join(others, on="key").select("key", "a", "a_right")
    found.append(BenchCase("equi-join, 10,000 alive a side", joined, replace(alive, groups=10_000), 2e6))
    top = groups.tumbling(hour).top(10, by=[lt.col.b.desc()])
    found.append(BenchCase("top 10 of 1,000 groups", top, disordered, 2e6))
    return found


def stepped(case: BenchCase, implementation: str, streams: Sequence[Sequence[AnyDelta]]) -> int:
    """Run a query over batches of its sources, in turns; return the number of batches that came out."""
    graph = compile_plan([case.stream.node]).graph(implementation)
    count = 0
    for turn in zip(*streams, strict=True):
        (found,) = graph.advance_columns(turn)
        count += not found.is_empty
    assert not graph.failures, graph.failures
    return count
