"""`lmerge demo`: a merged stream of real flights survives kills of replicas and servers, and its table is checked.

Mounted by `main`. Exit code 0: the merged table equals what DuckDB computes from the raw table, nothing is lost,
duplicated or contradicted, and all processes that were killed came back. 1: the table is wrong, or something did not
work. 2: a usage error, such as a missing package. 3: the table is right, but a process that was killed did not come
back in time, so the demo shows less.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from lmerge import terminal
from lmerge.demo.capacity import fitted, measure
from lmerge.demo.days import parse_days
from lmerge.demo.judge import require_packages
from lmerge.demo.run import DemoOptions, run_demo
from lmerge.demo.spark import Spark, without_spark
from lmerge.demo.verdict import DemoVerdict
from lmerge.demo.view import DemoView, draw, draw_verdict, verdict_lines

REPLAY_S = 60.0  # with the start and the verdict, the year takes about 70 s
PICTURE_COLUMNS = 116


def demo(
    months: Annotated[
        str | None,
        typer.Option(
            help="Months of 2013, such as 2 or 1-3; default: as many as the machine can replay.", metavar="M[-N]"
        ),
    ] = None,
    days: Annotated[int | None, typer.Option(help="Only the first so many days of those months.", min=1)] = None,
    seconds: Annotated[
        float, typer.Option(help="Length of the replay; it takes longer on a slow machine.", min=2.0, max=3600.0)
    ] = REPLAY_S,
    kills: Annotated[int, typer.Option(help="How often the winning replica is killed.", min=0, max=2)] = 2,
    server_kills: Annotated[int, typer.Option(help="How often one of the two servers is killed.", min=0, max=1)] = 1,
    spark: Annotated[Spark, typer.Option(help="A fifth replica, in PySpark; auto: where PySpark runs.")] = Spark.AUTO,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as one JSON object.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Print lines, also in a terminal.")] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Save the view after the first kill and the verdict as SVG.", dir_okay=False)
    ] = None,
) -> None:
    """Merge replicas of a year of flights on two servers, kill the leading replica and a server, check the output.

    Three replicas are plain Python, the fourth runs a temporal plan, and the fifth is a query of PySpark.

    The command measures the machine first. From that follow the pace of the replay and, without --months and --days,
    how much of the year is replayed. The replay waits for processes that start again: nothing is killed before all
    are back, and it ends when all are back.

    Exit code 0: nothing is lost, duplicated or wrong, and all that was killed came back. 1: the table is wrong, or
    something did not work. 3: the table is right, but a process that was killed did not come back in time.
    """
    console = terminal.console(stderr=as_json)  # standard output is for the verdict
    show_line = terminal.error if as_json else terminal.line_at_once
    view = DemoView(show_line, console if console.is_terminal and not plain else None)
    require_packages()
    why_no_spark = without_spark(spark)
    capacity = measure(has_spark=not why_no_spark)
    chosen_days = parse_days(months or "1-12", days)
    fit = fitted(chosen_days, seconds, capacity.days_per_s, may_shorten=months is None and days is None)
    options = DemoOptions(fit.days, fit.seconds, kills, server_kills, why_no_spark, spark is Spark.YES, str(capacity))
    with view:
        verdict = run_demo(options, view)
    if view.is_live:
        terminal.table(console, draw_verdict(verdict))
    else:
        for text in verdict_lines(verdict):
            show_line(text)
    if as_json:
        terminal.json_lines(json.dumps(verdict.as_json()) + "\n")
    if picture is not None:
        save_picture(picture, view, verdict)
    raise typer.Exit(verdict.exit_code)


def save_picture(path: Path, view: DemoView, verdict: DemoVerdict) -> None:
    """Write the view after the first kill and the verdict as one SVG."""
    shown = [] if view.after_kill is None else [draw(view.after_kill)]
    svg = terminal.svg([*shown, draw_verdict(verdict)], columns=PICTURE_COLUMNS, title="lmerge demo")
    path.parent.mkdir(parents=True, exist_ok=True)
    without_remote_fonts = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    path.write_text(without_remote_fonts, encoding="utf-8")
