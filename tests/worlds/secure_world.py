"""Helpers of the security tests: a server with certificates and an access file, and callers of every kind."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Authority, Pair
from service_world import MERGE, World

from lmerge import clock
from lmerge.client.connection.security import Security
from lmerge.service.security import tokens
from lmerge.wire.generated import lmerge_pb2_grpc as pb_grpc

YEAR_US = 365 * 86_400 * 1_000_000
FORGED = "lmt_00000000_" + "a" * 64


class SecureWorld(World):
    """A server with TLS, and with tokens unless ``access`` is False. ``mtls``: clients show certificates as well."""

    def __init__(self, folder: Path, *, access: bool = True, mtls: bool = False, **settings: Any) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.server_pair = self.authority.issue_server()
        self.access_path = folder / "access.json"
        if access:
            self.keeper = self.token("keeper", ["publish", "subscribe", "status", "admin"], ["*"], ["*"])
            settings["access_path"] = str(self.access_path)
        if mtls:
            settings["tls_client_ca"] = self.authority.path
        settings.setdefault("check_interval_s", 0.02)
        super().__init__(tls_cert=self.server_pair.cert, tls_key=self.server_pair.key, **settings)

    async def __aenter__(self) -> SecureWorld:
        await self.server.start()
        self.channels: list[Any] = []
        self.channel = self.new_channel()
        self.stub = pb_grpc.LmergeStub(self.channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self.channels:
            await channel.close()
        await self.server.stop(1.0)

    @property
    def target(self) -> str:
        return f"localhost:{self.server.port}"

    def new_channel(self, token: str | None = None, pair: Pair | None = None, **security: Any) -> Any:
        """Return a channel that shows ``token`` and ``pair``; without them, nothing."""
        shown: dict[str, Any] = {"ca": self.authority.path, "token": token}
        if pair is not None:
            shown |= pair._asdict()
        channel = Security(**{**shown, **security}).channel(self.target)
        self.channels.append(channel)
        return channel

    def stub_of(self, token: str | None = None, pair: Pair | None = None) -> Any:
        return pb_grpc.LmergeStub(self.new_channel(token, pair))

    def token(
        self,
        name: str,
        roles: Sequence[str],
        merges: list[str] | None = None,
        replicas: list[str] | None = None,
        expires_us: int | None = None,
    ) -> str:
        return tokens.make(self.access_path, name, roles, merges or [MERGE], replicas, expires_us)

    def expired(self, name: str, roles: Sequence[str]) -> str:
        return self.token(name, roles, expires_us=clock.wall_us() - YEAR_US)

    def revoked(self, name: str, roles: Sequence[str]) -> str:
        token = self.token(name, roles)
        tokens.revoke(self.access_path, name)
        return token


def connect_and_go(port: int, times: int) -> int:
    """Connect and disconnect at once: after half a handshake, with a reset, or without any byte."""
    for at in range(times):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
            if at % 3 == 0:
                peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
            elif at % 3 == 1:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    return times


@contextmanager
def refused(code: grpc.StatusCode, *texts: str) -> Iterator[None]:
    """The call in here must end with ``code``, and with all ``texts`` in its message."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    assert caught.value.code() is code, f"{caught.value.code()}: {caught.value.details()}"
    for text in texts:
        assert text in caught.value.details()
