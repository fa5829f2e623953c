"""Ends the input that takes a merge above its limit of live events.

Called by the server once in each check interval, for all merges. ``payload_limit`` does the same for bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from lmerge.errors import LimitExceeded
from lmerge.service import log
from lmerge.service.merge.hub import Hub
from lmerge.wire.generated import lmerge_pb2 as pb

# A merge that stays above its limit loses its next input when it has grown by this share of the limit. Only an input
# that has brought as much is ended.
GROWTH_SHARE: Final = 1 / 8


class Growth:
    """Finds the input that takes a merge above its limit of live events.

    Replicas deliver the same events, so no input can be blamed for the number alone. The input to end is the one that
    brought most of what came since the merge was last at half its limit or below. The others go on. What only the ended
    one delivered is removed at the next stable of another (V.C). A merge that is simply larger than its limit loses one
    input after another, each with the reason, until it is small enough or has no input left. The server and its other
    merges go on.
    """

    def __init__(self, live_events_max: int) -> None:
        self._max = live_events_max
        self._act_above = live_events_max
        self._at_ease: dict[tuple[str, int], int] = {}

    def look(self, live_events: int, brought: Mapping[tuple[str, int], int]) -> tuple[str, LimitExceeded] | None:
        """Return the input to end now, and the error; None if no input must end.

        ``brought``: by input and incarnation, the number of output elements that it was the first to cause.
        """
        if live_events <= self._max:
            self._act_above = self._max
        if 2 * live_events <= self._max:
            self._at_ease = dict(brought)
        if live_events <= self._act_above or not brought:
            return None
        since = {key: count - self._at_ease.get(key, 0) for key, count in brought.items()}
        name, incarnation = max(since, key=lambda key: (since[key], key))
        share = int(self._max * GROWTH_SHARE)
        if since[name, incarnation] <= share:
            return None  # the excess came from an input that has ended: the next stable of another removes it
        self._act_above = live_events + share
        return name, LimitExceeded(
            f"input {name!r} was ended: the merge has {live_events} live events, above the limit of {self._max}, and "
            f"this input has brought the most of late, {since[name, incarnation]} elements"
        )


class GrowthWatch:
    """The same for all merges of a server."""

    def __init__(self, live_events_max: int) -> None:
        self._live_events_max = live_events_max
        self._merges: dict[str, tuple[Growth, int]] = {}  # with the turns at the last look

    def look(self, hubs: Mapping[str, Hub]) -> None:
        """Check all merges; end the inputs that take one above its limit."""
        self._merges = {name: known for name, known in self._merges.items() if name in hubs}
        for name, hub in hubs.items():
            growth, turns = self._merges.get(name) or (Growth(self._live_events_max), -1)
            self._merges[name] = growth, hub.state.turns
            if hub.state.turns == turns:
                continue  # the merge has had no turn since
            observed = hub.state.observed
            found = growth.look(observed.live_count, {(i.name, i.incarnation): i.won for i in observed.inputs})
            inp = hub.inputs.get(found[0]) if found is not None else None
            if found is not None and inp is not None:
                log.event(logging.WARNING, "merge above its limit", merge=name, problem=str(found[1]))
                # Sent as a message too: a peer that is held in the middle of a write may never see the status.
                inp.session.end(found[1], pb.PublishResponse.Detached(code="limit-exceeded", message=str(found[1])))
