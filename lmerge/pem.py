"""A certificate and the key that belongs to it, for servers and clients alike; errors that name the files."""

from __future__ import annotations

import ssl

from lmerge.errors import UsageError


def load_pair(context: ssl.SSLContext, cert: str, key: str) -> None:
    """Put them into ``context``. Raises UsageError: they are not PEM, do not belong together, or want a password."""
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as problem:
        raise UsageError(f"certificate {cert!r} and key {key!r} cannot be used: {reason_of(problem)}") from None


def reason_of(problem: Exception) -> str:
    """OpenSSL's word for it; it names no content of the files."""
    if not isinstance(problem, ssl.SSLError):
        return str(problem)
    return problem.reason.lower().replace("_", " ") if problem.reason else "not in PEM"


def _no_password(*_: object) -> str:
    """OpenSSL would otherwise ask for it on the terminal, and the process would stand still."""
    raise ValueError("the key is encrypted; lmerge takes keys without a password")
