"""Whether `lmerge demo` has a replica in Spark, and if not, why.

Called by `demo`. Spark is a large dependency, so the demo runs without it and reports that, unless ``--spark yes``
requires it.
"""

from __future__ import annotations

from enum import Enum

from lmerge.errors import UsageError
from lmerge_replicas.spark.session import require_spark


class Spark(str, Enum):
    """Values of ``--spark``."""

    AUTO = "auto"
    YES = "yes"
    NO = "no"


def without_spark(choice: Spark) -> str:
    """Return why there is no replica in Spark; empty if there is one.

    Raises UsageError if one is required and cannot run.
    """
    if choice is Spark.NO:
        return "no replica in Spark: --spark no"
    try:
        require_spark()
    except UsageError as problem:
        if choice is Spark.YES:
            raise
        return f"no replica in Spark: {problem}"
    return ""
