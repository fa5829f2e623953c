"""Is one merge faster on several threads, and do merges of one server run in parallel?

Native R3, 3 inputs, 20 % disorder, 1 % stables, 100,000 live events, 16 and 1,000-byte payloads. One merge with 1, 2
and 4 shards; then two merges in two threads compared with one. Wall time, because the use of cores is measured.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from bench.core_r3 import PROPERTIES, arrivals
from bench.harness import Panel, begin, bench_parser, plot, timed
from lmerge.core.batch import AnyBatch
from lmerge.core.engines.native_engine import columns_of
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.testing.streams.large_inputs import LARGE, LargeInputs

EVENTS = {16: 400_000, 1_000: 60_000}
REPEATS = 5
Arrivals = list[tuple[str, AnyBatch]]


def merged(order: Arrivals, shards: int = 1) -> None:
    merge = Merge(MergeConfig("r3", engine="native", shards=shards))
    for name in sorted({name for name, _ in order}):
        merge.attach(name, PROPERTIES["r3"])
    for name, batch in order:
        assert not merge.apply(name, batch).detached


def both(pool: ThreadPoolExecutor, order: Arrivals) -> None:
    list(pool.map(merged, [order, order]))


def main() -> None:
    quick = bench_parser(__doc__, "core_shards", "a tenth of the events, once").parse_args().quick
    repeats = 1 if quick else REPEATS
    report = begin((__doc__ or "").splitlines()[0])
    panel = Panel("one merge, in shards", "shards", "elements/s")
    for payload_bytes, events in EVENTS.items():
        spec = LargeInputs(
            replace(LARGE, events=events // 10 if quick else events, alive=100_000 if payload_bytes == 16 else 20_000),
            payload_bytes=payload_bytes,
            batch_rows=32_768,
        )
        order: Arrivals = [(name, columns_of(name, batch)) for name, batch in arrivals(spec.batches())]
        count = sum(batch.count for _, batch in order)
        rows = {}
        for shards in (1, 2, 4):
            rates = [count / timed(partial(merged, order, shards)) for _ in range(repeats)]
            rows[shards] = row = report.add(f"{payload_bytes}-byte payloads, {shards} shards", rates, "elements/s")
            panel.add(f"{payload_bytes}-byte payloads", shards, row)
            report.note(f"{payload_bytes}-byte payloads, {shards} shards / 1 shard = {row.median / rows[1].median:.2f}")
        with ThreadPoolExecutor(2) as pool:
            rates = [2 * count / timed(partial(both, pool, order)) for _ in range(repeats)]
        row = report.add(f"{payload_bytes}-byte payloads, 2 merges in 2 threads", rates, "elements/s")
        factor = row.median / rows[1].median
        report.note(f"{payload_bytes}-byte payloads, 2 merges in 2 threads / 1 merge = {factor:.2f}")
    if not quick:
        report.save("core_shards")
        plot("core_shards", "More than one core: native R3, 3 inputs", [panel], columns=1)


if __name__ == "__main__":
    main()
