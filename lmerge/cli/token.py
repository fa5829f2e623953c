"""``lmerge token``: edit the access file of a server (``lmerge serve --tokens``), which states who may do what."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Final, TextIO

import typer

from lmerge import terminal
from lmerge.errors import LmergeError, UsageError
from lmerge.service.choices import AccessRole

app = typer.Typer(no_args_is_help=True, help="Make, show and revoke the tokens of a server.")

AccessPath = Annotated[
    Path, typer.Option("--file", "-f", metavar="FILE", envvar="LMERGE_TOKENS", help="The access file of the server.")
]
_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400}


@app.command("make")
def make_token(
    name: Annotated[str, typer.Argument(help="The owner of the token, and the replica that it may publish as.")],
    file: AccessPath,
    role: Annotated[list[AccessRole], typer.Option(help="What the token allows; repeatable.")],
    merge: Annotated[list[str], typer.Option(help="Its merges: names or patterns such as 'eu-*'; repeatable.")],
    replica: Annotated[
        list[str] | None, typer.Option(help="Its replicas, if not NAME: names or patterns; repeatable.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="WHEN", help="In 90m, 12h, 30d, or at 2027-01-01T00:00:00Z; default: never.")
    ] = None,
    certificate: Annotated[
        str | None, typer.Option(help="Instead of a token: the uri:, dns: or cn: name of a certificate.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the token to this file, readable by its owner only, not to the terminal.")
    ] = None,
) -> None:
    """Make a token. It is shown once, and only here: the file stores a digest.

    Example: lmerge token make a --file access.json --role publish --merge flights --expires 30d --out a.token
    """
    from lmerge.service.security import tokens

    if certificate is not None and out is not None:
        raise UsageError("there is no token to write for a certificate: leave --out away")
    expires_us = None if expires is None else expiry_us(expires)
    with nullcontext() if out is None else _new_private_file(out) as written:
        token = tokens.make(file, name, [item.value for item in role], merge, replica, expires_us, certificate)
        try:
            if token and written is not None:
                written.write(f"{token}\n")
                written.flush()
            elif token:
                terminal.line(token)
                terminal.flush()
        except (OSError, LmergeError):
            tokens.revoke(file, token.split("_")[1])  # the token was not delivered, so it must not be valid
            raise
    if certificate is not None:
        terminal.error(f"the certificate {certificate} now has the rights of {name}")


@app.command("list")
def list_tokens(file: AccessPath) -> None:
    """Show the entries of an access file. It holds no tokens, so none are shown."""
    from rich.table import Table

    from lmerge import clock
    from lmerge.service.security.access_file import read_entries, show_expiry

    table = Table()
    for title in ("name", "id or certificate", "roles", "merges", "replicas", "expires", "state"):
        table.add_column(title, overflow="fold")
    for entry in read_entries(file):
        rights = entry.rights
        is_over = entry.expires_us is not None and entry.expires_us <= clock.wall_us()
        table.add_row(
            entry.name,
            entry.id or entry.certificate,
            " ".join(sorted(rights.roles)),
            " ".join(rights.merges),
            " ".join(rights.replicas) if AccessRole.PUBLISH in rights.roles else "",
            "never" if entry.expires_us is None else show_expiry(entry.expires_us),
            "revoked" if not entry.enabled else "expired" if is_over else "valid",
        )
    terminal.table(terminal.console(), table)


@app.command("inspect")
def inspect_token(
    file: AccessPath,
    token_file: Annotated[
        Path | None, typer.Option(help="The file with the token; else LMERGE_TOKEN, else standard input.")
    ] = None,
) -> None:
    """Show the owner of a token and whether it is valid now.

    Example: lmerge token inspect --file access.json --token-file a.token
    """
    from lmerge.service.security.access_file import AccessFile

    if token_file is not None:
        try:
            text = token_file.read_text(errors="replace")
        except OSError as problem:
            raise UsageError(f"token file {str(token_file)!r} cannot be read: {problem.strerror}") from None
    else:
        text = os.environ.get("LMERGE_TOKEN") or sys.stdin.readline()
    identity = AccessFile(file).by_token(text.strip())
    terminal.line(f"{identity.name} is valid")
    for rights in identity.rights:
        as_replicas = f" as {' '.join(rights.replicas)}" if AccessRole.PUBLISH in rights.roles else ""
        terminal.line(f"may {' '.join(sorted(rights.roles))} in {' '.join(rights.merges)}{as_replicas}")


@app.command("revoke")
def revoke_token(
    which: Annotated[str, typer.Argument(help="Name, id or certificate of the entries.")], file: AccessPath
) -> None:
    """Revoke tokens. A running server ends their streams within about two seconds.

    Example: lmerge token revoke 3f9a2c11 --file access.json
    """
    from lmerge.service.security import tokens

    for name in tokens.revoke(file, which):
        terminal.error(f"{name} is revoked")


@contextmanager
def _new_private_file(path: Path) -> Iterator[TextIO]:
    """Yield a new file for a token, deleted again if the block fails.

    It is opened before the token is made, so that no token is made and lost.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as problem:
        raise UsageError(f"the token cannot be written to {str(path)!r}: {problem.strerror}") from None
    try:
        with open(descriptor, "w") as file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def expiry_us(text: str) -> int:
    """Return ``30d`` from now, or a time, in microseconds since the epoch. Raises UsageError."""
    from lmerge import clock
    from lmerge.service.security.access_file import parse_expiry

    match = re.fullmatch(r"([1-9]\d{0,5})([mhd])", text)
    if match is None:
        return parse_expiry(text)
    return clock.wall_us() + int(match[1]) * _UNITS[match[2]] * 1_000_000
