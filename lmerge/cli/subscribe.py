"""``lmerge subscribe`` (also ``tail``): the merged stream on standard output."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated

import typer

from lmerge.cli.lines import quiet_when_closed
from lmerge.cli.publish import DEFAULT_SERVER, Server
from lmerge.core.batch import element_of
from lmerge.core.session import format_row


class Format(str, Enum):
    """How elements are printed."""

    JSON = "json"
    TEXT = "text"


def subscribe(
    merge: Annotated[str, typer.Argument(help="Name of the merge.")],
    server: Server = DEFAULT_SERVER,
    output_format: Annotated[
        Format, typer.Option("--format", "-f", help="json: lines as replay prints them; text: for people.")
    ] = Format.JSON,
    count: Annotated[int | None, typer.Option("--count", "-n", help="Stop after so many elements.", min=1)] = None,
    name: Annotated[str, typer.Option(help="Name of this subscriber, as status shows it.")] = "cli",
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Fail if there is no such merge yet.")] = False,
    give_up_after: Annotated[
        float | None, typer.Option(help="Seconds without a server after which to give up; without it, never.", min=0.0)
    ] = None,
) -> None:
    """Print the merged stream: its live events first, then everything new. Ends at stable(inf).

    Example: lmerge subscribe flights --format text

    Goes on by itself when the server is restarted; a stretch that may be missing is named on standard error.
    """
    from lmerge.client import Subscriber, SubscriptionGap
    from lmerge.core.elements import show_time

    def tell(gap: SubscriptionGap) -> None:
        sys.stderr.write(f"gap: events frozen from {show_time(gap.start)} to {show_time(gap.end)} may be missing\n")

    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    left = count
    with quiet_when_closed(), Subscriber(
        server, merge, name=name, wait_for_merge=not no_wait, give_up_after_s=give_up_after, on_gap=tell
    ) as subscriber:
        for batch in subscriber.batches():
            rows = list(batch.rows())[:left]
            lines = [format_row(row) if output_format is Format.JSON else str(element_of(row)) for row in rows]
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
            if left is not None:
                left -= len(rows)
                if left == 0:
                    return
