"""Whether `lmerge demo` has a replica in Spark, and why not.

Called by `demo`. Spark is a large thing to ask for, so the demo goes on without it and says so, unless it is told that
it must be there.
"""

from __future__ import annotations

from enum import Enum

from lmerge.errors import UsageError
from replicas.spark.session import require_spark


class Spark(str, Enum):
    """What the user wants."""

    AUTO = "auto"
    YES = "yes"
    NO = "no"


def without_spark(wanted: Spark) -> str:
    """Why there is no replica in Spark, in words for the user; empty if there is one. Raises UsageError if there must
    be one and cannot.
    """
    if wanted is Spark.NO:
        return "no replica in Spark, as told by --spark no"
    try:
        require_spark()
    except UsageError as problem:
        if wanted is Spark.YES:
            raise
        return f"no replica in Spark: {problem}"
    return ""
