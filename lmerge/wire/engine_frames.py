"""Chooses the frames of an engine: the one module that imports both kinds.

Called by all that read or write messages with batches. The compiled core is imported only when it is asked for.
"""

from __future__ import annotations

from lmerge.core.engines.selection import NATIVE
from lmerge.wire.frames import PYTHON_FRAMES, Frames


def frames_of(engine: str) -> Frames:
    """Return the frames of ``python`` or ``native``."""
    if engine != NATIVE:
        return PYTHON_FRAMES
    from lmerge.wire.native_frames import NATIVE_FRAMES

    return NATIVE_FRAMES
