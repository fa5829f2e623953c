"""``lmerge certify``: whether the replicas of a merge publish the same events, and where they differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from lmerge import terminal
from lmerge.addresses import DEFAULT_SERVER
from lmerge.cli.arguments import Merge, Server
from lmerge.cli.connection import secured
from lmerge.core.elements import show_time

DIVERGENT_SHOWN: Final = 5


@secured
def certify(
    merge: Merge,
    server: Server = DEFAULT_SERVER,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
    *,
    security: Any,
) -> None:
    """Show over how many intervals each replica has equalled the others, and the events that differ.

    Example: lmerge certify flights

    Exit code 1: they differ in an interval whose digests are still kept.
    """
    from google.protobuf.json_format import MessageToDict

    from lmerge.client import describe_merge
    from lmerge.client.admin import certify_merge
    from lmerge.wire.rows import row_formatter

    found = certify_merge(server, merge, security=security)
    if as_json:
        text = json.dumps(
            MessageToDict(found, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        )
        terminal.json_lines(f"{text}\n")
    else:
        described = describe_merge(server, merge, security=security)
        show(merge, found, row_formatter(described.schema if described.HasField("schema") else None))
    if found.divergent:
        raise typer.Exit(1)


def show(merge: str, found: Any, text_of: Callable[[bytes], str]) -> None:
    """Print the comparison for people. ``text_of`` returns the text of a payload."""
    console = terminal.console(soft_wrap=True)
    if not found.interval:
        terminal.line(f"{merge} compares nothing (divergence policy {found.policy})")
        return
    terminal.line(f"{merge}: intervals of {found.interval:,}, divergence policy {found.policy}")
    for item in found.inputs:
        terminal.line(f"  {item.words}")
    for interval in list(found.divergent)[:DIVERGENT_SHOWN]:
        terminal.table(console, _interval(interval, text_of))
        if interval.missing:
            terminal.line(f"  {interval.missing}")
    more = len(found.divergent) - DIVERGENT_SHOWN
    if more > 0:
        terminal.line(f"and {more} more intervals that differ")
    if not found.divergent:
        terminal.line("no differences")


def _interval(interval: Any, text_of: Callable[[bytes], str]) -> Table:
    """Return a table of the events of an interval that not all replicas have; its title gives the digests."""
    counts = ", ".join(f"{item.replica} {item.events:,} events" for item in interval.digests)
    title = f"they differ in [{show_time(interval.start)}, {show_time(interval.end)}): {counts}"
    table = Table(title=title, title_justify="left")
    for name in ("event", "vs", "ve", "published by", "not by"):
        table.add_column(name)
    for item in interval.differences:
        table.add_row(
            text_of(item.payload),
            show_time(item.vs),
            show_time(item.ve),
            ", ".join(item.present),
            ", ".join(item.absent),
        )
    return table
