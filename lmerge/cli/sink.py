"""``lmerge sink``: write the merged stream to Parquet files or to a PostgreSQL table, and resume after a stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from lmerge import terminal
from lmerge.addresses import DEFAULT_SERVER
from lmerge.cli.arguments import GiveUpOrWait, IfTooOld, Merge, Servers, SubscriberName
from lmerge.cli.connection import secured
from lmerge.cli.measured import measured
from lmerge.core.elements import NEG_INF, show_time
from lmerge.wire.token import format_token

if TYPE_CHECKING:
    from lmerge.client import SubscriptionGap
    from lmerge.client.sinks import SinkProgress, Subscribe

app = typer.Typer(no_args_is_help=True, help="Write the merged stream to files or to a table, exactly once.")
INTERRUPTED = 130


TooOld = Annotated[
    IfTooOld, typer.Option(help="When no server has the output since the stop: error, or go on and report the gap.")
]
FromStart = Annotated[
    bool, typer.Option("--from-start", help="On the first run, start at the beginning, not with the live events.")
]
Every = Annotated[
    float, typer.Option("--progress", metavar="SECONDS", help="Seconds between lines of progress; 0: none.", min=0.0)
]


class Sink(Protocol):
    """A sink, as the commands run it."""

    async def run(self, subscribe: Subscribe) -> SinkProgress: ...
    def stop(self) -> None: ...


@app.command("parquet")
@secured
@measured
def parquet(
    merge: Merge,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the files; created if it is missing.")],
    server: Servers = DEFAULT_SERVER,
    file_events: Annotated[int, typer.Option(help="Events after which a file is complete.", min=1)] = 1_000_000,
    file_bytes: Annotated[int, typer.Option(help="Payload bytes after which a file is complete.", min=1)] = 256 * 2**20,
    roll_interval: Annotated[
        int | None, typer.Option(help="Largest time that a file spans, in units of the stream.", min=1)
    ] = None,
    roll_seconds: Annotated[float | None, typer.Option(help="Age at which a file is complete.", min=0.001)] = None,
    name: SubscriberName = "parquet sink",
    from_start: FromStart = False,
    if_too_old: TooOld = IfTooOld.ERROR,
    give_up_after: GiveUpOrWait = None,
    progress: Every = 10.0,
    *,
    metrics: Any,
    security: Any,
) -> None:
    """Write final events to Parquet files, each event to exactly one.

    Example: lmerge sink parquet flights out/ --roll-seconds 60

    A file gets its name when it is complete. A restart continues after the last file. Ctrl-C completes the file.
    Needs the extra 'arrow'.
    """
    from lmerge.client.sinks.parquet import ParquetSink

    def make(on_progress: Callable[[SinkProgress], None]) -> Sink:
        return ParquetSink(
            folder,
            merge,
            file_events_max=file_events,
            file_bytes_max=file_bytes,
            roll_interval=roll_interval,
            roll_s=roll_seconds,
            on_progress=on_progress,
        )

    run(
        make,
        server,
        merge,
        progress,
        from_start,
        give_up_after,
        metrics,
        name=name,
        if_too_old=if_too_old.value,
        security=security,
    )


@app.command("postgres")
@secured
@measured
def postgres(
    merge: Merge,
    dsn: Annotated[
        str,
        typer.Option(
            envvar="LMERGE_DSN",
            help="The database, such as postgresql://me@db/flights. Better in LMERGE_DSN or with "
            "~/.pgpass: others see command lines.",
        ),
    ],
    table: Annotated[str, typer.Option(help="TABLE or SCHEMA.TABLE; created if it is missing.")],
    server: Servers = DEFAULT_SERVER,
    name: SubscriberName = "postgres sink",
    from_start: FromStart = False,
    if_too_old: TooOld = IfTooOld.ERROR,
    give_up_after: GiveUpOrWait = None,
    progress: Every = 10.0,
    *,
    metrics: Any,
    security: Any,
) -> None:
    """Keep a PostgreSQL table equal to the merge: rows are inserted, changed, deleted and become final.

    Example: lmerge sink postgres flights --dsn postgresql://localhost/flights --table flights

    Each transaction brings the table to a stable point and stores its token in lmerge_progress. A sink that was killed
    resumes there. Needs the extra 'postgres'.
    """
    from lmerge.client.sinks.postgres import PostgresSink

    def make(on_progress: Callable[[SinkProgress], None]) -> Sink:
        return PostgresSink(dsn, table, merge, give_up_after_s=give_up_after, on_progress=on_progress)

    run(
        make,
        server,
        merge,
        progress,
        from_start,
        give_up_after,
        metrics,
        name=name,
        if_too_old=if_too_old.value,
        security=security,
    )


def run(
    make: Callable[[Callable[[SinkProgress], None]], Sink],
    server: str,
    merge: str,
    every_s: float,
    from_start: bool,
    give_up_after_s: float | None,
    metrics: Any,
    **options: Any,
) -> None:
    """Run a sink until the stream is complete, or a signal ends it after its present step."""
    from lmerge.client import AsyncSubscriber, SubscriberLimits

    limits = SubscriberLimits(give_up_after_s=give_up_after_s)
    log = SinkProgressLog(every_s)

    def subscribe(token: str | None) -> AsyncSubscriber:
        if token is None and from_start:
            token = format_token(merge, NEG_INF)
        terminal.error(f"following {merge!r} from {token or 'now'}")
        subscriber = AsyncSubscriber(server, merge, resume=token, on_gap=log.gap, limits=limits, **options)
        if metrics is not None:
            metrics.watch(subscriber)
        return subscriber

    async def main() -> tuple[SinkProgress, int | None]:
        sink = make(log.progress)
        caught: list[int] = []
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            caught.append(number)
            loop.remove_signal_handler(number)  # a second signal ends it at once
            sink.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        done = await sink.run(subscribe)
        return done, caught[0] if caught else None

    done, caught = asyncio.run(main())
    terminal.error(f"{'stopped' if caught else 'complete'}: {progress_text(done)}")
    if caught == signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


class SinkProgressLog:
    """Prints the progress of a sink every ``every_s`` seconds, and gaps at once."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._printed_s = monotonic()

    def progress(self, progress: SinkProgress) -> None:
        """Print the progress after a step, if it is time."""
        if self._every_s and monotonic() - self._printed_s >= self._every_s:
            self._printed_s = monotonic()
            terminal.error(f"{progress_text(progress)}")

    def gap(self, gap: SubscriptionGap) -> None:
        """Print a gap."""
        terminal.error(f"gap: events frozen from {show_time(gap.start)} to {show_time(gap.end)} may be missing")


def progress_text(progress: SinkProgress) -> str:
    """Return the token and the counts of a sink in one line."""
    deleted = f", {progress.deleted:,} deleted" if progress.deleted else ""
    return f"{progress.token}: {progress.written:,} written{deleted} in {progress.steps:,} steps"
