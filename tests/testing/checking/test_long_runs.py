"""Long runs (TESTING 2, A8, and 10): random trees of every operator, and every triple of levels; no false alarm."""

from __future__ import annotations

import os

import pytest

from lmerge.testing.checking.engine_relations import OF_ENGINE
from lmerge.testing.checking.full_checks import check_fully
from lmerge.testing.checking.session import TreeBudget, check_scenario, every_operator
from lmerge.testing.judging.verdict import Judge, Judgement
from lmerge.testing.systems.engine import EngineSystem
from lmerge.testing.transforming.transformer import RUN_LEVELS, Transformer

PARTS = 100
TREES_OF_SEED = 20
ALL_RELATIONS_EVERY = 10


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_random_trees_are_equal(part: int) -> None:
    """A8 (7): 20,000 trees for 1,000 seeds (``LMERGE_SEEDS``): SQL, rows and columns agree; some keep all relations."""
    seeds = int(os.environ.get("LMERGE_SEEDS", "1000"))
    most = max(1, seeds * TREES_OF_SEED // PARTS)
    trees = Transformer(every_operator(), 1000 + part, 2, RUN_LEVELS).trees(most)
    with Judge() as judge:
        for number, tree in enumerate(trees):
            relations = ("other-implementation",) if number % ALL_RELATIONS_EVERY else tuple(OF_ENGINE)
            verdict = check_fully(tree, EngineSystem(), judge, relations=relations)
            assert verdict.outcome is Judgement.EQUAL, str(verdict)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_all_triples_are_equal() -> None:
    with Judge() as judge:
        checked = check_scenario(every_operator(), EngineSystem(), judge, strength=3, budget=TreeBudget())
    assert not checked.bad, str(checked.bad[0])
    ledger = checked.transformer.ledger.report()
    assert not ledger["missing"], ledger["missing"][:5]
