"""Addresses that never leave this machine: there, and only there, nothing has to be encrypted.

The server calls it before it listens, the client before it sends a secret.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import unquote


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is this machine. A name is not looked up: only ``localhost`` counts."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def host_of(address: str) -> str:
    """Return the host in ``host:port``, ``[host]:port``, ``dns:///host:port``, or a peer as gRPC names it.

    gRPC's forms are ``ipv4:127.0.0.1:5`` and ``ipv6:%5B::1%5D:5``. A UNIX socket is ``localhost``.
    """
    text = unquote(address)
    scheme, colon, rest = text.partition(":")
    if colon and scheme in ("unix", "unix-abstract"):
        return "localhost"
    if colon and scheme in ("ipv4", "ipv6", "dns"):
        text = rest.rpartition("/")[2]
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if text.count(":") == 1 else text
