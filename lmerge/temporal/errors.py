"""Errors of plans, below the project's error tree (``lmerge.errors``)."""

from __future__ import annotations

from lmerge.errors import LmergeError, UsageError


class PlanError(UsageError):
    """A plan that cannot be built: the message names the operator, and the column or policy that does not fit."""


class ModuleViolation(UsageError):
    """A module broke what its kind or its declaration promises. The message names the module and the window."""


class OperatorFailed(LmergeError):
    """An operator raised what is no error of lmerge's tree, which is the cause: a fault of lmerge. It names both."""


class SnapshotDamaged(UsageError):
    """A snapshot that cannot be read: it is cut short, changed, of another version, or none at all."""
