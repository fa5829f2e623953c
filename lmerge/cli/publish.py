"""``lmerge publish``: a stream in JSON lines into a merge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lmerge.cli import terminal
from lmerge.cli.arguments import DEFAULT_SERVER, GiveUp, Merge, Promises, ReplicaName, Servers
from lmerge.cli.connection import secured
from lmerge.cli.lines import is_regular, opened, read_lines
from lmerge.core.batch import AnyBatch, BatchBuilder, Row
from lmerge.core.session import ElementLine
from lmerge.errors import InputViolation, MalformedLine, UsageError

if TYPE_CHECKING:
    from lmerge.client import Publisher  # it loads gRPC, so only when the command runs

BATCH_ROWS_MAX: Final = 1024


@secured
def publish(
    merge: Merge,
    stream: Annotated[str, typer.Argument(metavar="[FILE]", help="Elements, JSON lines; - for standard input.")] = "-",
    replica: ReplicaName = "cli",
    property_: Promises = None,
    server: Servers = DEFAULT_SERVER,
    give_up_after: GiveUp = 10.0,
    *,
    security: Any,
) -> None:
    """Publish a stream of elements, one JSON object a line, without "input".

    Example: lmerge publish flights replica.jsonl --replica a --property key

    Ends when the stream ends and everything is merged. Exit code 2: a malformed line, or an element that the stream may
    not say; what came before it is merged.
    """
    sent, algorithm = publish_stream(server, merge, replica, stream, property_ or (), give_up_after, security)
    terminal.error(f"published {sent} elements to {merge}; it runs {algorithm}")


def publish_stream(
    server: str, merge: str, replica: str, stream: str, properties: Iterable[str], give_up_after: float, security: Any,
    *, seed: AnyBatch | None = None,
) -> tuple[int, str]:
    """Say the stream of a file after ``seed``; how many elements it had, and the algorithm that the merge runs. Raises
    UsageError for what the stream may not say.
    """
    from lmerge.client import Publisher

    with opened(stream, "stream") as source:
        batch_rows_max = BATCH_ROWS_MAX if is_regular(source) else 1
        try:
            with Publisher(
                server, merge, replica, properties=properties, give_up_after_s=give_up_after, security=security,
                seed=seed,
            ) as publisher:
                sent = _publish_lines(publisher, source, batch_rows_max)
        except InputViolation as violation:  # found by the server, which counts no lines
            raise UsageError(str(violation)) from None
    return sent, publisher.algorithm


def _publish_lines(publisher: Publisher, source: Iterable[bytes], batch_rows_max: int) -> int:
    """Say all lines and wait until they are merged. The number of elements. Raises MalformedLine, with everything
    before it merged, and InputViolation.
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
                sent += _say(publisher, full)
    except MalformedLine:
        _say(publisher, batch)
        publisher.close()
        raise
    sent += _say(publisher, batch)
    publisher.flush()
    return sent


def _say(publisher: Publisher, batch: list[tuple[int, Row]]) -> int:
    """Say numbered rows; how many. Raises MalformedLine for one that the stream may not say, and what the publisher
    raises.
    """
    builder = BatchBuilder()
    builder.rows = [row for _, row in batch]
    try:
        publisher.publish(builder.build())
    except InputViolation as violation:
        publisher.flush()  # raises it, if it came from the server: then its index is not one of this batch
        raise MalformedLine(batch[violation.index][0], str(violation)) from None
    return len(batch)
