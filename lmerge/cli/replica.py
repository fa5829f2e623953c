"""``lmerge replica``: one of the replicas that come with lmerge, in this process.

The flights of 2013 by five replicas: three in plain Python, two as queries of PySpark. Each is a package of its own,
with a ``__main__`` that runs without the command line as well; here they are found by name.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from lmerge.cli import terminal
from lmerge.cli.arguments import DEFAULT_SERVER, Servers
from lmerge.cli.connection import secured
from lmerge.errors import UsageError

app = typer.Typer(no_args_is_help=True, help="Run a replica that comes with lmerge: flights of 2013, replayed.")


class Kind(NamedTuple):
    """A replica that there is. ``module``: whose ``__main__`` runs it; ``style``: its name there."""

    module: str
    style: str
    summary: str


# By name, in the order of the help.
KINDS: Final = {
    "aggressive": Kind("replicas.flights", "aggressive", "tells all at once, revises"),
    "conservative": Kind("replicas.flights", "conservative", "tells only final events"),
    "open-ended": Kind("replicas.flights", "open-ended", "Ve = inf first, out of order"),
    "spark-append": Kind("replicas.spark", "append", "a query of PySpark, each flight once"),
    "spark-update": Kind("replicas.spark", "update", "a query of PySpark, with revisions"),
}
SPARK: Final = "replicas.spark"

Name = Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(KINDS)}.")]


@app.command("list")
def list_replicas() -> None:
    """The replicas that there are, each with what it is."""
    for name, kind in KINDS.items():
        terminal.line(f"{name:<14} {kind.summary}")


@app.command("run")
@secured
def run(
    name: Name,
    server: Servers = DEFAULT_SERVER,
    merge: Annotated[str, typer.Option("--merge", "-m", help="Name of the merge.")] = "flights",
    replica: Annotated[str | None, typer.Option("--replica", "-r", help="Its name in the merge; or else NAME.")] = None,
    speed: Annotated[float, typer.Option(help="Days a second.", min=0.001)] = 5.0,
    start: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="When the replay began, since the epoch; by default now.")
    ] = None,
    first: Annotated[str, typer.Option(metavar="DAY", help="First day of departure, in 2013.")] = "2013-01-01",
    last: Annotated[str, typer.Option(metavar="DAY", help="Last day of departure, in 2013.")] = "2013-12-31",
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Spark: where it keeps its place; without it, it begins anew.",
                                  file_okay=False)
    ] = None,
    *,
    security: Any,
) -> None:
    """Publish the flights of 2013 as one replica, at the pace of a replay clock.

    Example: lmerge replica run spark-append --server h1:7171,h2:7171 --checkpoint /var/lib/flights/a

    Ctrl-C and SIGTERM stop it in good order; one in Spark goes on from its checkpoint when it is started again. Exit
    code 0: everything was said.
    """
    from lmerge.client.connection.streams import parse_targets

    parse_targets(server)  # before anything is loaded that takes long
    kind = kind_of(name, checkpoint)
    arguments = [
        kind.style, "--server", server, "--merge", merge, "--replica", replica or name, "--speed", repr(speed),
        "--first", day_of(first), "--last", day_of(last),
        *([] if start is None else ["--start", repr(start)]),
        *([] if checkpoint is None else ["--checkpoint", str(checkpoint)]),
        *_shown(security),
    ]
    from importlib import import_module

    from replicas.process import leave

    code = import_module(f"{kind.module}.__main__").main(arguments)
    leave(code)


def _shown(security: Any) -> list[str]:
    """The options again, for the replica's own process; a token itself stays in the environment."""
    if security is None:
        return []
    files = {"--ca": security.ca, "--cert": security.cert, "--key": security.key, "--token-file": security.token_file}
    flags = {"--tls": security.tls, "--insecure": security.insecure}
    said = [word for option, path in files.items() if path is not None for word in (option, path)]
    return said + [option for option, is_said in flags.items() if is_said]


def kind_of(name: str, checkpoint: Path | None) -> Kind:
    """The replica of that name. Raises UsageError if there is none, or if it keeps no checkpoint."""
    if name not in KINDS:
        raise UsageError(f"there is no replica {name!r:.40}; there are {', '.join(KINDS)}")
    kind = KINDS[name]
    if checkpoint is not None and kind.module != SPARK:
        raise UsageError(f"{name} keeps nothing: --checkpoint is for the replicas in Spark")
    return kind


def day_of(text: str) -> str:
    """A day as it was given. Raises UsageError if it is none."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise UsageError(f"{text!r:.40} is no day such as 2013-02-08") from None
