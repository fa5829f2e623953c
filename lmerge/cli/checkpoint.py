"""``lmerge checkpoint``: the live events of a merge at a stable point, as a stream in JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lmerge import terminal
from lmerge.addresses import DEFAULT_SERVER
from lmerge.cli.arguments import GiveUp, Merge, Servers
from lmerge.cli.connection import secured
from lmerge.core.elements import INSERT, NEG_INF, STABLE, show_time
from lmerge.core.session import format_row
from lmerge.errors import UsageError
from lmerge.files import write_bytes


@secured
def checkpoint(
    merge: Merge,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="- for standard output.")] = "-",
    server: Servers = DEFAULT_SERVER,
    give_up_after: GiveUp = 10.0,
    *,
    security: Any,
) -> None:
    """Write the live events of a merge as inserts, then the stable point at which they are live.

    Example: lmerge checkpoint flights -o flights.jsonl

    A new replica starts from the file with lmerge jumpstart. If the merge has no stable point yet, waits for the first.
    """
    from lmerge.client import Subscriber, SubscriberLimits

    with Subscriber(
        server,
        merge,
        name="checkpoint",
        wait_for_merge=False,
        limits=SubscriberLimits(give_up_after_s=give_up_after),
        security=security,
    ) as subscriber:
        for _ in subscriber.batches():
            if subscriber.stable_point > NEG_INF:
                break
        table = subscriber.tdb
    rows = [format_row((INSERT, vs, ve, 0, payload)) for vs, payload, ve in table.live_events()]
    text = "\n".join([*rows, format_row((STABLE, table.stable_point, 0, 0, b""))]) + "\n"
    if output == "-":
        terminal.utf8()
        terminal.json_lines(text)
        return
    try:
        write_bytes(Path(output), text.encode())
    except OSError as problem:
        raise UsageError(f"cannot write the checkpoint {output!r}: {problem.strerror}") from None
    terminal.error(f"{len(rows)} live events of {merge} at {show_time(table.stable_point)}")
