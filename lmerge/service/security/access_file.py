"""The access file: the tokens and certificates of callers, and their rights.

The server reads it, and ``lmerge token`` writes it:

    {"entries": [
      {"name": "a", "id": "3f9a2c11", "sha256": "9f86...", "roles": ["publish"], "merges": ["flights"],
       "replicas": ["a"], "expires": "2027-01-01T00:00:00Z", "enabled": true},
      {"name": "board", "certificate": "dns:board.example", "roles": ["subscribe", "status"], "merges": ["*"]}]}

A token is ``lmt_ID_SECRET``. The file holds its SHA-256, never the token, so a reader of the file cannot use the token.
The secret has 256 random bits, so no slow hash is needed. ``replicas``, if it is left out, is the entry's own name. An
unknown field is an error: a misspelled limit must not be no limit.

The file is read again when it changes. If it cannot be read then, the last good one stays in force.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from lmerge import clock
from lmerge.errors import LmergeError, Unauthenticated, UsageError
from lmerge.service import log
from lmerge.service.choices import AccessRole
from lmerge.service.security.auth import CallerIdentity, Certificate, Rights
from lmerge.service.security.reloaded_files import read_bounded, stamp_of
from lmerge.wire.names import check_name

_TOKEN: Final = re.compile(r"lmt_([0-9a-f]{8})_[0-9a-f]{64}")
_TOKENS: Final = re.compile(r"(lmt_[0-9a-f]{8}_)[0-9a-f]+")
_FIELDS: Final = {"name", "id", "sha256", "certificate", "roles", "merges", "replicas", "expires", "enabled"}
_UNKNOWN: Final = "the token is not in the access file of this server"
_NO_DIGEST: Final = "0" * 64  # compared with if there is no such entry, so that a missing entry takes the same time


@dataclass(frozen=True)
class AccessEntry:
    """One entry of the file. Exactly one of ``sha256`` (with ``id``) and ``certificate`` is set."""

    name: str
    rights: Rights
    id: str = ""
    sha256: str = ""
    certificate: str = ""
    expires_us: int | None = None
    enabled: bool = True

    @property
    def identity(self) -> CallerIdentity:
        what = f"token {self.name!r} ({self.id})" if self.id else f"certificate {self.name!r} ({self.certificate})"
        return CallerIdentity(what, (self.rights,))

    def must_be_valid(self, now_us: int) -> None:
        """Raise Unauthenticated if it has expired or was revoked."""
        if not self.enabled:
            raise Unauthenticated(f"{self.identity.name} has been revoked")
        if self.expires_us is not None and now_us >= self.expires_us:
            raise Unauthenticated(f"{self.identity.name} expired at {show_expiry(self.expires_us)}")


class AccessFile:
    """The entries in force of one file. ``problem``: why the present content is not in force; None if it is."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises UsageError if it cannot be read, or its content is invalid."""
        self.problem: str | None = None
        self._path = path
        self._seen = stamp_of(path)
        self._take(read_entries(path))

    def refresh(self) -> bool:
        """Read the file again if it has changed. Return whether other entries are in force now."""
        stamp = stamp_of(self._path)
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            self._take(read_entries(self._path))
        except LmergeError as error:
            self.problem = str(error)
            log.event(logging.ERROR, "access file not taken", problem=self.problem)
            return False
        self.problem = None
        log.event(logging.INFO, "access file read", entries=len(self._by_id) + len(self._by_certificate))
        return True

    def by_token(self, token: str) -> CallerIdentity:
        """Return the identity of a token. Raises Unauthenticated if it is forged, expired or revoked."""
        match = _TOKEN.fullmatch(token)
        entry = self._by_id.get(match[1]) if match is not None else None
        is_right = hmac.compare_digest(digest_of(token), entry.sha256 if entry is not None else _NO_DIGEST)
        if entry is None or not is_right:
            raise Unauthenticated(_UNKNOWN)
        entry.must_be_valid(clock.wall_us())
        return entry.identity

    def by_certificate(self, certificate: Certificate) -> CallerIdentity | None:
        """Return the identity of a certificate; None if no entry names it.

        Raises Unauthenticated if an entry has expired or was revoked.
        """
        found = [self._by_certificate[name] for name in sorted(certificate.names) if name in self._by_certificate]
        for entry in found:
            entry.must_be_valid(clock.wall_us())
        if not found:
            return None
        return CallerIdentity(found[0].identity.name, tuple(entry.rights for entry in found))

    def _take(self, entries: list[AccessEntry]) -> None:
        self._by_id = {entry.id: entry for entry in entries if entry.id}
        self._by_certificate = {entry.certificate: entry for entry in entries if entry.certificate}


