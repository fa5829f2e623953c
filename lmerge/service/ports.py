"""Why an address cannot be listened on, as an error of ours that names it."""

from __future__ import annotations

import errno
import socket

from lmerge.errors import AddressInUse, LmergeError, UsageError


def cannot_listen(host: str, port: int, problem: OSError) -> LmergeError:
    """AddressInUse if it is taken, else UsageError."""
    if problem.errno == errno.EADDRINUSE:
        return AddressInUse(f"cannot listen on {host}:{port}: the address is in use; choose another port, or 0 for any")
    return UsageError(f"cannot listen on {host}:{port}: {problem.strerror or problem}")


def why_not(host: str, port: int) -> OSError | None:
    """Try to bind ``host:port`` ourselves: gRPC says that it failed, not why."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.bind(address)
            probe.listen()
    except OSError as problem:
        return problem
    return None
