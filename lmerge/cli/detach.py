"""``lmerge detach`` and ``lmerge release``: detach a replica from a merge, and let its name attach again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lmerge import terminal
from lmerge.addresses import DEFAULT_SERVER
from lmerge.cli.arguments import Merge, Server
from lmerge.cli.connection import secured

Replica = Annotated[str, typer.Argument(help="Name of the replica.")]


@secured
def detach(
    merge: Merge,
    replica: Replica,
    quarantine: Annotated[bool, typer.Option("--quarantine", help="Refuse its name until it is released.")] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget the incarnations of its name: any may attach next.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Sent to the replica, and shown in status.")] = "",
    server: Server = DEFAULT_SERVER,
    *,
    security: Any,
) -> None:
    """End the input of a replica. Its frozen events stay. Its publisher fails for good.

    Example: lmerge detach flights b --quarantine --reason "wrong prices"
    """
    from lmerge.client.admin import detach_input

    detach_input(server, merge, replica, reason=reason, quarantine=quarantine, forget=forget, security=security)
    also = " and quarantined" * quarantine + " and forgotten" * forget
    terminal.line(f"{replica} is detached from {merge}{also}")


@secured
def release(merge: Merge, replica: Replica, server: Server = DEFAULT_SERVER, *, security: Any) -> None:
    """Let a quarantined replica attach again; or release one whose stable is held or whose events are disputed.

    Example: lmerge release flights b
    """
    from lmerge.client.admin import release_input

    outcome = release_input(server, merge, replica, security=security)
    terminal.line(f"{merge}: {outcome}" if outcome else f"{replica} may attach to {merge} again")
