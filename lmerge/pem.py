"""Loading a certificate and the key that belongs to it, for servers and clients; errors name the files."""

from __future__ import annotations

import ssl

from lmerge.errors import UsageError


def load_pair(context: ssl.SSLContext, cert: str, key: str) -> None:
    """Load both into ``context``. Raises UsageError if they are not PEM, do not match, or the key needs a password."""
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as problem:
        raise UsageError(f"certificate {cert!r} and key {key!r} cannot be used: {reason_of(problem)}") from None


def reason_of(problem: Exception) -> str:
    """Return OpenSSL's reason for ``problem``; it contains nothing of the files."""
    if not isinstance(problem, ssl.SSLError):
        return str(problem)
    return problem.reason.lower().replace("_", " ") if problem.reason else "not in PEM"


def _no_password(*_: object) -> str:
    """Refuse a password: OpenSSL would otherwise ask for it on the terminal, and the process would stand still."""
    raise ValueError("the key is encrypted; lmerge takes keys without a password")
