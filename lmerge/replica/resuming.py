"""Where a run goes on that begins with a checkpoint: what each source has of the time since then.

A source that can seek goes on where the run has stopped. A socket cannot: what it sent meanwhile is lost.

    the plan has taken up to 743      the run is stopped      --join-at 800: the socket has all that ends from 800 on

The run goes on with the state of the plan, and its result is right for what needs no event of the socket that ends
before 800. That point lies behind all that was taken. So an event that the socket sends twice is not counted twice in
a result that is claimed. Only points have an end that tells this: an interval that was taken may reach beyond 800 and
come again, so a socket of intervals allows no checkpoint.

A source of which nothing was taken begins anew, and may have less than it had: a merge goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.errors import UsageError
from lmerge.replica.feeds import SourceFeed
from lmerge.replica.sources.declared import PhysicalSource
from lmerge.temporal.entrance import StreamEntrance


def check_checkpoints(sources: Mapping[str, PhysicalSource]) -> None:
    """Raise UsageError if a run of these sources cannot go on from a checkpoint."""
    for name, source in sources.items():
        if source.no_checkpoint:
            raise UsageError(f"source {name!r} ({source.where}) allows no checkpoint: {source.no_checkpoint}")


def check_joins(feed: SourceFeed, entrance: StreamEntrance, join_at: int | None) -> None:
    """Raise UsageError if a source lacks what came since the checkpoint, and ``join_at`` does not lie behind it."""
    if feed.source.can_seek or entrance.live.stable == INF:
        return
    source, least = f"source {feed.name!r} ({feed.source.where})", entrance.mark + 2
    lost = f"{source} cannot seek, so what it sent since the checkpoint is lost"
    if join_at is None:
        raise UsageError(f"{lost}: give --join-at, a time from which it has every event that ends then or later")
    if entrance.mark > NEG_INF and join_at < least:
        raise UsageError(
            f"{lost}: it was read up to {show_time(entrance.mark)}, and --join-at is {show_time(join_at)}; give "
            f"{show_time(least)} or later, from where it has every event again"
        )
