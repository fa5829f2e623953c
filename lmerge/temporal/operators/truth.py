"""What a predicate may return: True, False, or None, which is false as in SQL."""

from __future__ import annotations

from typing import Any

from lmerge.temporal.errors import ModuleViolation
from lmerge.temporal.values import Values


def is_kept(value: Any, name: str, shown: str, row: Values) -> bool:
    """Return whether a predicate is true. Raises ModuleViolation for what is no truth value, such as a number."""
    if value is True:
        return True
    if value is False or value is None:
        return False
    raise ModuleViolation(f"{name}: {shown} gave {value!r} for the row {row}, which is no truth value")
