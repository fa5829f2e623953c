"""What cannot be judged: it is reported as such, and never as passed."""

from __future__ import annotations

from lmerge.errors import UsageError


class NotJudged(UsageError):
    """An operator has no query, or its result is not decided by its table. The message names which and why."""
