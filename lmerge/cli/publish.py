"""``lmerge publish``: a stream in JSON lines into a merge."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from lmerge.cli.lines import is_regular, opened, read_lines
from lmerge.cli.serve import DEFAULT_PORT
from lmerge.core.batch import BatchBuilder
from lmerge.core.session import ElementLine
from lmerge.errors import InputViolation, MalformedLine

BATCH_ROWS_MAX: Final = 1024
Server = Annotated[str, typer.Option("--server", "-s", metavar="HOST:PORT", help="The merge server.")]
DEFAULT_SERVER: Final = f"127.0.0.1:{DEFAULT_PORT}"


def publish(
    merge: Annotated[str, typer.Argument(help="Name of the merge.")],
    stream: Annotated[str, typer.Argument(metavar="[FILE]", help="Elements, JSON lines; - for standard input.")] = "-",
    replica: Annotated[str, typer.Option("--replica", "-r", help="Name of this replica.")] = "cli",
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property", "-p", help="A promise: insert-only, ordered, strictly-ordered, deterministic-ties or key."
        ),
    ] = None,
    server: Server = DEFAULT_SERVER,
    give_up_after: Annotated[
        float, typer.Option(help="Seconds without a server after which to give up.", min=0.0)
    ] = 10.0,
) -> None:
    """Publish a stream of elements, one JSON object a line, without "input".

    Example: lmerge publish flights replica.jsonl --replica a --property key

    Ends when the stream ends and everything is merged. Exit code 2: a malformed line, or an element that the stream may
    not say; what came before it is merged.
    """
    from lmerge.client import Publisher

    sent = 0
    with opened(stream, "stream") as source:
        batch_rows_max = BATCH_ROWS_MAX if is_regular(source) else 1
        with Publisher(
            server, merge, replica, properties=property_ or (), give_up_after_s=give_up_after
        ) as publisher:
            builder = BatchBuilder()
            line = 0
            try:
                for line, item in read_lines(source):
                    if not isinstance(item, ElementLine):
                        raise MalformedLine(line, "a stream has only insert, adjust and stable lines")
                    if item.input is not None:
                        raise MalformedLine(line, 'a stream has no "input"; for a session use replay')
                    builder.rows.append(item.row)
                    if len(builder) >= batch_rows_max:
                        builder, full = BatchBuilder(), builder
                        sent += len(full)
                        publisher.publish(full.build())
            except MalformedLine:
                publisher.publish(builder.build())
                publisher.close()
                raise
            except InputViolation as violation:
                publisher.flush()
                raise MalformedLine(line - batch_rows_max + 1 + violation.index, str(violation)) from None
            sent += len(builder)
            publisher.publish(builder.build())
            publisher.flush()
    sys.stderr.write(f"published {sent} elements to {merge}; it runs {publisher.algorithm}\n")
