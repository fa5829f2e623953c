"""How long does `lmerge test` take for all pairs of levels, and how many trees a second does one core verify?

The scenario that leaves all open. Measured: computing the covering array of pairs; generating the inputs of its trees,
running them on the engine and judging every operator by SQL after every stable point; the same with the relations of
how the engine runs, as `lmerge test` does. One process. Targets: the array in under 2 s, all pairs in at most 60 s with
the relations, and at least 10 trees a second and core verified, DuckDB included.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import duckdb

from bench.harness import BenchReport, begin, bench_parser, timed
from lmerge.testing.checking.full_checks import check_fully
from lmerge.testing.checking.session import every_operator
from lmerge.testing.checking.tree_verdict import TreeVerdict, check
from lmerge.testing.judging.verdict import Judge
from lmerge.testing.systems.engine import EngineSystem
from lmerge.testing.transforming.concrete import ConcreteTree
from lmerge.testing.transforming.covering import covering_rows
from lmerge.testing.transforming.transformer import RUN_LEVELS, Transformer

REPEATS = 3
QUICK = 20
ARRAY_S, PAIRS_S, TREES_S = 2.0, 60.0, 10.0


def array(seed: int) -> None:
    """Compute the covering array of pairs."""
    list(covering_rows(Transformer(every_operator(), seed, 2, RUN_LEVELS).space, 2, seed))


def verify(trees: Sequence[ConcreteTree], is_full: bool) -> None:
    """Check trees, which must all be equal."""
    system = EngineSystem()
    with Judge() as judge:
        for tree in trees:
            verdict: TreeVerdict = check_fully(tree, system, judge) if is_full else check(tree, system, judge)
            assert not verdict.is_bad, str(verdict)


def main() -> None:
    parser = bench_parser(__doc__, "scenarios", f"{QUICK} trees, once")
    options = parser.parse_args()
    report: BenchReport = begin((__doc__ or "").splitlines()[0])
    report.note(f"DuckDB {duckdb.__version__}; load {os.getloadavg()[0]:.1f}")
    repeats, most = (1, QUICK) if options.quick else (REPEATS, None)
    seconds: dict[str, list[float]] = {"array": [], "judged": [], "full": []}
    rates: list[float] = []
    for seed in range(repeats):
        seconds["array"].append(timed(partial(array, seed)))
        trees = list(Transformer(every_operator(), seed, 2, RUN_LEVELS).covering_trees())[:most]
        seconds["judged"].append(timed(partial(verify, trees, False)))
        seconds["full"].append(timed(partial(verify, trees, True)))
        rates.append(len(trees) / seconds["judged"][-1])
    found = [
        (report.add("the covering array of pairs", seconds["array"], "s").median <= ARRAY_S, f"{ARRAY_S:g} s"),
        (report.add("trees verified", rates, "trees/s").median >= TREES_S, f"{TREES_S:g} trees/s"),
        (report.add("all pairs, with relations", seconds["full"], "s").median <= PAIRS_S, f"{PAIRS_S:g} s"),
    ]
    report.note(f"{len(trees)} trees; " + "; ".join(f"{at}: {'reached' if ok else 'MISSED'}" for ok, at in found))
    if not options.quick:
        report.save("scenarios")


if __name__ == "__main__":
    main()
