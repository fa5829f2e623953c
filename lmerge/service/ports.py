"""Errors of lmerge for an address on which a server cannot listen."""

from __future__ import annotations

import errno
import socket

from lmerge.errors import AddressInUse, LmergeError, UsageError


def cannot_listen(host: str, port: int, problem: OSError) -> LmergeError:
    """Return the error: AddressInUse if the address is taken, else UsageError."""
    if problem.errno == errno.EADDRINUSE:
        return AddressInUse(f"cannot listen on {host}:{port}: the address is in use; choose another port, or 0 for any")
    return UsageError(f"cannot listen on {host}:{port}: {problem.strerror or problem}")


def why_not(host: str, port: int) -> OSError | None:
    """Return the error of binding ``host:port``; None if it works. gRPC reports that it failed, but not why."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.bind(address)
            probe.listen()
    except OSError as problem:
        return problem
    return None
