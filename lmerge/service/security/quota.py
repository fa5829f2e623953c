"""Quotas: they keep one peer, name or input from taking the room of all others.

``TokenBuckets`` bound a rate (attaches, refused calls). ``Places`` bound a number at a time (connections,
subscriptions). Both count by key. ``Growth`` finds the input that fills a merge. Times are the event loop's.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lmerge.errors import LimitExceeded, TooOften
from lmerge.loopback import host_of
from lmerge.service import log
from lmerge.wire.generated import lmerge_pb2 as pb

if TYPE_CHECKING:
    from lmerge.service.merge.hub import (
        Hub,  # it is above this module: publish asks the guard, and the guard counts here
    )

# How many keys are kept. Names come from peers, so their number must have a bound. About 1 MiB.
KEYS_MAX: Final = 10_000
# A merge that stays above its limit loses its next input when it has grown by this share of the limit. Only an input
# that has brought as much is ended.
GROWTH_SHARE: Final = 1 / 8


def peer_key(peer: str) -> str:
    """Return the key of a peer for quotas: its address without the port.

    For IPv6 it is the /64 network, as one host may have all of its addresses.
    """
    host = host_of(peer)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class TokenBuckets:
    """A token bucket for each key: ``burst`` at once, then ``rate_per_s``."""

    def __init__(self, rate_per_s: float, burst: int, keys_max: int = KEYS_MAX) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._keys_max = keys_max
        self._levels: OrderedDict[object, tuple[float, float]] = OrderedDict()  # (what is left, when)

    def take(self, key: object, now_s: float) -> float:
        """Take one token. Return 0.0 if there was one; otherwise the seconds until there is one, and take nothing."""
        left, before_s = self._levels.pop(key, (float(self._burst), now_s))
        left = min(float(self._burst), left + (now_s - before_s) * self._rate_per_s)
        wait_s = 0.0
        if left >= 1.0:
            left -= 1.0
        else:
            wait_s = (1.0 - left) / self._rate_per_s
        self._levels[key] = (left, now_s)  # the last one used is the last to be forgotten
        if len(self._levels) > self._keys_max:
            self._levels.popitem(last=False)
        return wait_s

    def must(self, key: object, now_s: float, what: str) -> None:
        """Take one token, or raise TooOften. ``what``: who does what, for the message."""
        wait_s = self.take(key, now_s)
        if wait_s:
            raise TooOften(
                f"{what} too often: {self._burst} at once and {self._rate_per_s:g} a second are allowed; "
                f"try again in {wait_s:.1f} s"
            )


class Places:
    """Bounds how many there are at a time for each key."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: dict[object, int] = {}

    @contextmanager
    def one(self, key: object, what: str) -> Iterator[None]:
        """Hold a place inside the context. Raises LimitExceeded if ``what`` has as many as allowed."""
        self.enter(key, what)
        try:
            yield
        finally:
            self.leave(key)

    def enter(self, key: object, what: str) -> None:
        """Take a place. Raises LimitExceeded."""
        taken = self._taken.get(key, 0)
        if taken >= self._most:
            raise LimitExceeded(f"{what}: {taken} at a time is the limit")
        self._taken[key] = taken + 1

    def leave(self, key: object) -> None:
        """Give a place back."""
        left = self._taken[key] - 1
        if left:
            self._taken[key] = left
        else:
            del self._taken[key]

    def taken(self, key: object) -> int:
        return self._taken.get(key, 0)


class Connections:
    """Bounds the connections of each peer. Only connections with calls count: gRPC shows no others."""

    def __init__(self, most: int) -> None:
        self._calls: dict[str, int] = {}
        self._places = Places(most)

    @contextmanager
    def one_call(self, peer: str) -> Iterator[None]:
        """Count one call of ``peer``, which includes its port, inside the context. Raises LimitExceeded."""
        if peer not in self._calls:
            key = peer_key(peer)
            self._places.enter(key, f"connections of {key} with calls")
            self._calls[peer] = 0
        self._calls[peer] += 1
        try:
            yield
        finally:
            self._calls[peer] -= 1
            if not self._calls[peer]:
                del self._calls[peer]
                self._places.leave(peer_key(peer))


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
            self._merges[name] = growth, hub.turns
            if hub.turns == turns:
                continue  # the merge has had no turn since
            observed = hub.observed
            found = growth.look(observed.live_count, {(i.name, i.incarnation): i.won for i in observed.inputs})
            inp = hub.attached(found[0]) if found is not None else None
            if found is not None and inp is not None:
                log.event(logging.WARNING, "merge above its limit", merge=name, problem=str(found[1]))
                # Sent as a message too: a peer that is held in the middle of a write may never see the status.
                inp.session.end(found[1], pb.PublishResponse.Detached(code="limit-exceeded", message=str(found[1])))
