"""What Spark's Python workers cost a small batch: long garbage collections, and waits for delayed acknowledgements.

Spark's daemon makes each worker that it keeps collect garbage after every task. The collection visits all loaded
objects, those of Arrow, gRPC and Spark itself. That takes 10 to 20 ms for each worker, on cores that Spark needs for
the end of the batch.

Spark talks to its workers over TCP, unless it is told to use Unix sockets. The JVM writes a task in pieces, without
TCP_NODELAY. So its second small piece waits until the worker's machine acknowledges the first, which Linux delays by 40
ms. A worker can only change its own side: with TCP_QUICKACK it acknowledges at once.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import stat
from itertools import count
from pathlib import Path
from typing import Final

# In its first task a worker is still loading modules.
_FREEZES_AT: Final = 1
_OPEN_FILES: Final = Path("/proc/self/fd")
_seen: Final = count()


def freeze_loaded() -> None:
    """Exclude all objects loaded by the second task from later collections. Call this once a task."""
    if next(_seen) == _FREEZES_AT:
        gc.collect()
        gc.freeze()


def begin_task() -> None:
    """Do what a task of any kind needs at its start. Call this once a task."""
    freeze_loaded()
    acknowledge_at_once()


def acknowledge_at_once() -> int:
    """Make this process acknowledge at once what comes over its TCP connections. Return the number of connections.

    The option lasts until the kernel finds a conversation going both ways. So call this at the start of each task. It
    does nothing where there is no such option or no /proc.
    """
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None or not _OPEN_FILES.exists():
        return 0
    changed = 0
    for name in os.listdir(_OPEN_FILES):
        with contextlib.suppress(OSError):  # it is closed by now, or no TCP connection
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as connection:
                    connection.setsockopt(socket.IPPROTO_TCP, option, 1)
                changed += 1
    return changed
