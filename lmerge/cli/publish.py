"""``lmerge publish``: publish a stream in JSON lines to a merge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lmerge import terminal
from lmerge.addresses import DEFAULT_SERVER
from lmerge.cli.arguments import GiveUp, Merge, Promises, ReplicaName, Servers
from lmerge.cli.connection import secured
from lmerge.cli.lines import is_regular, opened, read_lines
from lmerge.cli.measured import measured
from lmerge.core.batch import AnyBatch, BatchBuilder, Row
from lmerge.core.session import ElementLine
from lmerge.errors import InputViolation, MalformedLine, UsageError

if TYPE_CHECKING:
    from lmerge.client import Publisher  # loads gRPC, so it is imported when the command runs

BATCH_ROWS_MAX: Final = 1024


@secured
@measured
def publish(
    merge: Merge,
    stream: Annotated[str, typer.Argument(metavar="[FILE]", help="Elements, JSON lines; - for standard input.")] = "-",
    replica: ReplicaName = "cli",
    property_: Promises = None,
    server: Servers = DEFAULT_SERVER,
    give_up_after: GiveUp = 10.0,
    *,
    metrics: Any,
    security: Any,
) -> None:
    """Publish a stream of elements: one JSON object a line, without "input".

    Example: lmerge publish flights replica.jsonl --replica a --property key

    Ends when the stream ends and everything is merged. Exit code 2: a malformed line, or an element that is not legal
    there; what came before it is merged.
    """
    sent, algorithm = publish_stream(
        server, merge, replica, stream, property_ or (), give_up_after, security, metrics=metrics
    )
    terminal.error(f"published {sent} elements to {merge}; it runs {algorithm}")


def publish_stream(
    server: str,
    merge: str,
    replica: str,
    stream: str,
    properties: Iterable[str],
    give_up_after: float,
    security: Any,
    *,
    seed: AnyBatch | None = None,
    metrics: Any = None,
) -> tuple[int, str]:
    """Publish ``seed`` and then the stream of a file.

    ``metrics``: a ClientMetrics that exports those of the publisher; None: nothing does.

    Returns the number of elements of the file and the algorithm that the merge runs. Raises UsageError for an element
    that is not legal.
    """
    from lmerge.client import Origin, Publisher, PublisherLimits

    with opened(stream, "stream") as source:
        batch_rows_max = BATCH_ROWS_MAX if is_regular(source) else 1
        try:
            with Publisher(
                server,
                merge,
                replica,
                properties=properties,
                origin=Origin(seed=seed),
                limits=PublisherLimits(give_up_after_s=give_up_after),
                security=security,
            ) as publisher:
                if metrics is not None:
                    metrics.watch(publisher)
                sent = _publish_lines(publisher, source, batch_rows_max)
        except InputViolation as violation:  # found by the server, which does not count lines
            raise UsageError(str(violation)) from None
    return sent, publisher.algorithm


def _publish_lines(publisher: Publisher, source: Iterable[bytes], batch_rows_max: int) -> int:
    """Publish all lines, wait until they are merged and return the number of elements.

    Raises MalformedLine after everything before the line is merged. Raises InputViolation.
    """
    sent = 0
    batch: list[tuple[int, Row]] = []
    try:
        for line, item in read_lines(source):
            if not isinstance(item, ElementLine):
                raise MalformedLine(line, "a stream has only insert, adjust and stable lines")
            if item.input is not None:
                raise MalformedLine(line, 'a stream has no "input"; for a session use replay')
            batch.append((line, item.row))
            if len(batch) >= batch_rows_max:
                full, batch = batch, []
                sent += _publish_rows(publisher, full)
    except MalformedLine:
        _publish_rows(publisher, batch)
        publisher.close()
        raise
    sent += _publish_rows(publisher, batch)
    publisher.flush()
    return sent


def _publish_rows(publisher: Publisher, batch: list[tuple[int, Row]]) -> int:
    """Publish rows with their line numbers and return how many they are.

    Raises MalformedLine for a row that is not legal, and what the publisher raises.
    """
    builder = BatchBuilder()
    builder.rows = [row for _, row in batch]
    try:
        publisher.publish(builder.build())
    except InputViolation as violation:
        publisher.flush()  # raises a violation that came from the server: its index is not one of this batch
        raise MalformedLine(batch[violation.index][0], str(violation)) from None
    return len(batch)
