"""What plans ask of users' functions: that one result belongs to one row, which adjusts and replicas rely on.

An adjust computes the row of its event again. With another result it would be an adjust of an event that was never
emitted, and replicas of the plan would differ.
"""

from __future__ import annotations

from collections.abc import Iterable

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.tree import Node, UserCall, walk


def check_deterministic(title: str, nodes: Iterable[Node]) -> None:
    """Raise PlanError, which begins with ``title``, for a function that is declared not deterministic."""
    for node in nodes:
        for one in walk(node):
            if isinstance(one, UserCall) and not one.function.deterministic:
                raise PlanError(
                    f"{title}: function {one.function.name!r} version {one.function.version} is declared not "
                    "deterministic: an adjust of an event would give another row, and replicas of a plan would differ"
                )
