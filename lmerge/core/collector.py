"""The cyclic garbage collector while large states are built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Build many objects of which none is garbage: the collector would scan them again and again.

    The collector is the process's, so others do without it for that time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
