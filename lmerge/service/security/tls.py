"""The server's certificate, its key, and the authorities of its clients: read, checked, and read again on a change.

Both ports use the same files. New connections use the present files; open connections keep what they began with. If the
files do not fit together (a certificate has been replaced and its key not yet), the last good ones stay in force, and
the files are read again when one of them changes. TLS 1.2 is the oldest version on either port: it is gRPC's own
minimum, and is set here for HTTP.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc

from lmerge.errors import LmergeError, UsageError
from lmerge.pem import load_pair, reason_of
from lmerge.service import log
from lmerge.service.security.cert_expiry import expiries_of
from lmerge.service.security.reloaded_files import read_bounded, stamp_of

# A handshake begins some microseconds after it has asked for the configuration; see `_changed_configuration`.
_QUIET_S: Final = 0.1
_WAIT_MAX_S: Final = 1.0
_PAUSE_S: Final = 0.05


UsePems: TypeAlias = Callable[[bytes, bytes, bytes | None], None]
"""Takes the key, the certificate and the authorities of clients, as PEM. Raises UsageError if they cannot be used."""


class TlsFiles:
    """The files that are in force. ``problem``: why the present files are not in force; None if they are.

    ``expiries``: when the first certificate of each file expires, in seconds since the epoch.
    """

    def __init__(self, cert: str, key: str, client_ca: str | None = None) -> None:
        """Read the files. Raises UsageError if they cannot be used."""
        self.problem: str | None = None
        self.expiries: dict[str, float] = {}
        self.requires_client_certificate = client_ca is not None
        self._paths = {"certificate": Path(cert), "key": Path(key)}
        if client_ca is not None:
            self._paths["client CA"] = Path(client_ca)
        self._pems: tuple[bytes, bytes, bytes | None]
        self._follower: UsePems = lambda _key, _certificate, _client_ca: None
        self._pending: Any = None  # the configuration that gRPC has not taken yet
        self._pending_s = self._asked_s = 0.0
        self._seen = self._stamps()
        self._take()

    def refresh(self) -> bool:
        """Read the files again if one has changed. Return whether others are in force now."""
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        self._seen = stamps
        try:
            self._take()
            self._follower(*self._pems)
        except LmergeError as error:
            self.problem = str(error)
            log.event(logging.ERROR, "certificates not taken", problem=self.problem)
            return False
        self.problem = None
        log.event(logging.INFO, "certificates read")
        return True

    def follow(self, use: UsePems) -> None:
        """Call ``use`` with the files in force, now and whenever others are. Raises the UsageError of this call."""
        use(*self._pems)
        self._follower = use

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of the gRPC port. Each new connection gets the newest files."""
        configuration, self._pending = self._pending, None
        return grpc.dynamic_ssl_server_credentials(
            configuration, self._changed_configuration, require_client_authentication=self.requires_client_certificate
        )

    @property
    def http_context(self) -> ssl.SSLContext:
        """The present context of the HTTP port.

        It requests a client certificate but does not require one: probes have none.
        """
        return self._context

    def _changed_configuration(self) -> Any:
        """Return the configuration if there is a new one; None if not.

        gRPC calls this before each handshake, on its own threads, one call at a time.

        When gRPC gets a new one it frees the old one. A handshake that has called this and not begun yet would then use
        freed memory (grpc issue 36693; it ends the process). A handshake begins some microseconds after its call. So a
        new configuration is returned only after a time without calls. If clients connect all the time and there is no
        such time, one call waits until the handshakes before it have begun. Later calls wait behind it.
        """
        now_s = time.monotonic()
        is_quiet, self._asked_s = now_s - self._asked_s >= _QUIET_S, now_s
        if self._pending is None:
            return None
        if not is_quiet:
            if now_s - self._pending_s < _WAIT_MAX_S:
                return None
            time.sleep(_PAUSE_S)
        configuration, self._pending = self._pending, None
        return configuration

    def _take(self) -> None:
        pems = {what: read_bounded(what, path) for what, path in self._paths.items()}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_pair(context, str(self._paths["certificate"]), str(self._paths["key"]))
        client_ca = pems.get("client CA")
        if client_ca is not None:
            try:
                context.load_verify_locations(cadata=client_ca.decode("ascii", "replace"))
            except (OSError, ValueError) as problem:
                path = str(self._paths["client CA"])
                raise UsageError(f"client CA {path!r} cannot be used: {reason_of(problem)}") from None
            context.verify_mode = ssl.CERT_OPTIONAL
        self.expiries = expiries_of({what: pem for what, pem in pems.items() if what != "key"})
        self._context = context
        self._pems = (pems["key"], pems["certificate"], client_ca)
        self._pending_s = time.monotonic()
        self._pending = grpc.ssl_server_certificate_configuration([(pems["key"], pems["certificate"])], client_ca)

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [stamp_of(path) for path in self._paths.values()]
