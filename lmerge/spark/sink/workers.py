"""What a process that Spark keeps for Python owes the next task.

Spark's daemon has each worker that it keeps collect garbage after every task. That looks at everything that is loaded,
Arrow, gRPC and Spark itself: 10 to 20 ms for each worker, on cores that Spark wants for the end of the batch.
"""

from __future__ import annotations

import gc
from itertools import count
from typing import Final

# The first time a worker is still loading.
_FREEZES_AT: Final = 1
_seen: Final = count()


def freeze_loaded() -> None:
    """Call once a task: what the process has loaded by the second one is not looked at by any later collection."""
    if next(_seen) == _FREEZES_AT:
        gc.collect()
        gc.freeze()
