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
TWO_MERGES = "2 merges in 2 threads"
Arrivals = list[tuple[str, AnyBatch]]


def merged(order: Arrivals, shards: int = 1) -> None:
    merge = Merge(MergeConfig("r3", engine="native", shards=shards))
    for name in sorted({name for name, _ in order}):
        merge.attach(name, PROPERTIES["r3"])
    for name, batch in order:
        assert not merge.apply(name, batch).detached


def named(shards: int) -> str:
    return f"{shards} shards" if shards > 1 else "1 shard"


def both(pool: ThreadPoolExecutor, order: Arrivals) -> None:
    list(pool.map(merged, [order, order]))


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
        # In turns, because the cores that the machine gives change with time.
        rates: dict[str, list[float]] = {}
        with ThreadPoolExecutor(2) as pool:
            for _ in range(repeats):
                for shards in SHARDS:
                    rates.setdefault(named(shards), []).append(count / timed(partial(merged, order, shards)))
                rates.setdefault(TWO_MERGES, []).append(2 * count / timed(partial(both, pool, order)))
        for name, values in rates.items():
            row = report.add(f"{payload_bytes}-byte payloads, {name}", values, "elements/s")
            factor = median(value / one for value, one in zip(values, rates[named(1)], strict=True))
            if name != named(1):
                other = "1 merge" if name == TWO_MERGES else "1 shard"
                report.note(f"{payload_bytes}-byte payloads, {name} / {other} = {factor:.2f}")
            line = f"{payload_bytes:,}-byte payloads" + (", two merges" if name == TWO_MERGES else "")
            panel.add(line, 2 if name == TWO_MERGES else int(name.split()[0]), row)
    if not quick:
        report.save("core_shards")
        plot("core_shards", "More than one core: native R3, 3 inputs", [panel], columns=1)


if __name__ == "__main__":
    main()
