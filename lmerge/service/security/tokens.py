"""Makes and revokes tokens: the writer of the access file, used by ``lmerge token``.

A token is shown once, when it is made. A new file is written beside the old one and renamed, so a server never reads
half a file. Of two writers, one waits for the other.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lmerge.errors import UsageError
from lmerge.service.security.access_file import digest_of, entry_of, read_entries, read_items, show_expiry


def make(
    path: Path,
    name: str,
    roles: Sequence[str],
    merges: Sequence[str],
    replicas: Sequence[str] | None = None,
    expires_us: int | None = None,
    certificate: str | None = None,
) -> str:
    """Add an entry to the file, which is made if needed; return the new token.

    For a ``certificate`` there is no token, and "" is returned. Raises UsageError; the file is unchanged then.
    """
    with _edited(path) as items:
        item: dict[str, Any] = {"name": name}
        token = ""
        if certificate is None:
            taken = {other.get("id") for other in items if isinstance(other, dict)}
            token_id = next(text for text in iter(lambda: secrets.token_hex(4), None) if text not in taken)
            token = f"lmt_{token_id}_{secrets.token_hex(32)}"
            item |= {"id": token_id, "sha256": digest_of(token)}
        else:
            item["certificate"] = certificate
        item |= {"roles": list(roles), "merges": list(merges)}
        if replicas:
            item["replicas"] = list(replicas)
        if expires_us is not None:
            item["expires"] = show_expiry(expires_us)
        entry_of(item)
        items.append(item)
    return token


def revoke(path: Path, which: str) -> list[str]:
    """Disable the entries with this id, certificate or name; return their names.

    Raises UsageError if there is no enabled one.
    """
    revoked = []
    with _edited(path) as items:
        for item in items:
            entry = entry_of(item)
            if entry.enabled and which in (entry.id, entry.certificate, entry.name):
                item["enabled"] = False
                revoked.append(entry.identity.name)
        if not revoked:
            raise UsageError(f"access file {str(path)!r} has no valid entry {which!r}")
    return revoked


@contextmanager
def _edited(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Give the entries, to be changed; write them at the end. Nothing is written if the caller raises."""
    path = path.resolve()  # so that a symbolic link stays one
    lock = path.with_name(f".{path.name}.lock")
    written = path.with_name(f".{path.name}.new")
    try:
        with open(os.open(lock, os.O_WRONLY | os.O_CREAT, 0o600), "w") as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            items = read_items(path) if path.exists() else []
            yield items
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
            with open(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
                json.dump({"entries": items}, file, indent=2)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            read_entries(written)  # never leave a file that a server would refuse
            written.replace(path)
    except OSError as problem:
        raise UsageError(f"access file {str(path)!r} cannot be written: {problem.strerror}") from None
