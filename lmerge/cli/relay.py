"""``lmerge relay``: publish the output of a merge as an input of another merge."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from lmerge.cli.arguments import GiveUpOrWait
from lmerge.cli.connection import secured
from lmerge.cli.measured import measured


@secured
@measured
def relay(
    sources: Annotated[str, typer.Option("--from", metavar="HOST:PORT,...", help="Servers to read.")],
    merge: Annotated[str, typer.Option("--merge", "-m", help="The merge to read.")],
    targets: Annotated[str, typer.Option("--to", metavar="HOST:PORT,...", help="Servers to publish to.")],
    replica: Annotated[str, typer.Option("--as", metavar="NAME", help="Name of the replica in the target merge.")],
    to_merge: Annotated[str | None, typer.Option(help="The merge to publish to, if it has another name.")] = None,
    property_: Annotated[
        list[str] | None, typer.Option("--property", "-p", help="A promise of the merged stream, such as key.")
    ] = None,
    give_up_after: GiveUpOrWait = None,
    *,
    metrics: Any,
    security: Any,
) -> None:
    """Read a merge and publish its output to another merge, as one of its replicas.

    Example: lmerge relay --from h1:7171,h2:7171 --merge flights --to h3:7171,h4:7171 --as east

    A relay has no state of its own. Run two under two names, and either can be killed.
    """
    from lmerge.client.relay import Relay

    async def run() -> None:
        running = Relay(
            sources,
            merge,
            targets,
            replica,
            to_merge=to_merge,
            properties=property_ or (),
            give_up_after_s=give_up_after,
            security=security,
        )
        if metrics is not None:
            metrics.watch(running)
        await running.run()

    asyncio.run(run())
