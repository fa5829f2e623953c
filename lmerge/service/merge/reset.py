"""Reset: begins a new epoch of a merge that is spoiled, or whose stable point is so far ahead that it cannot go on.

The merge begins again, empty: without events, schema, inputs, fenced incarnations and quarantined names. Its store is
emptied in one transaction, which also writes the number of the new epoch. A store that could not be opened is deleted.

    publishers     end with UNAVAILABLE, and attach again by themselves, with their live events
    subscribers    end with MergeReset: what they have read does not go on
    tokens         of another epoch are refused with MergeReset, whatever else the request allows

Epochs are numbers that only grow. The default is the time in seconds, so that the servers of a merge, and a server
whose store was deleted, need not have an earlier number. An administrator who resets a merge on several servers gives
the same number to all.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from lmerge import clock
from lmerge.errors import MergeReset, Unavailable, UsageError
from lmerge.service import log
from lmerge.wire.token import EPOCH_MAX

if TYPE_CHECKING:
    from lmerge.service.merge.hub import Hub

_NO_REASON: Final = "asked for by an administrator"


async def begin_epoch(hub: Hub, epoch: int, reason: str, caller: str) -> int:
    """Reset the merge of ``hub``, for ``caller``. Return the number of the new epoch when it is durable.

    ``epoch`` 0: take the number from the clock. Raises UsageError.
    """
    return await hub.task.settled(lambda: _reset(hub, epoch, reason or _NO_REASON, caller))


def _reset(hub: Hub, epoch: int, reason: str, caller: str) -> int:
    state = hub.state
    before = state.epoch
    epoch = epoch or max(clock.wall_us() // 1_000_000, before + 1)
    if not before < epoch <= EPOCH_MAX:
        raise UsageError(
            f"merge {hub.name!r} cannot begin epoch {epoch}: it is in epoch {before}, and a new one is above that, "
            f"up to {EPOCH_MAX}"
        )
    what = f"merge {hub.name!r} was reset ({reason}): epoch {epoch} of it has begun, empty"
    log.event(
        logging.WARNING,
        "merge reset",
        merge=hub.name,
        epoch=epoch,
        before=before,
        caller=caller,
        reason=reason,
        stable_point=state.merge.stable_point,
        inputs=len(state.observed.inputs),
        subscribers=len(state.subscribers),
    )
    hub.beginnings.reset(
        epoch,
        MergeReset(f"{what}; what was read before does not go on, so subscribe without a token"),
        Unavailable(f"{what}; attach again"),
    )
    return epoch
