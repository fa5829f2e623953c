"""Whole systems, one seed each: every subscriber has read what was published, whatever faults there were."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmerge.testing.sim.families import FAMILIES, PLAIN
from lmerge.testing.sim.run import run
from lmerge.testing.sim.scenario import FAULTS, scenario

SEEDS = 240
SEEDS_BY_DEFAULT = 160  # the others repeat what these find; the long run has them
CHUNK = 20
HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def kept_seeds() -> dict[str, list[int]]:
    """Read seeds.txt by family: a family, a number, then a description. Without a family it is the plain one."""
    kept: dict[str, list[int]] = {family: [] for family in FAMILIES}
    for line in (HERE / "seeds.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            first, second = line.split()[:2]
            family, seed = (PLAIN, first) if first.isdigit() else (first, second)
            kept[family].append(int(seed))
    return kept


def assert_good(seeds: list[int] | range, family: str = PLAIN) -> None:
    results = (run(seed, family=family) for seed in seeds)
    reports = [result.report() for result in results if not result.is_good]
    assert not reports, "\n\n".join(reports[:2])


@pytest.mark.parametrize(
    "first",
    [
        first if first < SEEDS_BY_DEFAULT else pytest.param(first, marks=pytest.mark.long)
        for first in range(0, SEEDS, CHUNK)
    ],
)
def test_nothing_is_lost_or_doubled_or_contradicted(first: int) -> None:
    assert_good(range(first, first + CHUNK))


@pytest.mark.parametrize(
    ("family", "seeds"), [pytest.param(family, seeds, id=family) for family, seeds in kept_seeds().items() if seeds]
)
def test_seeds_that_have_found_something_find_nothing_any_more(family: str, seeds: list[int]) -> None:
    assert_good(seeds, family)


@pytest.mark.long
@pytest.mark.parametrize("part", range(8))
def test_nothing_goes_wrong_over_many_seeds(part: int) -> None:
    count = int(os.environ.get("LMERGE_SEEDS", "1000"))
    assert_good(range(1_000_000 + part, 1_000_000 + count, 8))


def test_the_same_seed_is_the_same_run() -> None:
    for seed in (3, 5, 8):
        assert run(seed).digest == run(seed).digest


def test_a_run_does_not_depend_on_the_hash_seed_or_the_process() -> None:
    code = "import sys; from lmerge.testing.sim.run import run; print([run(int(s)).digest for s in sys.argv[1:]])"
    seeds = [str(seed) for seed in range(12)]
    output = {
        subprocess.run(
            [sys.executable, "-c", code, *seeds],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(output) == 1


def test_the_seeds_of_the_suite_use_every_fault_case_and_engine() -> None:
    plans = [scenario(seed) for seed in range(SEEDS)]
    assert {kind for plan in plans for kind in (fault.kind for fault in plan.faults)} == set(FAULTS)
    assert {plan.case for plan in plans} == {"r0", "r1", "r2", "r3", "r4"}
    assert {plan.servers for plan in plans} == {1, 2}
    assert {durable for plan in plans for durable in plan.durable} == {True, False}
    assert {plan.feedback_lag is None for plan in plans} == {True, False}
