"""``lmerge reset``: a new epoch of a merge that is spoiled."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lmerge.cli import terminal
from lmerge.cli.arguments import DEFAULT_SERVER, Merge, Servers
from lmerge.cli.connection import secured


@secured
def reset(
    merge: Merge,
    server: Servers = DEFAULT_SERVER,
    reason: Annotated[str, typer.Option(help="For the log, and for those who publish and subscribe.")] = "",
    epoch: Annotated[
        int, typer.Option(help="Number of the new epoch, above the present one; 0: this machine's clock, in seconds.",
                          min=0)
    ] = 0,
    *,
    security: Any,
) -> None:
    """Empty a merge, and its store, and begin a new epoch of it. What it has said until now does not go on.

    Example: lmerge reset flights --server h1:7171,h2:7171 --reason "stable point in the year 9999"

    Publishers attach anew by themselves, with their live events; put one that spoils the merge out again. Subscribers
    end with an error, and tokens and checkpoints of before are refused: readers begin without, sinks in a new place.
    Name all servers of the merge at once. If one cannot be reached, do the same for it later, with the --epoch printed.
    """
    from lmerge.client.admin import reset_merge

    begun = reset_merge(server, merge, epoch=epoch, reason=reason, security=security)
    terminal.line(f"{merge} is reset: epoch {begun} has begun")
