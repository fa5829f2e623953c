"""The pytest plugin: files ``*.scenario.json`` are tests, and ``@scenarios(...)`` makes one test of each tree.

It is installed with lmerge (entry point group ``pytest11``), costs nothing where it is not used, and is safe under
xdist: every worker makes the same trees from the same seed::

    @lmerge.testing.scenarios(late_flights(), trees=50)
    def test_late_flights(lmerge_verdict: TreeVerdict) -> None:
        assert not lmerge_verdict.is_bad, report(lmerge_verdict)

``lmerge_verdict`` is that over the test's tree on the engine; a test that takes ``lmerge_tree`` runs it as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from lmerge.testing.checking.tree_verdict import TreeVerdict
    from lmerge.testing.intents.fluent import IntentScenario
    from lmerge.testing.judging.verdict import Judge
    from lmerge.testing.systems.system import System
    from lmerge.testing.transforming.concrete import ConcreteTree

SUFFIX: Final = ".scenario.json"


def scenarios(
    *stated: IntentScenario, trees: int | None = None, seed: int = 0, strength: int = 2
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that runs a test for each tree of scenarios.

    ``trees``: how many of each; without it the covering array. ``seed``, ``strength``: as in ``lmerge test``.
    """
    from lmerge.testing.transforming.transformer import Transformer

    found: list[ConcreteTree] = []
    for one in stated:
        transformer = Transformer(one, seed, strength)
        found += transformer.covering_trees() if trees is None else transformer.trees(trees)
    return pytest.mark.parametrize("lmerge_tree", found, ids=[one.name for one in found])


@pytest.fixture(scope="session")
def lmerge_judge() -> Iterator[Judge]:
    """Yield a judge of operators, one for the session."""
    from lmerge.testing.judging.verdict import Judge

    with Judge() as judge:
        yield judge


@pytest.fixture
def lmerge_verdict(lmerge_tree: ConcreteTree, lmerge_judge: Judge) -> TreeVerdict:
    """Return the verdict over the tree of a test on the engine."""
    from lmerge.testing.checking.full_checks import check_fully
    from lmerge.testing.systems.engine import EngineSystem

    return check_fully(lmerge_tree, EngineSystem(), lmerge_judge)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect files of scenarios and saved cases."""
    if not file_path.name.endswith(SUFFIX):
        return None
    collected: pytest.Collector = ScenarioFile.from_parent(parent, path=file_path)
    return collected


class ScenarioFile(pytest.File):
    """A file of a scenario, with a test for each tree of its covering array; or of a case, with one test."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the tests. A file that cannot be read is an error of the collection."""
        from lmerge.errors import LmergeError
        from lmerge.testing.evidence.cases import SavedCase, load
        from lmerge.testing.systems.registered import SYSTEMS
        from lmerge.testing.transforming.transformer import Transformer

        try:
            loaded = load(self.path)
            if isinstance(loaded, SavedCase):
                system = SYSTEMS.find(loaded.system)
                yield ScenarioItem.made(self, "case", loaded.tree, system, loaded.inputs)
                return
            trees = Transformer(loaded).covering_trees()
        except LmergeError as problem:
            raise self.CollectError(str(problem)) from None
        for tree in trees:
            yield ScenarioItem.made(self, str(tree.row), tree, SYSTEMS.find("engine"), None)


class ScenarioItem(pytest.Item):
    """A test of one tree."""

    tree: ConcreteTree
    system: System
    inputs: Any

    @classmethod
    def made(cls, parent: ScenarioFile, name: str, tree: ConcreteTree, system: System, inputs: Any) -> ScenarioItem:
        """Return the test of a tree. ``inputs``: those of a case; None: those that the tree states."""
        item: ScenarioItem = cls.from_parent(parent, name=name)
        item.tree, item.system, item.inputs = tree, system, inputs
        return item

    def runtest(self) -> None:
        """Run the tree, and fail with the report."""
        from lmerge.testing.checking.full_checks import check_fully
        from lmerge.testing.evidence.report import report
        from lmerge.testing.judging.verdict import Judge, Judgement

        with Judge() as judge:
            found = check_fully(self.tree, self.system, judge, self.inputs)
        if found.is_bad:
            pytest.fail(report(found), pytrace=False)
        if found.outcome is Judgement.NOT_JUDGED:
            pytest.skip(str(found))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the test is."""
        return self.path, 0, f"{self.path.name}: {self.name}"
