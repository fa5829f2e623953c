"""``lmerge detach`` and ``lmerge release``: put a replica out of a merge, and let it in again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lmerge.cli import terminal
from lmerge.cli.arguments import DEFAULT_SERVER, Merge, Server
from lmerge.cli.connection import secured

Replica = Annotated[str, typer.Argument(help="Name of the replica.")]


@secured
def detach(
    merge: Merge,
    replica: Replica,
    quarantine: Annotated[bool, typer.Option("--quarantine", help="Refuse its name until it is released.")] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Let its name begin again with any incarnation.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Said to the replica, and shown in status.")] = "",
    server: Server = DEFAULT_SERVER,
    *,
    security: Any,
) -> None:
    """End a replica's input; what it has said stands as far as it is frozen. Its publisher fails for good.

    Example: lmerge detach flights b --quarantine --reason "wrong prices"
    """
    from lmerge.client.admin import detach_input

    detach_input(server, merge, replica, reason=reason, quarantine=quarantine, forget=forget, security=security)
    also = " and quarantined" * quarantine + " and forgotten" * forget
    terminal.line(f"{replica} is detached from {merge}{also}")


@secured
def release(merge: Merge, replica: Replica, server: Server = DEFAULT_SERVER, *, security: Any) -> None:
    """Let a quarantined replica attach again, or one go on whose stable is held or whose version is disputed.

    Example: lmerge release flights b
    """
    from lmerge.client.admin import release_input

    words = release_input(server, merge, replica, security=security)
    terminal.line(f"{merge}: {words}" if words else f"{replica} may attach to {merge} again")
