"""How a command reaches its server, or is one: the security options that commands share, and what they mean.

    @secured
    def status(server: Server = DEFAULT_SERVER, *, security: Any) -> None: ...

The command gets ``security`` for the client library, and the options are added to its own. A token is never an option:
other users of a machine see command lines. LMERGE_TOKEN in the environment can hold it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from lmerge.cli.options import Option, with_options


def _flag(help_text: str, *declarations: str, env: str | None = None) -> Any:
    return Annotated[bool, typer.Option(*declarations, help=help_text, envvar=env, rich_help_panel="Security")]


def _file(help_text: str, env: str | None = None) -> Any:
    option = typer.Option(help=help_text, envvar=env, metavar="FILE", rich_help_panel="Security")
    return Annotated[str | None, option]


def _maybe(help_text: str) -> Any:
    return Annotated[bool | None, typer.Option(help=help_text, rich_help_panel="Security")]


# In the order of the help.
_CLIENT: Final[tuple[Option, ...]] = (
    ("tls", _flag("Encrypt; check the server by the system's CAs.", env="LMERGE_TLS"), False),
    ("ca", _file("Encrypt; check it by these CAs instead.", "LMERGE_CA"), None),
    ("cert", _file("The certificate to show.", "LMERGE_CERT"), None),
    ("key", _file("The key that belongs to it.", "LMERGE_KEY"), None),
    ("token_file", _file("The token to show.", "LMERGE_TOKEN_FILE"), None),
    ("insecure", _flag("Send a token unencrypted to another machine.", "--insecure"), False),
)
_SERVER: Final[tuple[Option, ...]] = (
    ("tls_cert", _file("Encrypt: the server's certificate."), None),
    ("tls_key", _file("The key that belongs to it."), None),
    ("tls_client_ca", _file("Clients show a certificate of this CA."), None),
    ("tokens", _file("Callers are in this file; see lmerge token."), None),
    ("insecure", _flag("Listen to others without certificates or tokens.", "--insecure"), False),
    ("reflection", _maybe("Answer gRPC reflection; by default where there are no tokens."), None),
)


def secured(command: Callable[..., None]) -> Callable[..., None]:
    """A client's command with the options; it must take ``security``, a Security or None."""

    def understood(said: dict[str, Any]) -> Any:
        from lmerge.client.connection.security import Security

        return Security.from_environment(**said)

    return with_options(command, "security", _CLIENT, understood)


def secured_server(command: Callable[..., None]) -> Callable[..., None]:
    """A server's command with the options; it must take ``security``, a dict of fields of Settings."""

    def understood(said: dict[str, Any]) -> Any:
        return {"access_path": said.pop("tokens"), **said}

    return with_options(command, "security", _SERVER, understood)
