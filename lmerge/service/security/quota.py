"""Quotas: they keep one peer, name or input from taking the room of all others.

``TokenBuckets`` bound a rate (attaches, refused calls). ``Places`` bound a number at a time (connections,
subscriptions). Both count by key. ``Growth`` finds the input that fills a merge. Times are the event loop's.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lmerge.errors import LimitExceeded, TooOften
from lmerge.loopback import host_of

# How many keys are kept. Names come from peers, so their number must have a bound. About 1 MiB.
KEYS_MAX: Final = 10_000


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
