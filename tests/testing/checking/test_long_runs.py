"""Long runs (TESTING 2, A8, and 10): random trees of every operator, and every triple of levels; no false alarm."""

from __future__ import annotations

import os

import pytest

from lmerge.testing.checking.session import TreeBudget, check_scenario, every_operator
from lmerge.testing.judging.verdict import Judge, Judgement
from lmerge.testing.systems.engine import EngineSystem

PARTS = 100
TREES_OF_SEED = 20


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_random_trees_are_equal(part: int) -> None:
    """20,000 trees for 1,000 seeds (``LMERGE_SEEDS``)."""
    seeds = int(os.environ.get("LMERGE_SEEDS", "1000"))
    most = max(1, seeds * TREES_OF_SEED // PARTS)
    with Judge() as judge:
        budget = TreeBudget(trees=most)
        checked = check_scenario(every_operator(), EngineSystem(), judge, seed=1000 + part, budget=budget)
    assert not checked.bad, str(checked.bad[0])
    assert checked.count(Judgement.EQUAL) == most


@pytest.mark.long
def test_all_triples_are_equal() -> None:
    with Judge() as judge:
        checked = check_scenario(every_operator(), EngineSystem(), judge, strength=3, budget=TreeBudget())
    assert not checked.bad, str(checked.bad[0])
    ledger = checked.transformer.ledger.report()
    assert not ledger["missing"], ledger["missing"][:5]
