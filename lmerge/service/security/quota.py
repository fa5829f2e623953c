"""How often, how many, how much: what keeps one peer, name or input from taking the room of all others.

``TokenBuckets`` bound a rate (attaches, refused calls), ``Places`` a number at a time (connections, subscriptions), both by
key; ``Growth`` finds the input that fills a merge. Times are the event loop's.
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

# Keys that are remembered: names come from peers, so their number must end somewhere. About 1 MiB.
KEYS_MAX: Final = 10_000
# A merge that stays above its limit loses its next input when it has grown by this share of the limit, and only one
# that has brought as much.
GROWTH_SHARE: Final = 1 / 8


def peer_key(peer: str) -> str:
    """Who a peer is for quotas: its address without the port; of IPv6 the network, which one host may have whole."""
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
        """Take one. 0.0: it was there; otherwise the seconds until it will be, and nothing was taken."""
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
        """``take``, or raise TooOften."""
        wait_s = self.take(key, now_s)
        if wait_s:
            raise TooOften(
                f"{what} too often: {self._burst} at once and {self._rate_per_s:g} a second are allowed; "
                f"try again in {wait_s:.1f} s"
            )


class Places:
    """So many at a time for each key."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: dict[object, int] = {}

    @contextmanager
    def one(self, key: object, what: str) -> Iterator[None]:
        """Hold a place. Raises LimitExceeded: ``what`` has as many as it may."""
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
    """The connections of each peer, as far as they carry calls: gRPC shows no others."""

    def __init__(self, most: int) -> None:
        self._calls: dict[str, int] = {}
        self._places = Places(most)

    @contextmanager
    def one_call(self, peer: str) -> Iterator[None]:
        """While a call of ``peer``, with its port, goes on. Raises LimitExceeded."""
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
    """Finds who fills a merge beyond its limit of live events.

    Replicas say the same events, so no input can be held back for the number alone: the one to end is the one that has
    brought most of what came since the merge was last at ease, at half its limit or below. The others go on; what only
    the ended one had said goes at the next stable of another (V.C). A merge that is simply larger than its limit loses
    one input after another, each with the reason, until it is small enough or has none left: the server and its other
    merges live.
    """

    def __init__(self, live_events_max: int) -> None:
        self._max = live_events_max
        self._act_above = live_events_max
        self._at_ease: dict[tuple[str, int], int] = {}

    def look(self, live_events: int, brought: Mapping[tuple[str, int], int]) -> tuple[str, LimitExceeded] | None:
        """The input to end now, and why; None: nobody. ``brought``: by input and incarnation, the output elements that
        it was the first to cause.
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
            return None  # what is too much came from one that has gone: it goes at the next stable of another
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
        """End the inputs that have to be."""
        self._merges = {name: known for name, known in self._merges.items() if name in hubs}
        for name, hub in hubs.items():
            growth, turns = self._merges.get(name) or (Growth(self._live_events_max), -1)
            self._merges[name] = growth, hub.turns
            if hub.turns == turns:
                continue  # nothing has happened
            observed = hub.observed
            found = growth.look(observed.live_count, {(i.name, i.incarnation): i.won for i in observed.inputs})
            inp = hub.attached(found[0]) if found is not None else None
            if found is not None and inp is not None:
                log.event(logging.WARNING, "merge above its limit", merge=name, problem=str(found[1]))
                # Said as a message too: a peer that is held in the middle of a write may never see the status.
                inp.session.end(found[1], pb.PublishResponse.Detached(code="limit-exceeded", message=str(found[1])))
