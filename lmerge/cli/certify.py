"""``lmerge certify``: do the replicas of a merge say the same, and where not?"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from lmerge.cli.arguments import DEFAULT_SERVER, Merge, Server
from lmerge.cli.connection import secured
from lmerge.core.elements import show_payload, show_time

DIVERGENT_SHOWN: Final = 5


@secured
def certify(
    merge: Merge,
    server: Server = DEFAULT_SERVER,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
    *,
    security: Any,
) -> None:
    """Show over how many intervals each replica has been equal to the others, and the events that differ.

    Example: lmerge certify flights

    Exit code 1: they differ in an interval that is still remembered.
    """
    from google.protobuf.json_format import MessageToDict

    from lmerge.client.admin import certify_merge

    found = certify_merge(server, merge, security=security)
    if as_json:
        typer.echo(json.dumps(MessageToDict(
            found, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )))
    else:
        show(Console(soft_wrap=True), merge, found)
    if found.divergent:
        raise typer.Exit(1)


def show(console: Console, merge: str, found: Any) -> None:
    """For people."""
    if not found.interval:
        console.print(f"{merge} compares nothing (divergence policy {found.policy})")
        return
    console.print(f"{merge}: intervals of {found.interval:,}, divergence policy {found.policy}")
    for item in found.inputs:
        console.print(f"  {item.words}", highlight=False)
    for interval in list(found.divergent)[:DIVERGENT_SHOWN]:
        console.print(_interval(interval))
        if interval.missing:
            console.print(f"  {interval.missing}", highlight=False)
    more = len(found.divergent) - DIVERGENT_SHOWN
    if more > 0:
        console.print(f"and {more} more intervals that differ")
    if not found.divergent:
        console.print("no differences")


def _interval(interval: Any) -> Table:
    """The digests, and the events that not all have."""
    says = ", ".join(f"{item.replica} {item.events:,} events" for item in interval.digests)
    title = f"they differ in [{show_time(interval.start)}, {show_time(interval.end)}): {says}"
    table = Table(title=title, title_justify="left")
    for name in ("event", "vs", "ve", "said by", "not by"):
        table.add_column(name)
    for item in interval.differences:
        table.add_row(
            show_payload(item.payload), show_time(item.vs), show_time(item.ve), ", ".join(item.present),
            ", ".join(item.absent),
        )
    return table
