"""Checks of many trees: within a budget, with progress and a ledger, until the budget or the trees are used up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic

from lmerge.testing.checking.full_checks import check_fully
from lmerge.testing.checking.tree_verdict import TreeVerdict
from lmerge.testing.intents.fluent import IntentScenario, scenario
from lmerge.testing.judging.verdict import Judge, Judgement
from lmerge.testing.systems.system import TIMEOUT_S, System
from lmerge.testing.transforming.transformer import RUN_LEVELS, Transformer


@dataclass(frozen=True)
class TreeBudget:
    """How much is tested: ``seconds`` at most, ``trees`` at most; without either, the covering array once."""

    seconds: float | None = None
    trees: int | None = None

    @property
    def is_covering(self) -> bool:
        """Whether the covering array is tested, and nothing else."""
        return self.seconds is None and self.trees is None


@dataclass
class CheckedScenario:
    """The verdicts over the trees of one scenario on one system."""

    transformer: Transformer
    system: str
    verdicts: list[TreeVerdict] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def bad(self) -> list[TreeVerdict]:
        """The verdicts that found something."""
        return [one for one in self.verdicts if one.is_bad]

    def count(self, outcome: Judgement) -> int:
        """Return how many trees had an outcome."""
        return sum(one.outcome is outcome for one in self.verdicts)


def every_operator() -> IntentScenario:
    """Return the scenario that leaves all open: any operators over two streams of any data."""
    s = scenario("every operator")
    s.left.any(s.right)
    return s


def check_scenario(
    stated: IntentScenario,
    system: System,
    judge: Judge,
    *,
    seed: int = 0,
    strength: int = 2,
    budget: TreeBudget = TreeBudget(),
    timeout_s: float = TIMEOUT_S,
    observe: Callable[[TreeVerdict], None] = lambda verdict: None,
) -> CheckedScenario:
    """Check the trees of a scenario. ``observe`` is called with each verdict.

    Raises UsageError for an intent that no tree satisfies.
    """
    began = monotonic()
    transformer = Transformer(stated, seed, strength, RUN_LEVELS)
    found = CheckedScenario(transformer, system.name)
    for tree in _within(transformer, budget, began):
        verdict = check_fully(tree, system, judge, timeout_s=timeout_s)
        found.verdicts.append(verdict)
        if verdict.outcome is not Judgement.NOT_JUDGED:
            transformer.ledger.add(tree.cell)
        observe(verdict)
    found.seconds = monotonic() - began
    return found


def _within(transformer: Transformer, budget: TreeBudget, began: float) -> Iterator:  # type: ignore[type-arg]
    if budget.is_covering:
        yield from transformer.covering_trees()
        return
    for tree in transformer.trees(budget.trees):
        if budget.seconds is not None and monotonic() - began >= budget.seconds:
            return
        yield tree
