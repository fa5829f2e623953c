"""What a system under test is, and what a run of it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from lmerge.core.elements import Element
from lmerge.testing.judging.operator_run import OperatorRun
from lmerge.testing.systems.inputs import TreeInputs
from lmerge.testing.transforming.concrete import ConcreteTree

TIMEOUT_S: Final = 60.0


class SystemFailure(Exception):
    """A system gave no result: it died, hung, raised, or wrote what is no stream. The message names which."""


@dataclass(frozen=True)
class EmittedBatch:
    """A batch of a result. ``step``: how many batches of the inputs had come by then, as far as is known."""

    step: int
    elements: Sequence[Element]


@dataclass(frozen=True)
class SystemRun:
    """What a run gave: the batches of each result by name; of each operator, if the system can be looked into.

    ``log``: what it wrote beside its results, such as its standard error.
    """

    outputs: Mapping[str, Sequence[EmittedBatch]]
    operators: Sequence[OperatorRun] = field(default_factory=tuple)
    log: str = ""


class System(Protocol):
    """A system under test."""

    name: str

    def versions(self) -> Mapping[str, str]:
        """Return the versions of what runs, by name."""

    def run(self, tree: ConcreteTree, inputs: TreeInputs, timeout_s: float = TIMEOUT_S) -> SystemRun:
        """Run a query over inputs until they end. Raises SystemFailure."""
