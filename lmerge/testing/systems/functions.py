"""A Python callable as a system under test: a function of a batch, or an object with ``apply`` that keeps a state."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping

from lmerge.core.elements import Element
from lmerge.testing.streams.batches import InputBatch
from lmerge.testing.systems.inputs import TreeInputs
from lmerge.testing.systems.system import TIMEOUT_S, EmittedBatch, SystemFailure, SystemRun
from lmerge.testing.transforming.concrete import ConcreteTree

Apply = Callable[[InputBatch], Iterable[Element]]
"""Takes a batch of a source, and returns the elements that it emits for it, with payloads as rows of the result."""


class FunctionSystem:
    """Runs ``make()`` anew for each tree: it returns a function of batches. The result has the name ``result``."""

    def __init__(self, make: Callable[[], Apply], name: str = "function") -> None:
        self.name = name
        self._make = make

    def versions(self) -> Mapping[str, str]:
        """Return the version of Python."""
        return {"python": platform.python_version()}

    def run(self, tree: ConcreteTree, inputs: TreeInputs, timeout_s: float = TIMEOUT_S) -> SystemRun:
        """Call the function with each batch. Raises SystemFailure if it raises."""
        apply = self._make()
        found = []
        for step, batch in enumerate(inputs.batches, 1):
            try:
                elements = list(apply(batch))
            except Exception as problem:
                raise SystemFailure(f"{self.name} raised at batch {step}: {problem!r:.200}") from problem
            if elements:
                found.append(EmittedBatch(step, elements))
        return SystemRun(dict.fromkeys(tree.outputs, found))
