"""The connections of the HTTP port: few, bounded by peer, and none waits for a request for ever.

A connection *waits* until it has sent a whole header, and between two requests. Otherwise it *works*. If there is no
room for a new connection, the one that has waited longest is closed. If its peer has as many as allowed, one of the
same peer is closed. So connections that send nothing, or one byte now and then, take no room from a probe: they are
closed first, and they are closed anyway without a whole header in ``header_timeout_s``.

    peer p, limit 3     open: 1 waits, 2 waits, 3 works; p opens 4: 1 is closed
    all work            the newcomer is closed
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from lmerge.service.security.quota import peer_key


class OpenConnections:
    """All open connections. ``closed``: how many were closed, by reason."""

    def __init__(self, most: int, per_peer: int, header_timeout_s: float) -> None:
        self.closed: Counter[str] = Counter()
        self.header_timeout_s = header_timeout_s
        self._most = most
        self._per_peer = per_peer
        self._open: dict[HttpConnection, None] = {}  # the one whose last request is the oldest comes first
        self._peers: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: HttpConnection) -> None:
        """Add a new connection, and close one if there are too many: perhaps the new one."""
        self._open[connection] = None
        self._peers[connection.peer] += 1
        if self._peers[connection.peer] > self._per_peer:
            self._close_one([one for one in self._open if one.peer == connection.peer], connection)
        elif len(self._open) > self._most:
            self._close_one(list(self._open), connection)

    def leave(self, connection: HttpConnection) -> None:
        if connection in self._open:
            del self._open[connection]
            self._peers[connection.peer] -= 1
            if not self._peers[connection.peer]:
                del self._peers[connection.peer]

    def used(self, connection: HttpConnection) -> None:
        """Note that a request of it was answered: it is now the newest among those that wait."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def _close_one(self, candidates: list[HttpConnection], newcomer: HttpConnection) -> None:
        waiting = next((one for one in candidates if one.is_waiting and one is not newcomer), newcomer)
        waiting.close("room")


class HttpConnection(asyncio.Protocol):
    """The protocol of one connection. It passes everything on to ``inner``, which serves the connection."""

    def __init__(self, connections: OpenConnections, inner: asyncio.Protocol) -> None:
        self.peer = ""
        self.is_waiting = True
        self._connections = connections
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        address: Any = transport.get_extra_info("peername")
        self.peer = peer_key(str(address[0])) if isinstance(address, tuple) and address else ""
        self._inner.connection_made(transport)
        self._connections.enter(self)
        self._expect_header()

    def data_received(self, data: bytes) -> None:
        if self.is_waiting and self._timer is None:
            self._expect_header()  # a further request has begun
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, problem: Exception | None) -> None:
        self._stop_timer()
        self._connections.leave(self)
        self._inner.connection_lost(problem)

    # Called by the server.

    def begin(self) -> None:
        """Note that a whole header has come: the connection works."""
        self.is_waiting = False
        self._stop_timer()

    def end(self) -> None:
        """Note that the answer is made: the connection waits, even if the peer has not read the answer yet."""
        self.is_waiting = True
        self._connections.used(self)

    def close(self, why: str) -> None:
        """Close the connection at once. ``why``: the reason, for ``closed``."""
        self._connections.closed[why] += 1
        self._connections.leave(self)
        if self._transport is not None:
            self._transport.abort()

    def _expect_header(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._connections.header_timeout_s, self.close, "time")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
