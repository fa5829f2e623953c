"""A process of TCP links between clients and servers that can be cut and stalled: network faults without root.

One thread, one selector. A link listens on a port of its own and leads to the port of a server. A connection through it
is two sockets that copy to each other. Actions on a link: ``cut`` (both sides get a reset), ``stall`` (one direction is
not read for a time: TCP holds the sender, nothing is lost), ``lead`` (lead to another port).
"""

from __future__ import annotations

import contextlib
import gc
import selectors
import socket
import struct
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

CHUNK = 256 * 1024
UP, DOWN = "up", "down"  # from the client to the server, and back
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset


class Half:
    """One direction of a connection."""

    __slots__ = ("link", "paused", "peer", "rest", "socket", "way")

    def __init__(self, link: TcpLink, socket_: socket.socket, way: str) -> None:
        self.link, self.socket, self.way = link, socket_, way
        self.peer: Half | None = None
        self.rest = b""  # read from the peer and not yet sent to this side
        self.paused = False


class TcpLink:
    """The link of one client to one server."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.leads_to = port
        self.listener = socket.create_server((host, 0))
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self.halves: set[Half] = set()
        self.stalled_until = {UP: 0.0, DOWN: 0.0}


class TcpLinks:
    """All links and the loop that serves them."""

    def __init__(self, host: str, pipe: Connection) -> None:
        self._host = host
        self._pipe = pipe
        self._links: dict[str, TcpLink] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(pipe.fileno(), selectors.EVENT_READ, None)

    def serve(self) -> None:
        """Serve until the other end of the pipe is closed."""
        while True:
            for key, mask in self._selector.select(self._next_wake_s()):
                if key.data is None:
                    if not self._receive():
                        return
                elif isinstance(key.data, TcpLink):
                    self._accept(key.data)
                else:
                    self._copy(key.data, mask)
            self._wake_stalled()

    def _receive(self) -> bool:
        try:
            action, name, *values = self._pipe.recv()
        except (EOFError, OSError):
            return False
        if action == "open":
            link = self._links[name] = TcpLink(name, self._host, values[0])
            self._selector.register(link.listener, selectors.EVENT_READ, link)
            self._pipe.send(link.port)
        elif action == "lead":
            self._links[name].leads_to = values[0]
        elif action == "cut":
            for half in list(self._links[name].halves):
                self._close(half)
        else:
            way, seconds = values
            self._links[name].stalled_until[way] = time.monotonic() + seconds
            self._watch_all(self._links[name])
        return True

    def _accept(self, link: TcpLink) -> None:
        with contextlib.suppress(OSError):
            client, _ = link.listener.accept()
            server = socket.socket()
            try:
                server.connect(("127.0.0.1", link.leads_to))  # loopback: at once, or refused
            except OSError:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                client.close()
                server.close()
                return
            up, down = Half(link, client, UP), Half(link, server, DOWN)
            up.peer, down.peer = down, up
            for half in (up, down):
                half.socket.setblocking(False)
                half.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link.halves.add(half)
                self._selector.register(half.socket, selectors.EVENT_READ, half)
                self._watch(half)

    def _copy(self, half: Half, mask: int) -> None:
        peer = half.peer
        if half not in half.link.halves or peer is None:
            return  # closed a moment ago
        try:
            if mask & selectors.EVENT_WRITE and half.rest:
                half.rest = half.rest[half.socket.send(half.rest) :]
                self._watch(half)
                self._watch(peer)
            if mask & selectors.EVENT_READ and not half.paused:
                data = half.socket.recv(CHUNK)
                if not data:
                    self._close(half)
                    return
                sent = 0 if peer.rest else _sent(peer.socket, data)
                if sent < len(data):
                    peer.rest += data[sent:]
                    self._watch(peer)
                    self._watch(half)
        except OSError:
            self._close(half)

    def _watch(self, half: Half) -> None:
        """Select for reading unless this direction is stalled or the peer is full, and for writing if data are left."""
        assert half.peer is not None
        stalled = half.link.stalled_until[half.way] > time.monotonic()
        half.paused = stalled or bool(half.peer.rest)
        mask = (0 if half.paused else selectors.EVENT_READ) | (selectors.EVENT_WRITE if half.rest else 0)
        with contextlib.suppress(KeyError):
            self._selector.unregister(half.socket)
        if mask:
            self._selector.register(half.socket, mask, half)

    def _watch_all(self, link: TcpLink) -> None:
        for half in list(link.halves):
            self._watch(half)

    def _stalls(self) -> Iterator[tuple[TcpLink, str, float]]:
        for link in self._links.values():
            for way, until in link.stalled_until.items():
                if until:
                    yield link, way, until

    def _next_wake_s(self) -> float | None:
        waits = [until - time.monotonic() for _, _, until in self._stalls()]
        return max(0.0, min(waits)) if waits else None

    def _wake_stalled(self) -> None:
        now = time.monotonic()
        for link, way, until in list(self._stalls()):
            if until <= now:
                link.stalled_until[way] = 0.0
                self._watch_all(link)

    def _close(self, half: Half) -> None:
        """Close both sides of the connection with a reset."""
        for side in (half, half.peer):
            if side is None or side not in half.link.halves:
                continue
            half.link.halves.discard(side)
            with contextlib.suppress(KeyError):
                self._selector.unregister(side.socket)
            with contextlib.suppress(OSError):
                side.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            side.socket.close()


def _sent(to: socket.socket, data: bytes) -> int:
    try:
        return to.send(data)
    except BlockingIOError:
        return 0


def run(host: str, pipe: Connection) -> None:
    """Run the process; clients reach it at ``host``.

    It receives (action, link, ...): open with the server's port, answered with the port of the link; lead with another
    port; cut; stall with direction and seconds.
    """
    gc.freeze()
    TcpLinks(host, pipe).serve()
