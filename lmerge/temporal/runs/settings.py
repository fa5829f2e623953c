"""What sources give to a run, and how they enter it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lmerge.temporal.changes import Change
from lmerge.temporal.entrance import LatePolicy, ProgressRule

Item: TypeAlias = Change | int
"""A change of a source's table, or a stable point."""


@dataclass(frozen=True)
class SourceSettings:
    """How a source enters. ``rule`` None: it declares its stable points itself."""

    rule: ProgressRule | None = None
    late: LatePolicy = LatePolicy.FAIL

    def fields(self) -> list[Any]:
        """Return the settings as plain values."""
        rule = self.rule
        return [None if rule is None else [rule.delay, rule.every, rule.events], str(self.late)]

    @classmethod
    def of_fields(cls, fields: Sequence[Any]) -> SourceSettings:
        """Return the settings of ``fields``."""
        rule, late = fields
        return cls(None if rule is None else ProgressRule(*rule), LatePolicy(late))

    def __str__(self) -> str:
        if self.rule is None:
            return f"stable points of its own, late: {self.late}"
        return f"delay={self.rule.delay}, every={self.rule.every}, events={self.rule.events}, late: {self.late}"
