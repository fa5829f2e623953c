"""How many elements a second does the Python core merge, by algorithm, compared with the paper's listing?

Three inputs, 16-byte payloads, 20 % disorder, 1 % stables, 10,000 live events; R0-R2 on the same events in order. One
core. Target: R3 at least 300,000 elements/s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, zip_longest

from bench.harness import begin, bench_parser, timed
from lmerge.core.batch import Batch
from lmerge.core.comparison.cleanse import Cleanse
from lmerge.core.elements import Element
from lmerge.core.engines.selection import PYTHON
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.testing.listing import ListingR3
from lmerge.testing.streams.large_inputs import LARGE, LargeInputs

REPEATS = 5
PROPERTIES = {
    "r0": ("insert-only", "strictly-ordered"),
    "r1": ("insert-only", "ordered", "deterministic-ties"),
    "r2": ("insert-only", "ordered", "key"),
    "r3": ("key",),
    "r3-": ("key",),
    "r4": (),
}


def arrivals(inputs: list[list[Batch]]) -> list[tuple[str, Batch]]:
    """Return the batches of all inputs, in turns."""
    turns = zip_longest(*([(str(at), batch) for batch in batches] for at, batches in enumerate(inputs)))
    return [item for item in chain.from_iterable(turns) if item is not None]


def run_merge(algorithm: str, order: list[tuple[str, Batch]]) -> None:
    merge = Merge(MergeConfig(algorithm, track_live=False, engine=PYTHON))
    for name in sorted({name for name, _ in order}):
        merge.attach(name, PROPERTIES[algorithm])
    for name, batch in order:
        assert not merge.apply(name, batch).detached


def run_cleanse(order: list[tuple[str, Batch]]) -> None:
    merge = Merge(MergeConfig("r1", track_live=False, engine=PYTHON))
    cleansers = {name: Cleanse(name) for name, _ in order}
    for name in sorted(cleansers):
        merge.attach(name, PROPERTIES["r1"])
    for name, batch in order:
        assert not merge.apply(name, cleansers[name].apply(batch)).detached


def run_listing(order: list[tuple[int, list[Element]]]) -> None:
    twin = ListingR3()
    for at, elements in order:
        for element in elements:
            twin.apply(at, element)


def main() -> None:
    quick = bench_parser(__doc__, "core_r3", "a tenth of the events, once").parse_args().quick
    part = 10 if quick else 1
    report = begin((__doc__ or "").splitlines()[0])
    rates = {}

    def measure(name: str, order: list[tuple[str, Batch]], work: Callable[[], None], repeats: int = REPEATS) -> None:
        repeats = 1 if quick else repeats
        count = sum(batch.count for _, batch in order)
        rates[name] = report.add(name, [count / timed(work) for _ in range(repeats)], "elements/s")

    disordered = arrivals(LargeInputs(replace(LARGE, events=100_000 // part)).batches())
    ordered = arrivals(LargeInputs(replace(LARGE, events=100_000 // part, displaced=0.0)).batches())
    revised = arrivals(LargeInputs(replace(LARGE, events=100_000 // part, revised=0.2)).batches())
    for algorithm in ("r0", "r1", "r2"):
        measure(f"{algorithm}, in order", ordered, lambda a=algorithm: run_merge(a, ordered))  # type: ignore[misc]
    for algorithm in ("r3", "r4"):
        measure(f"{algorithm}, 20 % disorder", disordered, lambda a=algorithm: run_merge(a, disordered))  # type: ignore[misc]
        measure(f"{algorithm}, and 20 % of events revised", revised, lambda a=algorithm: run_merge(a, revised))  # type: ignore[misc]
    small = arrivals(LargeInputs(replace(LARGE, events=40_000 // part)).batches())
    elements = [(int(name), list(batch.elements())) for name, batch in small]
    measure("r3, short run", small, lambda: run_merge("r3", small))
    measure("r3- (an index per input), short run", small, lambda: run_merge("r3-", small), 3)
    measure("cleanse + r1, short run", small, lambda: run_cleanse(small), 3)
    measure("the paper's listing of r3, short run", small, lambda: run_listing(elements), 3)
    listing = rates["the paper's listing of r3, short run"].median
    report.note(f"r3 / listing = {rates['r3, short run'].median / listing:.1f}, both on the short run of this process")
    r3 = rates["r3, 20 % disorder"].median
    report.note(f"target 300,000 elements/s for r3: {'reached' if r3 >= 300_000 else 'MISSED'} ({r3:,.0f})")
    if not quick:
        report.save("core_r3")


if __name__ == "__main__":
    main()
