"""What do functions and aggregates in Python cost in a plan, over what they cost when they are called without one?

One core, over the same events in one run. A function of a row beside a loop that calls it for each value of a list; a
function of columns, of a batch or of a window, beside its call on the arrays of NumPy; an incremental aggregate beside
its own add() on the rows of each window. A plan gets its events as native batches of columns, or as rows. Targets, for
the faster of the two: 1.5 times the loop, 1.1 times the arrays, 2 times add().
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

import lmerge.temporal as lt
from bench.harness import BenchReport, begin, bench_parser
from bench.temporal_streams import BATCH_ROWS, READINGS, BenchCase, StreamSpec, native_batches, row_batches, stepped
from lmerge.temporal.columns import AnyDelta
from lmerge.temporal.expressions.functions import scalar_function
from lmerge.temporal.modules.functions import aggregate_function
from lmerge.temporal.modules.kinds import IncrementalAggregate

WINDOW: Final = 10_000
REPEATS: Final = 5
FORMS: Final = ("columns", "rows")
DEGREES: Final = math.pi / 180.0


@scalar_function(["int", "int"], "float", name="bench_distance")
def distance(a: int, b: int) -> float:
    """Return the kilometres between two places on one meridian and a half of it: some arithmetic of one row."""
    north, south = a * DEGREES, (b % 90) * DEGREES
    across = math.sin((north - south) / 2) ** 2 + math.cos(north) * math.cos(south) * 0.25
    return 12_742.0 * math.asin(math.sqrt(min(1.0, across)))


@scalar_function(["int"], "int", name="bench_increment")
def increment(a: int) -> int:
    """Return the next number: a call that does almost nothing."""
    return a + 1


@scalar_function(["int", "int"], "float", name="bench_distances", vectorised=True, columns="numpy")
def distances(a: Any, b: Any) -> Any:
    """Return what ``distance`` returns, for arrays."""
    north, south = a * DEGREES, (b % 90) * DEGREES
    across = np.sin((north - south) / 2) ** 2 + np.cos(north) * np.cos(south) * 0.25
    return 12_742.0 * np.arcsin(np.sqrt(np.minimum(1.0, across)))


@aggregate_function(inputs={"x": "float", "b": "int"}, result="float", name="bench_weighted", columns="numpy")
def weighted(values: Any, weights: Any) -> float:
    """Return the mean of values with weights, behind a sort by value."""
    order = np.argsort(values)
    return float(np.dot(values[order], weights[order]) / max(1, weights.sum()))


class BenchRange(IncrementalAggregate[float, dict[str, float], float]):
    """The sum of what is above a limit: a loop in Python over the rows that came."""

    name = "bench_range"
    inputs: ClassVar = {"x": "float"}
    result = "float"

    def begin(self) -> dict[str, float]:
        """Return the state of no rows."""
        return {"sum": 0.0}

    def add(self, state: dict[str, float], rows: Sequence[float]) -> dict[str, float]:
        """Add what is above the limit."""
        for row in rows:
            if row > 40.0:
                state["sum"] += row
        return state

    def remove(self, state: dict[str, float], rows: Sequence[float]) -> dict[str, float]:
        """Take back what was added."""
        for row in rows:
            if row > 40.0:
                state["sum"] -= row
        return state

    def compute(self, state: dict[str, float]) -> float:
        """Return the sum."""
        return state["sum"]


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of some work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def columns_of(batches: Sequence[Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the columns of all events, in their order."""
    tables = [pa.record_batch(batch.rows()) for batch in batches if len(batch)]
    table = pa.Table.from_batches(tables)
    return {name: table.column(name).to_numpy() for name in table.column_names}


def compare(
    report: BenchReport, stream: lt.Stream, spec: StreamSpec, bare: Callable[[], object], name: str, target: float
) -> None:
    """Measure a plan, by columns and by rows, and what it calls without it; judge the better of the two."""
    case = BenchCase(name, stream, spec)
    inputs: dict[str, list[AnyDelta]] = {"columns": list(native_batches(spec)), "rows": list(row_batches(spec))}
    implementations = {"columns": "auto", "rows": "python"}
    took: dict[str, list[float]] = {"bare": [], **{form: [] for form in FORMS}}
    for _ in range(REPEATS):
        took["bare"].append(seconds(bare))
        for form in FORMS:
            took[form].append(seconds(lambda form=form: stepped(case, implementations[form], [inputs[form]])))  # type: ignore[misc]
    per_event = 1e9 / spec.events
    rows = {
        key: report.add(f"{name}: {key}", [value * per_event for value in values], "ns/event")
        for key, values in took.items()
    }
    ratios = {form: rows[form].median / rows["bare"].median for form in FORMS}
    best = min(ratios.values())
    shown = ", ".join(f"{form} {ratio:.2f}" for form, ratio in ratios.items())
    report.note(f"{name}, plan / bare: {shown}; target {target:g}: {'reached' if best <= target else 'MISSED'}")


def main() -> None:
    parser = bench_parser(__doc__, "temporal_functions", "fewer events")
    quick = parser.parse_args().quick
    report = begin((__doc__ or "").splitlines()[0])
    spec = StreamSpec(100_000 if quick else 1_000_000, groups=1)
    columns = columns_of(native_batches(spec))
    lists = {name: column.tolist() for name, column in columns.items()}
    readings = lt.source("readings", READINGS)
    for function, shown, arguments in ((distance, "a function of 400 ns", "ab"), (increment, "of 30 ns", "a")):
        call, given = function.declared.function, [lists[argument] for argument in arguments]
        compare(
            report,
            readings.select(y=function(*(lt.col[argument] for argument in arguments))),
            spec,
            lambda call=call, given=given: [call(*values) for values in zip(*given)],  # type: ignore[misc]
            shown,
            1.5,
        )
    batches = range(0, spec.events, BATCH_ROWS)
    call = distances.declared.function
    compare(
        report,
        readings.select(y=distances(lt.col.a, lt.col.b)),
        spec,
        lambda: [call(columns["a"][at : at + BATCH_ROWS], columns["b"][at : at + BATCH_ROWS]) for at in batches],
        "a function of columns of a batch",
        1.1,
    )
    whole = readings.tumbling(WINDOW)
    starts = range(0, spec.events, WINDOW)
    compare(
        report,
        whole.agg(y=lt.method_of(weighted)(of=[lt.col.x, lt.col.b])),
        spec,
        lambda: [weighted(columns["x"][at : at + WINDOW], columns["b"][at : at + WINDOW]) for at in starts],
        "a function of columns of a window",
        1.1,
    )
    module = BenchRange()
    compare(
        report,
        whole.agg(y=lt.method_of(BenchRange)(of=[lt.col.x])),
        spec,
        lambda: [module.compute(module.add(module.begin(), lists["x"][at : at + WINDOW])) for at in starts],
        "an incremental aggregate",
        2.0,
    )
    if not quick:
        report.save("temporal_functions")


if __name__ == "__main__":
    main()
