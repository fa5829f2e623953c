"""Keeps the garbage collection of Spark's Python workers short.

Spark's daemon makes each worker that it keeps collect garbage after every task. The collection visits all loaded
objects, those of Arrow, gRPC and Spark itself. That takes 10 to 20 ms for each worker, on cores that Spark needs for
the end of the batch.
"""

from __future__ import annotations

import gc
from itertools import count
from typing import Final

# In its first task a worker is still loading modules.
_FREEZES_AT: Final = 1
_seen: Final = count()


def freeze_loaded() -> None:
    """Exclude all objects loaded by the second task from later collections. Call this once a task."""
    if next(_seen) == _FREEZES_AT:
        gc.collect()
        gc.freeze()
