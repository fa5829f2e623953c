"""Arguments that several commands take: said once, so that they are the same everywhere."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from lmerge.cli.serve import DEFAULT_PORT

DEFAULT_SERVER: Final = f"127.0.0.1:{DEFAULT_PORT}"

Merge = Annotated[str, typer.Argument(help="Name of the merge.")]
Server = Annotated[str, typer.Option("--server", "-s", metavar="HOST:PORT", help="The merge server.")]
Servers = Annotated[str, typer.Option("--server", "-s", metavar="HOST:PORT,...", help="The merge server, or several.")]
ReplicaName = Annotated[str, typer.Option("--replica", "-r", help="Name of this replica.")]
Promises = Annotated[
    list[str] | None,
    typer.Option(
        "--property", "-p", help="A promise: insert-only, ordered, strictly-ordered, deterministic-ties or key."
    ),
]
SubscriberName = Annotated[str, typer.Option(help="Name of this subscriber, as status shows it.")]
GiveUp = Annotated[
    float, typer.Option(metavar="SECONDS", help="Seconds without a server after which to give up.", min=0.0)
]
GiveUpOrWait = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Seconds without a server after which to give up; without it, never.", min=0.0
    ),
]