def digest_of(token: str) -> str:
    """Return the digest of a token, as the file holds it."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def show_expiry(expires_us: int) -> str:
    """Return the time as the file writes it."""
    return datetime.fromtimestamp(expires_us / 1e6, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_items(path: Path) -> list[dict[str, Any]]:
    """Read the entries as they are in the file. Raises UsageError."""
    data = read_bounded("access file", path)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as problem:
        where = f": {problem}" if isinstance(problem, json.JSONDecodeError) else ""
        raise UsageError(f"access file {str(path)!r} is not JSON{where}") from None
    items = document.get("entries") if isinstance(document, dict) else None
    if not isinstance(items, list) or set(document) != {"entries"}:
        raise UsageError(f'access file {str(path)!r} must be one object with "entries", a list, and nothing else')
    return items


def read_entries(path: Path) -> list[AccessEntry]:
    """Read and check the entries. Raises UsageError, which names the wrong entry."""
    entries: list[AccessEntry] = []
    for number, item in enumerate(read_items(path), 1):
        try:
            entries.append(entry_of(item))
        except (UsageError, ValueError) as problem:
            text = _TOKENS.sub(r"\1...", str(problem))  # a token may be in the wrong field
            raise UsageError(f"access file {str(path)!r}, entry {number}: {text}") from None
    keys = [entry.id or entry.certificate for entry in entries]
    twice = sorted({key for key in keys if keys.count(key) > 1}) if len(set(keys)) < len(keys) else []
    if twice:
        raise UsageError(f"access file {str(path)!r}: {twice[0]!r} is there twice")
    return entries


def entry_of(item: Any) -> AccessEntry:
    """Check one item; return its entry. Raises UsageError with what is wrong, without the digest."""
    if not isinstance(item, dict):
        raise UsageError("it must be an object")
    unknown = sorted(set(item) - _FIELDS)
    if unknown:
        raise UsageError(f"unknown field {unknown[0]!r}; there are {', '.join(sorted(_FIELDS))}")
    name = _text(item, "name")
    check_name("token's owner", name)
    is_token = "sha256" in item
    if is_token == ("certificate" in item) or is_token != ("id" in item):
        raise UsageError(f'{name!r} needs either "id" and "sha256", or "certificate"')
    if is_token and not (
        re.fullmatch("[0-9a-f]{8}", _text(item, "id")) and re.fullmatch("[0-9a-f]{64}", _text(item, "sha256"))
    ):
        raise UsageError(f'{name!r}: "id" must be 8 hexadecimal digits and "sha256" 64')
    certificate = "" if is_token else _text(item, "certificate")
    if certificate and not re.match("(uri|dns|cn):.", certificate):
        raise UsageError(f'{name!r}: "certificate" must begin with uri:, dns: or cn:, not be {certificate!r}')
    enabled = item.get("enabled", True)
    if not isinstance(enabled, bool):
        raise UsageError(f'{name!r}: "enabled" must be true or false')
    return AccessEntry(
        name,
        _rights(item, name),
        item.get("id", ""),
        item.get("sha256", ""),
        certificate,
        None if item.get("expires") is None else parse_expiry(_text(item, "expires")),
        enabled,
    )


def parse_expiry(text: str) -> int:
    """Return a time such as ``2027-01-01T00:00:00Z`` in microseconds.

    Raises UsageError, also for a time without a zone, which is ambiguous.
    """
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(f"{text!r} is no time such as 2027-01-01T00:00:00Z") from None
    if when.tzinfo is None:
        raise UsageError(f"the time {text!r} has no zone: write it as {text}Z if it is UTC")
    return int(when.timestamp() * 1_000_000)


def _rights(item: Mapping[str, Any], name: str) -> Rights:
    roles = _texts(item, "roles", name)
    for role in roles:
        if role not in tuple(AccessRole):
            raise UsageError(f"{name!r}: unknown role {role!r}; there are {', '.join(AccessRole)}")
    own = (re.sub(r"([*?[])", r"[\1]", name),)  # escaped, so that it matches only itself
    replicas = _texts(item, "replicas", name) if "replicas" in item else own
    return Rights(frozenset(roles), _texts(item, "merges", name), replicas)


def _text(item: Mapping[str, Any], field: str) -> str:
    value = item.get(field)
    if not isinstance(value, str) or not value:
        raise UsageError(f'"{field}" must be a text, and not empty')
    return value


def _texts(item: Mapping[str, Any], field: str, name: str) -> tuple[str, ...]:
    value = item.get(field)
    if not isinstance(value, list) or not value or not all(isinstance(text, str) and text for text in value):
        raise UsageError(f'{name!r}: "{field}" must be a list of texts, and not empty')
    return tuple(value)
