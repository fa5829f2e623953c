"""Is one merge faster on several threads, and do merges of one server run in parallel?

Native R3, 3 inputs, 20 % disorder, 1 % stables, 100,000 live events, 16 and 1,000-byte payloads. One merge with 1, 2
and 4 shards, and two merges in two threads, in turns. Wall time, because the use of cores is measured. The factors are
medians of those of each turn; that of two merges, which share nothing, is what the machine's cores give.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from statistics import median

from bench.core_r3 import PROPERTIES, arrivals
from bench.harness import Panel, begin, bench_parser, plot, timed
from lmerge.core.batch import AnyBatch
from lmerge.core.engines.native_engine import columns_of
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.testing.streams.large_inputs import LARGE, LargeInputs

EVENTS = {16: 400_000, 1_000: 60_000}
REPEATS = 9
SHARDS = (1, 2, 4)
Arrivals = list[tuple[str, AnyBatch]]


def merged(order: Arrivals, shards: int = 1) -> None:
    merge = Merge(MergeConfig("r3", engine="native", shards=shards))
    for name in sorted({name for name, _ in order}):
        merge.attach(name, PROPERTIES["r3"])
    for name, batch in order:
        assert not merge.apply(name, batch).detached


def both(pool: ThreadPoolExecutor, order: Arrivals) -> None:
    list(pool.map(merged, [order, order]))


def factor(rates: list[float], of_one: list[float]) -> float:
    return median(rate / one for rate, one in zip(rates, of_one, strict=True))


def main() -> None:
    quick = bench_parser(__doc__, "core_shards", "a tenth of the events, once").parse_args().quick
    repeats = 1 if quick else REPEATS
    report = begin((__doc__ or "").splitlines()[0])
    panel = Panel("one merge in shards; two merges", "shards, merges", "elements/s")
    for payload_bytes, events in EVENTS.items():
        spec = LargeInputs(
            replace(LARGE, events=events // 10 if quick else events, alive=100_000 if payload_bytes == 16 else 20_000),
            payload_bytes=payload_bytes,
            batch_rows=32_768,
        )
        order: Arrivals = [(name, columns_of(name, batch)) for name, batch in arrivals(spec.batches())]
        count = sum(batch.count for _, batch in order)
        rates: dict[int, list[float]] = {shards: [] for shards in SHARDS}
        of_two: list[float] = []
        with ThreadPoolExecutor(2) as pool:
            # In turns, because the cores that the machine gives change with time.
            for _ in range(repeats):
                for shards, values in rates.items():
                    values.append(count / timed(partial(merged, order, shards)))
                of_two.append(2 * count / timed(partial(both, pool, order)))
        payloads = f"{payload_bytes}-byte payloads"
        for shards, values in rates.items():
            name = f"{payloads}, {shards} shards" if shards > 1 else f"{payloads}, 1 shard"
            panel.add(f"{payload_bytes:,}-byte payloads", shards, report.add(name, values, "elements/s"))
            if shards > 1:
                report.note(f"{name} / 1 shard = {factor(values, rates[1]):.2f}")
        name = f"{payloads}, 2 merges in 2 threads"
        panel.add(f"{payload_bytes:,}-byte payloads, two merges", 2, report.add(name, of_two, "elements/s"))
        report.note(f"{name} / 1 merge = {factor(of_two, rates[1]):.2f}")
    if not quick:
        report.save("core_shards")
        plot("core_shards", "More than one core: native R3, 3 inputs", [panel], columns=1)


if __name__ == "__main__":
    main()
