"""The whole check of a tree: its operators are judged, and on the engine the relations of how it runs must hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lmerge.testing.checking.engine_relations import OF_ENGINE
from lmerge.testing.checking.relations import check_tree
from lmerge.testing.checking.tree_verdict import TreeVerdict, check
from lmerge.testing.judging.verdict import Judge
from lmerge.testing.systems.engine import EngineSystem
from lmerge.testing.systems.inputs import TreeInputs, inputs_of
from lmerge.testing.systems.system import TIMEOUT_S, System
from lmerge.testing.transforming.concrete import ConcreteTree


def check_fully(
    tree: ConcreteTree,
    system: System,
    judge: Judge,
    inputs: TreeInputs | None = None,
    timeout_s: float = TIMEOUT_S,
    relations: Sequence[str] = tuple(OF_ENGINE),
) -> TreeVerdict:
    """Run a tree on a system and judge it; where nothing is wrong on the engine, check its relations as well.

    ``inputs``: others than those that the tree states. ``relations``: which ones are checked.
    """
    given = inputs_of(tree) if inputs is None else inputs
    verdict = check(tree, system, judge, given, timeout_s)
    if verdict.is_bad or verdict.run is None or not isinstance(system, EngineSystem):
        return verdict
    broken = next((one for one in check_tree(tree, given, relations) if one.is_bad), None)
    return verdict if broken is None else replace(verdict, failure=str(broken), relation=broken.name)
