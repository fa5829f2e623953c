"""``lmerge query``: SQL on the live events of a merge, as of one stable point."""

from __future__ import annotations

import csv
import json
import sys
from enum import Enum
from typing import Annotated, Any

import typer

from lmerge import terminal
from lmerge.addresses import DEFAULT_SERVER
from lmerge.cli.arguments import Merge, Servers
from lmerge.cli.connection import secured
from lmerge.core.elements import NEG_INF, show_time


class QueryFormat(str, Enum):
    """Values of ``--output``."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@secured
def query(
    merge: Merge,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="Its table is named as the merge, or events.")],
    server: Servers = DEFAULT_SERVER,
    output: Annotated[QueryFormat, typer.Option("--output", "-o", help="table: for people; json: one line a row.")] = (
        QueryFormat.TABLE
    ),
    at: Annotated[int | None, typer.Option(help="Wait until the stable point has reached this time.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for a stable point.", min=0.0)] = 10.0,
    *,
    security: Any,
) -> None:
    """Query the events of a merge as of its stable point. Columns: those of the schema, vs, ve and is_final.

    Example: lmerge query flights "select carrier, count(*) from flights group by 1"

    Needs the extra 'sql'. Exit code 1: there was no stable point within the time.
    """
    from lmerge.client import SubscriberLimits, View
    from lmerge.client.views.view import import_duckdb

    import_duckdb()
    limits = SubscriberLimits(give_up_after_s=timeout)
    with View(merge, server, name="query", wait_for_merge=False, limits=limits, security=security) as view:
        view.wait_until(NEG_INF + 1 if at is None else at, timeout_s=timeout)
        point = view.at
        answer = view.sql(sql)
    terminal.utf8()
    with terminal.until_closed():
        write(answer, output, f"{answer.num_rows} rows as of {show_time(point)}")


def write(answer: Any, output: QueryFormat, title: str) -> None:
    """Print an Arrow table."""
    rows = answer.to_pylist()
    if output is QueryFormat.JSON:
        from lmerge.cli.enveloped import plain

        for row in rows:
            terminal.json_lines(json.dumps(row, default=plain, ensure_ascii=False, separators=(",", ":")) + "\n")
    elif output is QueryFormat.CSV:
        writer = csv.writer(terminal.DataOut(), lineterminator="\n")
        writer.writerow(answer.column_names)
        writer.writerows(row.values() for row in rows)
    else:
        from rich.table import Table

        table = Table(*answer.column_names, caption=title)
        for row in rows:
            table.add_row(*("" if value is None else str(value) for value in row.values()))
        terminal.table(terminal.console(soft_wrap=not sys.stdout.isatty()), table)
