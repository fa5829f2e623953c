"""All operations: importing the families registers their rules."""

from __future__ import annotations

from typing import Final

from lmerge.temporal.expressions import arithmetic, casting, choosing, comparing, nested, numeric, texts, times
from lmerge.temporal.expressions.rules import OperationRule, registered_rules

FAMILIES: Final = (arithmetic, casting, choosing, comparing, nested, numeric, texts, times)

ALL_RULES: Final[dict[str, OperationRule]] = dict(registered_rules())
