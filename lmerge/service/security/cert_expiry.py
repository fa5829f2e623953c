"""When certificates expire, read from their DER.

Python's ``ssl`` decodes a certificate only after a handshake, and lmerge needs no library for X.509 otherwise. The
validity is the fifth field of a certificate's content (RFC 5280, 4.1), so a few lengths lead to it:

    Certificate     SEQUENCE
      tbs           SEQUENCE: [0] version, serial number, signature, issuer, validity, subject ...
        validity    SEQUENCE: notBefore, notAfter, each UTCTime (YYMMDDHHMMSSZ) or GeneralizedTime (YYYYMMDDHHMMSSZ)
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Final, NamedTuple

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION_TAG: Final = 0xA0
_UTC_TIME: Final = 0x17
# Fields between the version and the validity: serial number, signature, issuer.
_FIELDS_BEFORE: Final = 3
# RFC 5280, 4.1.2.5.1: years of two digits from 50 on are those of 19xx.
_CENTURY_SPLIT: Final = 50


class _Field(NamedTuple):
    tag: int
    start: int  # of the content
    end: int


def earliest_expiry(pem: bytes) -> float | None:
    """Return when the first certificate of a file expires, in seconds since the epoch; None if it has none.

    A file can hold a chain, or several authorities. Raises ValueError if one is no certificate.
    """
    blocks = _PEM.findall(pem.decode("ascii", "replace"))
    return min((_expiry(ssl.PEM_cert_to_DER_cert(block)) for block in blocks), default=None)


def expiries_of(pems: Mapping[str, bytes]) -> dict[str, float]:
    """Return ``earliest_expiry`` of each file, by name.

    A file that OpenSSL accepts and this reader does not is left out: a metric is no reason to refuse a certificate.
    """
    found = {}
    for name, pem in pems.items():
        with suppress(ValueError):
            at_s = earliest_expiry(pem)
            if at_s is not None:
                found[name] = at_s
    return found


def _expiry(der: bytes) -> float:
    try:
        content = _field(der, _field(der, 0).start)
        field = _field(der, content.start)
        if field.tag == _VERSION_TAG:
            field = _field(der, field.end)
        for _ in range(_FIELDS_BEFORE):
            field = _field(der, field.end)
        not_before = _field(der, field.start)
        not_after = _field(der, not_before.end)
        text = der[not_after.start : not_after.end].decode("ascii")
    except IndexError:
        raise ValueError("a certificate ends too early") from None
    if not_after.tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _CENTURY_SPLIT else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()


def _field(der: bytes, at: int) -> _Field:
    """Return the field that begins at ``at``. Raises IndexError if it does not fit into the bytes."""
    tag, length, start = der[at], der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(der[start : start + size], "big"), start + size
    if start + length > len(der):
        raise IndexError
    return _Field(tag, start, start + length)
