"""The credentials of a client and its checks of the server: certificates, a token, encryption.

    security = lmerge.Security(ca="ca.pem", token_file="a.token")
    with lmerge.Publisher("merge.example:7171", "flights", "a", security=security) as publisher: ...

``Security`` is a connector (``streams``): its channels behave like gRPC's. The token file is read again for every call,
and the certificate files when they have changed, so both can be renewed without a restart.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import grpc

from lmerge.client.connection import channels
from lmerge.client.connection.channels import Certificates
from lmerge.errors import UsageError
from lmerge.loopback import host_of, is_loopback
from lmerge.pem import load_pair

TOKEN_BYTES_MAX: Final = 4096
# The channel in use and the one before it, which may still carry a call. Older ones are closed.
_CHANNELS_MAX: Final = 2
# Where systems keep the authorities that they trust. Without one of these gRPC uses a list of its own.
_SYSTEM_CA: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


@dataclass(frozen=True)
class Security:
    """How a client connects.

    ``ca``: the authorities that sign servers; ``tls`` without it: those of the system. ``cert`` and ``key``: the
    certificate that this client presents (mTLS). ``token`` or ``token_file``: the token. All files are PEM except the
    token file.

    Without ``ca``, ``cert`` and ``tls`` nothing is encrypted. Then a token may be sent to this machine only, unless
    ``insecure`` declares that the network protects it. ``server_name``: the name that the server's certificate must
    hold instead of the address. ``server_names``: such names by address (``HOST:PORT``), for servers that are reached
    through tunnels; an address that is not there has ``server_name``.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    tls: bool = False
    insecure: bool = False
    server_name: str | None = None
    server_names: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise UsageError("cert and key go together: a client certificate, and the key that belongs to it")
        if self.token is not None and self.token_file is not None:
            raise UsageError("give a token or a token_file, not both")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ, **over: Any) -> Security | None:
        """Return a Security made of LMERGE_CA, LMERGE_CERT, LMERGE_KEY, LMERGE_TOKEN, LMERGE_TOKEN_FILE and LMERGE_TLS.

        A value in ``over`` replaces its variable. None if there is no value at all.
        """
        given: dict[str, Any] = {name: value for name, value in over.items() if value}
        for name in ("ca", "cert", "key", "token", "token_file"):
            value = environment.get(f"LMERGE_{name.upper()}")
            instead = {"token": "token_file", "token_file": "token"}.get(name)  # a value in ``over`` replaces both
            if value and name not in given and instead not in given:
                given[name] = value
        if environment.get("LMERGE_TLS", "").lower() in ("1", "true", "yes"):
            given["tls"] = True
        return cls(**given) if given else None

    @property
    def is_encrypted(self) -> bool:
        """Whether connections use TLS: any of its options asks for it."""
        return self.tls or self.ca is not None or self.cert is not None

    def channel(self, target: str) -> SecureChannel:
        """Return a channel for asyncio. Raises UsageError if a file is unusable or the token would be sent in clear."""
        return SecureChannel(self, target)

    @contextmanager
    def blocking_channel(self, target: str) -> Iterator[Any]:
        """Open a blocking channel of gRPC, for single calls. Raises UsageError as above."""
        metadata = tuple(TokenSource(self, target).metadata())
        if self.is_encrypted:
            certificates = self.certificates(target)
            options = channels.tls_options(certificates)
            channel = grpc.secure_channel(target, channels.grpc_credentials(certificates), options=options)
        else:
            channel = grpc.insecure_channel(target)
        with channel:
            yield grpc.intercept_channel(channel, _AddsMetadata(metadata)) if metadata else channel

    def open_channel(self, target: str) -> Any:
        """Return a plain channel with the certificates that the files hold now, without the token."""
        return channels.open_channel(target, self.certificates(target) if self.is_encrypted else None)

    def certificates(self, target: str) -> Certificates:
        """Return what the files hold now, for one server. Raises UsageError."""
        ca = _read_file("CA", self.ca) if self.ca is not None else _system_ca()
        cert = None if self.cert is None else _read_file("certificate", self.cert)
        key = None if self.key is None else _read_file("key", self.key)
        if self.cert is not None and self.key is not None:
            load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), self.cert, self.key)  # a channel would only not connect
        return Certificates(ca, key, cert, self.server_names.get(target, self.server_name))

    def stamps(self) -> list[tuple[int, int] | None]:
        """Return values that change when a certificate file changes."""
        return [_stamp(path) for path in (self.ca, self.cert, self.key)]


