"""``lmerge drain``: end a server without a gap for its clients."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lmerge import terminal
from lmerge.addresses import DEFAULT_SERVER
from lmerge.cli.arguments import Server
from lmerge.cli.connection import secured


@secured
def drain(
    server: Server = DEFAULT_SERVER,
    wait: Annotated[
        float, typer.Option(help="Seconds for which it goes on while clients leave; 0: none.", min=0, max=3600)
    ] = 5.0,
    wait_only: Annotated[
        bool, typer.Option("--wait-only", help="Announce and wait; a signal ends the server afterwards.")
    ] = False,
    *,
    security: Any,
) -> None:
    """Have a server announce its end, wait until its clients have left, and end.

    Example: lmerge drain --server h1:7171 --wait 30

    The server is not ready from now on, so that a load balancer or a Service chooses others. It ends when no publisher
    and no subscriber is left, or after --wait. Clients that are left then go on at their other servers. Needs a token
    with the role admin for every merge. A supervisor that restarts the server must be stopped first. --wait-only is for
    a preStop hook of Kubernetes, which sends the signal.
    """
    from lmerge.client.admin import drain_server

    left = drain_server(server, wait_s=wait, wait_only=wait_only, security=security)
    streams = f"{left.publishers} publishers and {left.subscribers} subscribers"
    ends = "can end" if wait_only else "ends"
    terminal.line(f"{server} {ends} after {left.waited_seconds:.1f} s; {streams} were left")
