"""``lmerge sink``: the merged stream into Parquet files or a PostgreSQL table, from where it was left."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from lmerge.cli import terminal
from lmerge.cli.arguments import DEFAULT_SERVER, GiveUpOrWait, Merge, Servers, SubscriberName
from lmerge.cli.connection import secured
from lmerge.core.elements import NEG_INF, show_time
from lmerge.wire.token import format_token

if TYPE_CHECKING:
    from lmerge.client import SubscriptionGap
    from lmerge.client.sinks import Progress, Subscribe

app = typer.Typer(no_args_is_help=True, help="Write the merged stream to files or to a table, exactly once.")
INTERRUPTED = 130


class IfTooOld(str, Enum):
    """What to do when no server has all that came since the sink was stopped."""

    ERROR = "error"
    SNAPSHOT = "snapshot"


TooOld = Annotated[
    IfTooOld, typer.Option(help="No server has all that came since: error, or go on and report what is missing.")
]
FromStart = Annotated[
    bool, typer.Option("--from-start", help="The first time, begin at the beginning, not with the live events of now.")
]
Every = Annotated[
    float,
    typer.Option("--progress", metavar="SECONDS", help="Seconds between lines of progress; 0: none.", min=0.0),
]


class Sink(Protocol):
    """What the commands run."""

    async def run(self, subscribe: Subscribe) -> Progress: ...
    def stop(self) -> None: ...


@app.command("parquet")
@secured
def parquet(
    merge: Merge,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files go; made if it is not there.")],
    server: Servers = DEFAULT_SERVER,
    file_events: Annotated[int, typer.Option(help="Events after which a file is complete.", min=1)] = 1_000_000,
    file_bytes: Annotated[int, typer.Option(help="Bytes of payload after which it is.", min=1)] = 256 * 2**20,
    roll_interval: Annotated[
        int | None, typer.Option(help="Time, in units of the stream, that a file spans at most.", min=1)
    ] = None,
    roll_seconds: Annotated[float | None, typer.Option(help="Age at which a file is complete.", min=0.001)] = None,
    name: SubscriberName = "parquet sink",
    from_start: FromStart = False,
    if_too_old: TooOld = IfTooOld.ERROR,
    give_up_after: GiveUpOrWait = None,
    progress: Every = 10.0,
    *,
    security: Any,
) -> None:
    """Write final events to Parquet files, each event to exactly one.

    Example: lmerge sink parquet flights out/ --roll-seconds 60

    A file has its name once it is whole. Started again, it goes on behind the last one. Ctrl-C completes the file.
    Needs the extra 'arrow'.
    """
    from lmerge.client.sinks.parquet import ParquetSink

    def make(on_progress: Callable[[Progress], None]) -> Sink:
        return ParquetSink(
            folder, merge, file_events_max=file_events, file_bytes_max=file_bytes, roll_interval=roll_interval,
            roll_s=roll_seconds, on_progress=on_progress,
        )

    run(make, server, merge, progress, from_start, name=name, if_too_old=if_too_old.value,
        give_up_after_s=give_up_after, security=security)


@app.command("postgres")
@secured
def postgres(
    merge: Merge,
    dsn: Annotated[str, typer.Option(
        envvar="LMERGE_DSN", help="The database, such as postgresql://me@db/flights. Better in LMERGE_DSN or with "
        "~/.pgpass: others see command lines.")],
    table: Annotated[str, typer.Option(help="TABLE or SCHEMA.TABLE; made if it is not there.")],
    server: Servers = DEFAULT_SERVER,
    name: SubscriberName = "postgres sink",
    from_start: FromStart = False,
    if_too_old: TooOld = IfTooOld.ERROR,
    give_up_after: GiveUpOrWait = None,
    progress: Every = 10.0,
    *,
    security: Any,
) -> None:
    """Keep a PostgreSQL table equal to the merge: rows appear, change, go, and become final.

    Example: lmerge sink postgres flights --dsn postgresql://localhost/flights --table flights

    Each transaction takes the table to a stable point and stores the token with it in lmerge_progress, so a killed sink
    goes on where it was. Needs the extra 'postgres'.
    """
    from lmerge.client.sinks.postgres import PostgresSink

    def make(on_progress: Callable[[Progress], None]) -> Sink:
        return PostgresSink(dsn, table, merge, give_up_after_s=give_up_after, on_progress=on_progress)

    run(make, server, merge, progress, from_start, name=name, if_too_old=if_too_old.value,
        give_up_after_s=give_up_after, security=security)


def run(
    make: Callable[[Callable[[Progress], None]], Sink], server: str, merge: str, every_s: float, from_start: bool,
    **options: Any,
) -> None:
    """Run a sink until the stream is complete, or a signal ends it after its present step."""
    from lmerge.client import AsyncSubscriber

    watch = SinkProgressLog(every_s)

    def subscribe(token: str | None) -> AsyncSubscriber:
        if token is None and from_start:
            token = format_token(merge, NEG_INF)
        terminal.error(f"following {merge!r} from {token or 'now'}")
        return AsyncSubscriber(server, merge, resume=token, on_gap=watch.gap, **options)

    async def main() -> tuple[Progress, int | None]:
        sink = make(watch.told)
        caught: list[int] = []
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            caught.append(number)
            loop.remove_signal_handler(number)  # the second one ends it at once
            sink.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        done = await sink.run(subscribe)
        return done, caught[0] if caught else None

    done, caught = asyncio.run(main())
    terminal.error(f"{'stopped' if caught else 'complete'}: {in_words(done)}")
    if caught == signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


class SinkProgressLog:
    """Says now and then how far a sink is, and at once what it misses."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._told_s = monotonic()

    def told(self, progress: Progress) -> None:
        """A step is done."""
        if self._every_s and monotonic() - self._told_s >= self._every_s:
            self._told_s = monotonic()
            terminal.error(f"{in_words(progress)}")

    def gap(self, gap: SubscriptionGap) -> None:
        """Events are missing."""
        terminal.error(f"gap: events frozen from {show_time(gap.start)} to {show_time(gap.end)} may be missing")


def in_words(progress: Progress) -> str:
    """What a sink has done."""
    deleted = f", {progress.deleted:,} deleted" if progress.deleted else ""
    return f"{progress.token}: {progress.written:,} written{deleted} in {progress.steps:,} steps"
