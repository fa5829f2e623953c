"""How much faster do two real plans of one query finish if the merge sends feedback to the slower one?

Figure 10 of the paper (VI.E.3), as ``feedback`` has it, with plans of ``lmerge.temporal``: a query in a file, whose two
plans select events by a user's function of x, and ``lmerge replica run`` for each of them. The function is expensive
in one plan for small x, in the other for large x. The result is the same. 200,000 events come in batches of small and
of large x in turns, 10,000 to 30,000 in each.

Compared in one run, in seconds from the first batch of the merged output to its end: each plan alone, the merge of
both without feedback, the merge of both with it. The output must be the same in all of them. Target: at least 4 times
faster than without feedback.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.feedback import (
    BATCH,
    CHEAP_US,
    COUNT,
    EXPENSIVE_US,
    LIFE,
    MERGED_REPEATS,
    STABLE_EVERY,
    STEP,
    TARGET,
    FeedbackRun,
    SlowQuery,
    add_curve,
    query,
    read,
)
from bench.harness import Panel, begin, bench_parser, plot
from bench.rig.fleet import MERGE, import_all, serve
from bench.rig.processes import executed, forked
from lmerge.core.elements import Event
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

LAG = STABLE_EVERY * STEP  # a plan that lags by more than a batch gets feedback
REPEATS = {"plan small alone": 1, "plan large alone": 1}  # of the others: MERGED_REPEATS
RUNS = {
    "plan small alone": ("small",),
    "plan large alone": ("large",),
    "merge of both": ("small", "large"),
    "merge of both, feedback": ("small", "large"),
}
SCHEMA = {"at": "int", "x": "int"}

# The query of the bench, as a user writes it. ``small`` is slow for small x, and ``large`` for large x.
QUERY = """
import lmerge.temporal as lt
from bench.feedback import SlowQuery
from bench.temporal_feedback import source_rows
from lmerge.replica import PythonItems, Query, in_order
from lmerge.temporal.expressions.functions import scalar_function

SPEC = {spec!r}


def selected(name, plan):
    @scalar_function(["int", "int"], "bool", name=name)
    def selects(at, x):
        return SPEC.selects(at, x, plan)

    return selects


events = lt.source("events", {{"at": "int", "x": "int"}}, promises=["ordered", "insert-only"])
small, large = selected("slow_for_small", 0), selected("slow_for_large", 1)
query = Query(
    {{"small": events.where(small(lt.col.at, lt.col.x)), "large": events.where(large(lt.col.at, lt.col.x))}},
    {{
        "events": PythonItems(
            items=lambda: source_rows(SPEC), start="start", end="end", progress=in_order(every={every})
        )
    }},
)
"""


def source_rows(spec: SlowQuery) -> Iterator[dict[str, int]]:
    """Yield the events of the source."""
    for at in range(spec.count):
        yield {"start": at * STEP, "end": at * STEP + LIFE, "at": at, "x": spec.x(at)}


def expected_events(spec: SlowQuery) -> list[Event]:
    """Return the events that the output must have."""
    codec = RowCodec(parse_schema(SCHEMA))
    return [
        Event(event.vs, codec.encode({"at": event.vs // STEP, "x": int(event.payload)}), event.ve)
        for event in spec.expected()
    ]


def run(name: str, spec: SlowQuery, expected: list[Event]) -> FeedbackRun:
    """Run the plans with one server and one reader, each a process. ``left_out`` of what it returns: nothing."""
    closing = ("--merge", MERGE, "--closing", "any")  # the end of the faster plan is the end
    options = (*closing, "--feedback", str(LAG)) if "feedback" in name else closing
    with tempfile.TemporaryDirectory(prefix="lmerge-plans-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        file = folder / "query.py"
        file.write_text(QUERY.format(spec=spec, every=LAG))
        server, port = serve("server", folder, *options)
        target = f"127.0.0.1:{port}"
        processes = [server]
        try:
            reader = forked("reader", folder, read, target)
            processes.append(reader)
            for plan in RUNS[name]:
                place = ("--plan", plan, "-s", target, "-m", MERGE, "-r", plan)
                processes.append(executed(plan, folder, "lmerge", "replica", "run", str(file), *place))
            moments, inserts, events = reader.receive()
        finally:
            for process in processes:
                process.kill()
    took = [moment - moments[0] for moment in moments]
    return FeedbackRun(took[-1], took, list(inserts), sorted(events) == expected, [])


def main() -> None:
    parser = bench_parser(__doc__, "temporal_feedback", "20,000 events, once")
    quick = parser.parse_args().quick
    import_all()
    report = begin((__doc__ or "").splitlines()[0])
    part = 10 if quick else 1
    spec = query(COUNT // part, (BATCH[0] // part, BATCH[1] // part))
    expected = expected_events(spec)
    report.note(
        f"{spec.count:,} events, {sum(turn < spec.count for turn in spec.turns)} turns; the function takes "
        f"{CHEAP_US:g} us, or {EXPENSIVE_US:g} us"
    )
    panel = Panel("elements of the merged output", "s", "thousands of events", is_plain=True)
    rows = {}
    for name in RUNS:
        runs = [run(name, spec, expected) for _ in range(1 if quick else REPEATS.get(name, MERGED_REPEATS))]
        rows[name] = report.add(name, [found.seconds for found in runs], "s")
        right = all(found.is_right for found in runs)
        report.note(f"{name}: output {'as expected' if right else 'WRONG'}; load {os.getloadavg()[0]:.1f}")
        add_curve(panel, name, runs[0])
    ratio = rows["merge of both"].median / rows["merge of both, feedback"].median
    report.note(f"target {TARGET:g} times faster: {'reached' if ratio >= TARGET else 'MISSED'} ({ratio:.1f} times)")
    if not quick:
        report.save("temporal_feedback")
        plot(
            "temporal_feedback", "Two temporal plans of one query, merged with and without feedback", [panel], columns=1
        )


if __name__ == "__main__":
    main()
