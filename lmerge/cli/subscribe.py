"""``lmerge subscribe`` (also ``tail``): print the merged stream."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmerge import terminal
from lmerge.addresses import DEFAULT_SERVER
from lmerge.cli.arguments import GiveUpOrWait, IfTooOld, Merge, Servers, SubscriberName
from lmerge.cli.connection import secured
from lmerge.cli.enveloped import EnvelopeName, as_columns, as_json, delivered, lines_of
from lmerge.cli.measured import measured
from lmerge.core.batch import element_of
from lmerge.core.session import format_row

if TYPE_CHECKING:
    from lmerge.client import Subscriber  # loads gRPC, so it is imported when the command runs


class Format(str, Enum):
    """Values of ``--format``."""

    JSON = "json"
    TEXT = "text"
    TABLE = "table"


@secured
@measured
def subscribe(
    merge: Merge,
    server: Servers = DEFAULT_SERVER,
    output_format: Annotated[
        Format, typer.Option("--format", "--output", "-f", help="json: lines as in sessions; text, table: for people.")
    ] = Format.JSON,
    envelope: Annotated[
        EnvelopeName,
        typer.Option(help="elements as merged; final: only final events; upsert: rows by key; retract: + and -."),
    ] = EnvelopeName.ELEMENTS,
    count: Annotated[int | None, typer.Option("--count", "-n", help="Stop after so many elements.", min=1)] = None,
    name: SubscriberName = "cli",
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Fail if there is no such merge yet.")] = False,
    give_up_after: GiveUpOrWait = None,
    resume: Annotated[
        str | None, typer.Option(metavar="MERGE@T", help="Resume where a reader stopped; T: its last stable.")
    ] = None,
    if_too_old: Annotated[
        IfTooOld, typer.Option(help="When no server has the output since T: error, or a snapshot and a gap.")
    ] = IfTooOld.ERROR,
    *,
    metrics: Any,
    security: Any,
) -> None:
    """Print the merged stream: the live events first, then every new element. Ends at stable(inf).

    Example: lmerge subscribe flights --format text

    Resumes by itself when the server is restarted. A gap is reported on standard error.
    """
    from lmerge.client import Subscriber, SubscriberLimits, SubscriptionGap
    from lmerge.core.elements import show_time

    def print_gap(gap: SubscriptionGap) -> None:
        terminal.error(f"gap: events frozen from {show_time(gap.start)} to {show_time(gap.end)} may be missing")

    terminal.utf8()
    with (
        terminal.until_closed(),
        Subscriber(
            server,
            merge,
            name=name,
            resume=resume,
            if_too_old=if_too_old.value,
            wait_for_merge=not no_wait,
            on_gap=print_gap,
            limits=SubscriberLimits(give_up_after_s=give_up_after),
            security=security,
        ) as subscriber,
    ):
        if metrics is not None:
            metrics.watch(subscriber)
        if envelope is EnvelopeName.ELEMENTS:
            show_elements(subscriber, output_format, count)
        else:
            show_deliveries(subscriber, envelope, output_format, count)


def show_elements(subscriber: Subscriber, output_format: Format, count: int | None) -> None:
    """Print the elements of the stream, ``count`` at most."""
    left = count
    for batch in subscriber.batches():
        rows = list(batch.rows())[:left]
        texts = [format_row(row) if output_format is Format.JSON else str(element_of(row)) for row in rows]
        _show("\n".join(texts) + "\n", output_format)
        left = None if left is None else left - len(rows)
        if left == 0:
            return


def show_deliveries(subscriber: Subscriber, envelope: EnvelopeName, output_format: Format, count: int | None) -> None:
    """Print the lines of an envelope, ``count`` at most."""
    left = count
    write = as_json if output_format is Format.JSON else as_columns
    for delivery in delivered(subscriber, envelope):
        lines = list(lines_of(delivery))[:left]
        _show(write(lines), output_format)
        left = None if left is None else left - len(lines)
        if left == 0:
            return


def _show(text: str, output_format: Format) -> None:
    show = terminal.json_lines if output_format is Format.JSON else terminal.lines
    show(text)
    terminal.flush()
