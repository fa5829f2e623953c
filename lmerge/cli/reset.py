"""``lmerge reset``: begin a new epoch of a merge whose output is spoiled."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lmerge import terminal
from lmerge.addresses import DEFAULT_SERVER
from lmerge.cli.arguments import Merge, Servers
from lmerge.cli.connection import secured


@secured
def reset(
    merge: Merge,
    server: Servers = DEFAULT_SERVER,
    reason: Annotated[str, typer.Option(help="For the log, and sent to publishers and subscribers.")] = "",
    epoch: Annotated[
        int,
        typer.Option(
            help="Number of the new epoch, above the present one; 0: the clock in seconds, or the next number.", min=0
        ),
    ] = 0,
    *,
    security: Any,
) -> None:
    """Empty a merge and its store, and begin a new epoch. The output so far is not continued.

    Example: lmerge reset flights --server h1:7171,h2:7171 --reason "stable point in the year 9999"

    Publishers attach again by themselves, with their live events; detach the one that spoils the merge. Subscribers
    end with an error. Resume tokens and checkpoints of the old epoch are refused: start readers without one, and sinks
    in a new place. Give all servers of the merge at once. If one cannot be reached, reset it later with the --epoch
    that is printed.
    """
    from lmerge.client.admin import reset_merge

    begun = reset_merge(server, merge, epoch=epoch, reason=reason, security=security)
    terminal.line(f"{merge} is reset: epoch {begun} has begun")
