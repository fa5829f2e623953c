"""``lmerge top``: a live view of a merge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from lmerge import terminal
from lmerge.addresses import DEFAULT_SERVER
from lmerge.cli.arguments import Server
from lmerge.cli.connection import secured
from lmerge.cli.status import merge_view, merges_table
from lmerge.errors import UsageError


@secured
def top(
    merge: Annotated[str | None, typer.Argument(help="Name of a merge; not needed if there is only one.")] = None,
    server: Server = DEFAULT_SERVER,
    interval: Annotated[float, typer.Option(help="Seconds between two updates.", min=0.1, max=60.0)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show one update after one interval; for scripts.")] = False,
    *,
    security: Any,
) -> None:
    """Watch a merge: inputs, lag, rates, and each input's share of the output. Ctrl-C ends it.

    Example: lmerge top flights
    """
    from lmerge.client import describe_merge, list_merges

    console = terminal.console()
    if merge is None:
        merges = list_merges(server, security=security)
        if len(merges) != 1:
            if merges:
                terminal.table(console, merges_table(server, merges))
            raise UsageError(f"there are {len(merges)} merges at {server}: choose one with MERGE")
        merge = merges[0].merge
    before, before_s = describe_merge(server, merge, security=security), time.monotonic()
    if once:
        time.sleep(interval)
        described = describe_merge(server, merge, security=security)
        terminal.table(console, merge_view(described, rates(before, described, time.monotonic() - before_s)))
        return
    with terminal.until_closed(), _shown(console) as show:
        show(merge_view(before, {}))
        while True:
            time.sleep(interval)
            described, now_s = describe_merge(server, merge, security=security), time.monotonic()
            show(merge_view(described, rates(before, described, now_s - before_s)))
            before, before_s = described, now_s


@contextmanager
def _shown(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Yield a function that shows a view: in place of the one before on a terminal, below it in a pipe or a file."""
    if not console.is_terminal:
        yield lambda view: terminal.table(console, view)
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield lambda view: live.update(terminal.Escaped(view), refresh=True)


def rates(before: Any, after: Any, elapsed_s: float) -> dict[str, float]:
    """Return elements/s between two descriptions of a merge: of every input by name, of the output by ""."""
    earlier = {(item.replica, item.incarnation): _sum(item.received) for item in before.inputs}
    per_s = {
        item.replica: (_sum(item.received) - earlier.get((item.replica, item.incarnation), 0)) / elapsed_s
        for item in after.inputs
    }
    return per_s | {"": (_sum(after.emitted) - _sum(before.emitted)) / elapsed_s}


def _sum(counts: Any) -> int:
    return int(counts.inserts + counts.adjusts + counts.stables)
