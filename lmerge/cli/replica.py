"""``lmerge replica``: run a replica in this process: one that comes with lmerge, or a plan of one's own.

Eight replicas publish the flights of 2013: three in plain Python, two as queries of PySpark, three as temporal plans.
Each is in a package with a ``__main__`` that also runs without this command, which finds them by their entry points
(``replica_programs``). A name that ends in ``.py`` or ``.json`` is a file with a query (``query_replica``).
"""

from __future__ import annotations

import os
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from lmerge import terminal
from lmerge.addresses import DEFAULT_SERVER
from lmerge.cli.arguments import RoleChoice, RoleOption, Servers
from lmerge.cli.connection import secured
from lmerge.cli.measured import measured_later
from lmerge.cli.plan_options import PlanOptions, QueryPlace, ReplayOptions, check_query_options, is_query_file, planned
from lmerge.errors import UsageError
from lmerge.replica_programs import ReplicaProgram, leave, replica_names, replica_program

DAYS_PER_SECOND: Final = 5.0
FIRST_DAY, LAST_DAY = "2013-01-01", "2013-12-31"
# The times of a query are microseconds: at a millionth of their speed, a stream in seconds is replayed as it was.
SPEED_MIN: Final = 1e-9

app = typer.Typer(
    no_args_is_help=True, help="Run a replica: one that comes with lmerge, or a plan of a query of your own."
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help=f"A file with a query (.py, .json), or one of {', '.join(replica_names()) or 'those that are installed'}.",
    ),
]


@app.command("list")
def list_replicas() -> None:
    """List the replicas, each with a summary."""
    for name in replica_names():
        terminal.line(f"{name:<20} {replica_program(name).summary}")


@app.command("run")
@secured
@measured_later
@planned
def run(
    name: Name,
    server: Servers = DEFAULT_SERVER,
    merge: Annotated[str, typer.Option("--merge", "-m", help="Name of the merge.")] = "flights",
    replica: Annotated[str | None, typer.Option("--replica", "-r", help="Name in the merge; default: NAME.")] = None,
    role: RoleOption = RoleChoice.ACTIVE,
    speed: Annotated[
        float | None,
        typer.Option(
            help="Of a replay: days a second (5); of a query: so many times as fast as it was.", min=SPEED_MIN
        ),
    ] = None,
    start: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Start of the replay, in s since 1970; default: now.")
    ] = None,
    first: Annotated[
        str | None, typer.Option(metavar="DAY", help=f"First day of the flights' departure; default: {FIRST_DAY}.")
    ] = None,
    last: Annotated[
        str | None, typer.Option(metavar="DAY", help=f"Last day of the flights' departure; default: {LAST_DAY}.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where a query keeps its place; without it, it starts anew.", file_okay=False),
    ] = None,
    *,
    chosen: PlanOptions,
    metrics: dict[str, str],
    security: Any,
) -> None:
    """Publish the result of a plan, or the flights of 2013 at the pace of a replay clock, as one replica.

    Examples: lmerge replica run query.py --plan eager --merge late --replica a;
    lmerge replica run spark-append --server h1:7171,h2:7171 --checkpoint /var/lib/flights/a

    Ctrl-C and SIGTERM stop it after its present step; with a checkpoint it goes on from there when it is started
    again. Exit code 0: everything was published. 130: it was stopped. 2: an option does not fit.
    """
    from lmerge.client.connection.streams import parse_targets

    parse_targets(server)  # an error in it is reported before the slow imports
    os.environ.update(metrics)
    if is_query_file(name):
        replay = ReplayOptions(speed, start, first, last)
        check_query_options(chosen, replay, checkpoint)
        from lmerge.cli.query_replica import run_query

        place = QueryPlace(server, merge, replica or Path(name).stem, role.value, security)
        leave(run_query(Path(name), chosen, place, replay, checkpoint))
    chosen.check_none(name)
    program = program_of(name, checkpoint)
    named = {"--server": server, "--merge": merge, "--replica": replica or name, "--role": role.value}
    named |= {"--speed": repr(speed or DAYS_PER_SECOND), "--first": day_of(first or FIRST_DAY)}
    named |= {"--last": day_of(last or LAST_DAY)}
    if start is not None:
        named["--start"] = repr(start)
    if checkpoint is not None:
        named["--checkpoint"] = str(checkpoint)
    options = [text for option, value in named.items() for text in (option, value)]
    leave(import_module(program.module).main([*program.arguments, *options, *_security_arguments(security)]))


def _security_arguments(security: Any) -> list[str]:
    """Return the options again, for the replica's own parser. A token itself stays in the environment."""
    if security is None:
        return []
    files = {"--ca": security.ca, "--cert": security.cert, "--key": security.key, "--token-file": security.token_file}
    flags = {"--tls": security.tls, "--insecure": security.insecure}
    given = [text for option, path in files.items() if path is not None for text in (option, path)]
    return given + [option for option, is_set in flags.items() if is_set]


def program_of(name: str, checkpoint: Path | None) -> ReplicaProgram:
    """Return the replica ``name``. Raises UsageError if there is none, or if it has no checkpoint."""
    program = replica_program(name)
    if checkpoint is not None and not program.has_checkpoint:
        raise UsageError(f"{name} has no checkpoint: --checkpoint is for queries, and for the replicas in Spark")
    return program


def day_of(text: str) -> str:
    """Return a day as text. Raises UsageError if it is none."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise UsageError(f"{text!r:.40} is no day such as 2013-02-08") from None
