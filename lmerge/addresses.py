"""Addresses of servers, as users write them: one rule for clients, commands, options and replicas.

    HOST:PORT    merge.example:7171, 10.0.0.7:7171, [2001:db8::7]:7171
    SCHEME:...   gRPC's own forms: unix:PATH, dns:///HOST:PORT, ipv4:..., ipv6:..., and others

A port is a number up to 65535. gRPC takes a larger one modulo 65536, and would silently connect to another server.
"""

from __future__ import annotations

import re
from typing import Final

from lmerge.errors import UsageError
from lmerge.loopback import host_of

PORT_MAX: Final = 65_535
# Where a server listens, and a client looks for it, if nothing else is given.
DEFAULT_PORT: Final = 7171
DEFAULT_SERVER: Final = f"127.0.0.1:{DEFAULT_PORT}"
# The length of the longest host name with its port; a longer text is no address.
_LENGTH_MAX: Final = 300

# Schemes without a port; of the others the last part is HOST:PORT.
_SOCKETS: Final = ("unix:", "unix-abstract:", "vsock:")
_RESOLVED: Final = re.compile(r"(dns|ipv4|ipv6|xds):(//[^/]*/)?")
_HOST_PORT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+(%[\w.-]+)?\]|[^\s:/\[\]@,]+):([0-9]{1,10})")


def check_address(text: str) -> str:
    """Return ``text`` if it is the address of a server. Raises UsageError, which names what is wrong with it."""
    if not text.isprintable() or not text.isascii() or len(text) > _LENGTH_MAX or " " in text:
        raise _wrong(text, "it must be printable ASCII without blanks")
    if text.startswith(_SOCKETS):
        return text
    resolved = _RESOLVED.match(text)
    if resolved is not None:
        if host_of(text):
            for one in text[resolved.end() :].split(","):
                _check_host_port(one, text, needs_port=False)
            return text
        raise _wrong(text, "it has no host")
    _check_host_port(text, text, needs_port=True)
    return text


def is_host_port(address: str) -> bool:
    """Return whether a checked address is HOST:PORT, so that no scheme of gRPC is needed to reach it."""
    match = _HOST_PORT.fullmatch(address)
    return match is not None and match[2] is None


def _check_host_port(one: str, text: str, *, needs_port: bool) -> None:
    match = _HOST_PORT.fullmatch(one)
    if match is None:
        if not needs_port and one and ":" not in one.rpartition("]")[2]:
            return  # gRPC's own port
        raise _wrong(text, "a server is HOST:PORT, or [HOST]:PORT with an IPv6 address")
    if int(match[3]) > PORT_MAX:
        raise _wrong(text, f"port {match[3]} is above {PORT_MAX}")


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(f"{text!r:.100} is no address of a server: {why}")
