"""``lmerge cutover``: replace a replica by another without a stop of the merge."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lmerge import terminal
from lmerge.addresses import DEFAULT_SERVER
from lmerge.cli.arguments import Merge, Servers
from lmerge.cli.connection import secured


@secured
def cutover(
    merge: Merge,
    leaves: Annotated[str, typer.Option("--from", help="The replica that leaves.")],
    to: Annotated[str, typer.Option("--to", help="The replica that takes over; until then it may be an observer.")],
    intervals: Annotated[int, typer.Option(help="Equal intervals in a row that certify it; 0: server's default.")] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds after which it rolls back; 0: server's default.")] = 0.0,
    server: Servers = DEFAULT_SERVER,
    *,
    security: Any,
) -> None:
    """Wait for the new replica, certify that it publishes the same events, promote it and detach the old one.

    Example: lmerge cutover flights --from v1 --to v2 --intervals 5

    Name all servers of the merge: the old replica is detached when the new one counts at each of them.

    Exit code 1: the cutover was rolled back and nothing has changed. The old name is refused until `lmerge release`.
    """
    from lmerge.client.admin import DONE
    from lmerge.client.admin import cutover as cut_over

    stage = ""
    for progress in cut_over(server, merge, leaves, to, intervals=intervals, security=security, timeout_s=timeout):
        stage = progress.stage
        terminal.line(f"{stage:<12} {progress.words}")
        terminal.flush()
    if stage != DONE:
        raise typer.Exit(1)