class TokenSource:
    """The token for one server. While the token file cannot be read, the last token that was read is used."""

    def __init__(self, security: Security, target: str) -> None:
        """Raise UsageError if the token is missing or malformed, or if it must not be sent to ``target``."""
        self._file = security.token_file
        self._token = security.token
        if self._file is not None:
            self._token = _token_of(self._file)
        elif self._token is not None:
            self._token = _valid_token(self._token, "the token")
        if self._token is None or security.is_encrypted or security.insecure or is_loopback(host_of(target)):
            return
        raise UsageError(
            f"the token would go to {target} without encryption, readable on the whole way: give tls, or ca, or "
            "insecure if the network protects it"
        )

    def metadata(self) -> list[tuple[str, str]]:
        """Return the metadata that a call carries now."""
        if self._file is not None:
            with suppress(UsageError):  # it is being replaced
                self._token = _token_of(self._file)
        return [] if self._token is None else [("authorization", f"Bearer {self._token}")]


class SecureChannel:
    """A channel whose calls carry the token. It is made again when the certificates have changed."""

    def __init__(self, security: Security, target: str) -> None:
        self._security = security
        self._target = target
        self._token = TokenSource(security, target)
        self._stamps = security.stamps()
        self._channels = [security.open_channel(target)]
        self._closing: asyncio.Future[None] | None = None

    async def __aenter__(self) -> SecureChannel:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all calls."""
        channels, self._channels = self._channels, []
        for channel in channels:
            await channel.close()

    def get_state(self) -> grpc.ChannelConnectivity:
        """Return the state of the channel in use."""
        state: grpc.ChannelConnectivity = self._channels[-1].get_state()
        return state

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return a callable as gRPC's channels do; so do the next three methods."""
        return self._opener("unary_unary", method, args, kwargs)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._opener("unary_stream", method, args, kwargs)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._opener("stream_unary", method, args, kwargs)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._opener("stream_stream", method, args, kwargs)

    def _opener(self, kind: str, method: str, args: Any, kwargs: Any) -> Any:
        def open_call(*call_args: Any, metadata: Any = (), **call_kwargs: Any) -> Any:
            make = getattr(self._current(), kind)(method, *args, **kwargs)
            shown = (*(metadata or ()), *self._token.metadata())
            return make(*call_args, metadata=shown or None, **call_kwargs)

        return open_call

    def _current(self) -> Any:
        """Return the channel with the present certificates. A call in progress keeps its own channel."""
        stamps = self._security.stamps()
        if stamps != self._stamps:
            with suppress(UsageError):  # only one of two files is replaced yet: the old pair stays
                self._channels.append(self._security.open_channel(self._target))
                self._stamps = stamps
                if len(self._channels) > _CHANNELS_MAX:
                    self._closing = asyncio.ensure_future(self._channels.pop(0).close())
        return self._channels[-1]


class _AddsMetadata(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Adds metadata, such as the token, to the calls of a blocking channel."""

    def __init__(self, metadata: tuple[tuple[str, str], ...]) -> None:
        self._metadata = metadata

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(self._with_metadata(details), request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(self._with_metadata(details), request)

    def _with_metadata(self, details: Any) -> Any:
        return details._replace(metadata=(*(details.metadata or ()), *self._metadata))


def _system_ca() -> bytes | None:
    """Return the authorities that this system trusts; None: gRPC uses its own list."""
    found = [os.environ.get(ssl.get_default_verify_paths().openssl_cafile_env), ssl.get_default_verify_paths().cafile]
    for path in (*found, *_SYSTEM_CA):
        if path is not None and Path(path).is_file():
            return Path(path).read_bytes()
    return None


def _read_file(what: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise UsageError(f"{what} {path!r} cannot be read: {problem.strerror}") from None


def _token_of(path: str) -> str:
    try:
        with open(path, "rb") as file:
            text = file.read(TOKEN_BYTES_MAX + 1)
    except OSError as problem:
        raise UsageError(f"token file {path!r} cannot be read: {problem.strerror}") from None
    return _valid_token(text.decode("ascii", "replace"), f"token file {path!r}")


def _valid_token(text: str, what: str) -> str:
    """Return the token as a header can hold it. Raises UsageError, whose message does not contain the token."""
    token = text.strip()
    if not token or len(token) > TOKEN_BYTES_MAX or not all("!" <= letter <= "~" for letter in token):
        raise UsageError(f"{what} must hold one token of at most {TOKEN_BYTES_MAX} printable characters")
    return token


def _stamp(path: str | None) -> tuple[int, int] | None:
    try:
        status = os.stat(path) if path is not None else None
    except OSError:
        return None
    return None if status is None else (status.st_mtime_ns, status.st_ino)
