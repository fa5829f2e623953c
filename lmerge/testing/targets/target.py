"""What a target is, and the targets by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from lmerge.temporal.plan.nodes import PlanNode
from lmerge.testing.registry import PartRegistry
from lmerge.testing.targets.plan_json import PlanJson
from lmerge.testing.targets.python_source import PythonSource


class Target(Protocol):
    """A language in which queries are written. ``name``: of the target, one of its own."""

    name: str

    def written(self, outputs: Mapping[str, PlanNode]) -> str:
        """Return a query as text. ``outputs``: its results by name. Raises UsageError for what it cannot state."""

    def read(self, text: str) -> dict[str, PlanNode]:
        """Return the plan that the text means. Raises an LmergeError if it means none."""


TARGETS: Final[PartRegistry[Target]] = PartRegistry(
    "lmerge.testing.targets", "target", {"json": PlanJson(), "python": PythonSource()}
)
