"""``lmerge jumpstart``: a replica that starts from a checkpoint instead of from the beginning (II.4)."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lmerge import terminal
from lmerge.addresses import DEFAULT_SERVER
from lmerge.cli.arguments import GiveUp, Merge, Promises, ReplicaName, Servers
from lmerge.cli.connection import secured
from lmerge.cli.lines import opened, read_lines
from lmerge.cli.publish import publish_stream
from lmerge.core.batch import AnyBatch, BatchBuilder
from lmerge.core.elements import INSERT, STABLE
from lmerge.core.session import ElementLine
from lmerge.errors import MalformedLine, UsageError


@secured
def jumpstart(
    merge: Merge,
    stream: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Elements from the checkpoint on; - for standard input.")
    ] = "-",
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", "-c", metavar="FILE", help="A file that lmerge checkpoint wrote.")
    ] = "",
    replica: ReplicaName = "cli",
    property_: Promises = None,
    server: Servers = DEFAULT_SERVER,
    give_up_after: GiveUp = 10.0,
    *,
    security: Any,
) -> None:
    """Publish the live events of a checkpoint, then a stream that continues from there, as one input.

    Example: lmerge jumpstart flights rest.jsonl --replica c --checkpoint flights.jsonl

    The input joins at the checkpoint's stable point. The merge does not wait for it, and takes nothing earlier from it.
    """
    if not checkpoint:
        raise UsageError("a checkpoint is needed: lmerge jumpstart MERGE --checkpoint FILE")
    with opened(checkpoint, "checkpoint") as source:
        seed = read_checkpoint(source)
    sent, algorithm = publish_stream(
        server, merge, replica, stream, property_ or (), give_up_after, security, seed=seed
    )
    terminal.error(f"published {seed.count} and {sent} elements to {merge}; it runs {algorithm}")


def read_checkpoint(source: Any) -> AnyBatch:
    """Return the inserts of a checkpoint and its one stable. Raises MalformedLine and UsageError."""
    builder = BatchBuilder()
    for number, line in read_lines(source):
        if builder.rows and builder.rows[-1][0] == STABLE:
            raise MalformedLine(number, "a checkpoint ends with its stable")
        if not isinstance(line, ElementLine) or line.input is not None or line.row[0] not in (INSERT, STABLE):
            raise MalformedLine(number, "a checkpoint has only inserts and then one stable, without inputs")
        builder.rows.append(line.row)
    if not builder.rows or builder.rows[-1][0] != STABLE:
        raise UsageError("the checkpoint is cut short: it does not end with a stable")
    return builder.build()
