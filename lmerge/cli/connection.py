"""The security options of commands that connect to a server, and of ``lmerge serve``.

    @secured
    def status(server: Server = DEFAULT_SERVER, *, security: Any) -> None: ...

The options are added to those of the command. The command gets ``security`` for the client library. A token is never
an option, because other users of a machine see command lines. LMERGE_TOKEN in the environment can hold it.
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
    ("ca", _file("Encrypt; check the server by these CAs.", "LMERGE_CA"), None),
    ("cert", _file("The client's certificate.", "LMERGE_CERT"), None),
    ("key", _file("The key of the client's certificate.", "LMERGE_KEY"), None),
    ("token_file", _file("The file with the client's token.", "LMERGE_TOKEN_FILE"), None),
    ("insecure", _flag("Send a token unencrypted to another machine.", "--insecure"), False),
)
_SERVER: Final[tuple[Option, ...]] = (
    ("tls_cert", _file("Encrypt: the server's certificate."), None),
    ("tls_key", _file("The key of the server's certificate."), None),
    ("tls_client_ca", _file("Require client certificates of this CA."), None),
    ("tokens", _file("The access file: who may do what; see lmerge token."), None),
    ("insecure", _flag("Listen to other machines without certificates or tokens.", "--insecure"), False),
    ("reflection", _maybe("Answer gRPC reflection; by default only without --tokens."), None),
)


def secured(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a client's command. It must take ``security``, a Security or None."""

    def convert(values: dict[str, Any]) -> Any:
        from lmerge.client.connection.security import Security

        return Security.from_environment(**values)

    return with_options(command, "security", _CLIENT, convert)


def secured_server(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a server's command. It must take ``security``, a dict of fields of Settings."""

    def convert(values: dict[str, Any]) -> Any:
        return {"access_path": values.pop("tokens"), **values}

    return with_options(command, "security", _SERVER, convert)
