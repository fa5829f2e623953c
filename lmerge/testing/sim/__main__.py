"""``python -m lmerge.testing.sim --seed N``: run seeds of the simulation."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from lmerge.testing.sim.families import FAMILIES, PLAIN
from lmerge.testing.sim.run import Result, run


def main() -> int:
    """Run the command. Returns 1 if a seed has failed."""
    parser = argparse.ArgumentParser(prog="python -m lmerge.testing.sim", description=main.__doc__)
    parser.add_argument("--seed", type=int, help="run one seed")
    parser.add_argument("--seeds", help="run many: FIRST:END")
    parser.add_argument("--family", choices=FAMILIES, default=PLAIN, help="what goes wrong besides")
    parser.add_argument("--kinds", help="kinds of that family, KIND,KIND...; default: all of them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="print the whole trace")
    options = parser.parse_args()
    kinds = tuple(options.kinds.split(",")) if options.kinds else None
    if options.seeds:
        first, end = map(int, options.seeds.split(":"))
        return _many(range(first, end), options.jobs, partial(run, family=options.family, kinds=kinds))
    result = run(options.seed or 0, _print if options.verbose else None, options.family, kinds)
    _print(_summary(result) if result.is_good else result.report())
    return 0 if result.is_good else 1


def _many(seeds: range, jobs: int, run_one: Callable[[int], Result]) -> int:
    started = time.perf_counter()
    failed = done = 0
    with ProcessPoolExecutor(jobs) as pool:
        for result in pool.map(run_one, seeds, chunksize=8):
            done += 1
            if not result.is_good:
                failed += 1
                _print(f"seed {result.scenario.seed}: {result.problems[0]}")
            if done % 500 == 0:
                _print(f"{done} of {len(seeds)} seeds, {failed} failed, {_ms_each(started, done):.0f} ms each")
    _print(f"{done} seeds, {failed} failed, {_ms_each(started, done):.0f} ms each")
    return 1 if failed else 0


def _ms_each(started: float, done: int) -> float:
    return 1000 * (time.perf_counter() - started) / max(1, done)


def _summary(result: Result) -> str:
    return (
        f"seed {result.scenario.seed} is good: {result.scenario}\n"
        f"{result.virtual_s:.1f} virtual seconds, {result.steps} steps, {result.gaps} gaps, trace {result.digest}"
    )


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
