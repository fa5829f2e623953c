"""Chooses the digests of an engine: the one module that imports both kinds.

Called by ``monitor`` and ``evidence``. The compiled core is imported only for a merge on the native engine.
"""

from __future__ import annotations

from lmerge.core.divergence.digests import Digests, PythonDigests
from lmerge.core.engines import selection


def digests_of(engine: str, interval: int, *, starts: bool, open_max: int) -> Digests:
    """Return empty digests for an input of a merge on ``engine`` (``python`` or ``native``)."""
    if engine == selection.NATIVE:
        from lmerge.core.divergence.native_digests import NativeDigests

        return NativeDigests(interval, starts=starts, open_max=open_max)
    return PythonDigests(interval, starts=starts, open_max=open_max)
