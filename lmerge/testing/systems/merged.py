"""A merge of several systems as a system under test: each runs the query, and their outputs are merged.

The merge is checked after every step (``lmerge.testing.oracle``): the invariants of its algorithm, a legal output, and
that the output is compatible with all inputs so far (C1-C3). Inputs are killed at points that are drawn from the seed
of the tree; one lives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from lmerge.core.elements import Element
from lmerge.errors import UsageError
from lmerge.testing.merges.replicas import WrongMerge, drawn_kills, merged, promised_by_all
from lmerge.testing.systems.engine import EngineSystem
from lmerge.testing.systems.inputs import TreeInputs
from lmerge.testing.systems.system import TIMEOUT_S, EmittedBatch, System, SystemFailure, SystemRun
from lmerge.testing.transforming.concrete import ConcreteTree


class ImplementationSystem:
    """The engine in one implementation, whatever the tree has chosen."""

    def __init__(self, implementation: str) -> None:
        self.name = implementation
        self._engine = EngineSystem()

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the engine."""
        return self._engine.versions()

    def run(self, tree: ConcreteTree, inputs: TreeInputs, timeout_s: float = TIMEOUT_S) -> SystemRun:
        """Run the tree. Raises SystemFailure."""
        return self._engine.run(replace(tree, run={**tree.run, "implementation": self.name}), inputs, timeout_s)


class MergedSystem:
    """Merges the outputs of systems, by default of the engine in both of its implementations.

    Raises UsageError for fewer than two, or two of one name.
    """

    def __init__(self, systems: Sequence[System] = (), name: str = "merge") -> None:
        chosen = list(systems) or [ImplementationSystem("python"), ImplementationSystem("native")]
        names = [one.name for one in chosen]
        if len(set(names)) < max(2, len(names)):
            raise UsageError(f"a merge of {', '.join(names)}: it has two systems or more, of different names")
        self.name = name
        self._systems = chosen

    def versions(self) -> Mapping[str, str]:
        """Return the versions of all systems."""
        return {f"{one.name}: {what}": found for one in self._systems for what, found in one.versions().items()}

    def run(self, tree: ConcreteTree, inputs: TreeInputs, timeout_s: float = TIMEOUT_S) -> SystemRun:
        """Run all systems and merge what they emit. Raises SystemFailure, which names the system."""
        random = Random(f"merge {tree.seed} {tree.row}")
        runs: dict[str, SystemRun] = {}
        for one in self._systems:
            try:
                runs[one.name] = one.run(tree, inputs, timeout_s)
            except SystemFailure as problem:
                raise SystemFailure(f"{one.name}: {problem}") from None
        outputs = {}
        for result, node in tree.outputs.items():
            streams = {name: _elements(name, result, run) for name, run in runs.items()}
            killed = drawn_kills(random, {name: len(stream) for name, stream in streams.items()})
            try:
                found = merged(random, streams, killed, promised_by_all([node]))
            except WrongMerge as problem:
                who = f"input {problem.replica!r}" if problem.replica else "the merge"
                raise SystemFailure(f"result {result!r}, {who}: {problem}") from None
            # A merge takes no input of the query, so all of the inputs have come when it begins.
            outputs[result] = [EmittedBatch(len(inputs.batches), [element]) for element in found.elements]
        return SystemRun(outputs)


MERGED: Final = MergedSystem()


def _elements(name: str, result: str, run: SystemRun) -> list[Element]:
    if result not in run.outputs:
        raise SystemFailure(f"{name}: there is no result {result!r:.64}")
    return [element for batch in run.outputs[result] for element in batch.elements]
