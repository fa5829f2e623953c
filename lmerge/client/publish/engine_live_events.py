"""Chooses the live events of an engine: the one module that imports both kinds.

Called by ``outbox`` and the spool of Spark. The compiled core is imported only when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmerge.client.publish.live_events import LiveEvents
from lmerge.core.engines import selection

if TYPE_CHECKING:
    from lmerge.client.publish.native_live_events import NativeLiveEvents


def live_events(name: str, engine: str = selection.AUTO) -> LiveEvents | NativeLiveEvents:
    """Return the live events of the publisher ``name`` on an engine. Raises UsageError if the engine is not there."""
    if selection.resolve(engine) == selection.PYTHON:
        return LiveEvents(name)
    from lmerge.client.publish.native_live_events import NativeLiveEvents

    return NativeLiveEvents(name)
