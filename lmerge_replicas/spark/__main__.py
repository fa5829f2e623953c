"""The process of one replica in Spark: ``python -m lmerge_replicas.spark PLAN --server HOST:PORT --checkpoint DIR``.

It writes the log of news, starts a JVM with a session, and runs the query. The query publishes into the merge and keeps
its place in DIR. Started again with the same DIR, after any end, it continues there. Without ``--checkpoint`` it uses a
temporary folder and begins anew each time.

    DIR/replica.json, news-*.arrow, clock.json    what is replayed, and when
    DIR/query                                     Spark's checkpoint, with lmerge's spool
    DIR/spark.log                                 Spark's log

`lmerge.replica.driven` describes how a parent drives it (``--supervised``). It writes ``loaded`` once it has run its
first batch, and so has attached to the merge. Exit code: 0 everything was published; 130 it was stopped before; 1 it
failed; 2 it could not begin.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from lmerge.client import Security
from lmerge.errors import LmergeError, Unavailable, UsageError
from lmerge.replica.driven import report_to_parent, stop_on_signals, wait_for_start
from lmerge.replica_programs import leave
from lmerge.spark.arguments import Running
from lmerge.spark.sink.watermark import batch_watermark_us
from lmerge.spark.terminal import own_message
from lmerge_replicas.flights.replay import ReplayClock, first_instant, write_clock
from lmerge_replicas.flights.source import Days, data_folder
from lmerge_replicas.process import options_parser, security_of
from lmerge_replicas.spark.news import final_watermark, read_log, write_log
from lmerge_replicas.spark.plans import PLANS, publish
from lmerge_replicas.spark.session import LOG, end_session, errors_into, new_session, news, require_spark, stop_query

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
LOOK_S: Final = 0.1  # between checks of the query's progress; a batch takes three times as long
LINE_EVERY_S: Final = 10.0  # of progress, if there is no terminal
THREADS: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one replica and return the exit code."""
    options = _parse(argv)
    stop = stop_on_signals()
    try:
        return _run(options, stop)
    except LmergeError as error:
        print(f"replica {options.replica}: {error}", file=sys.stderr)
        return USAGE if isinstance(error, UsageError) else FAILED


def _run(options: argparse.Namespace, stop: threading.Event) -> int:
    require_spark()
    data_folder()
    days = Days(options.first, options.last)
    with _folder(options.checkpoint) as folder:
        _claim(folder, options, days)
        progress = ProgressLine(options.replica, is_shown=not options.supervised)
        progress.write("starting Spark")
        with ThreadPoolExecutor(1) as pool, _quietly(options, folder):
            log = pool.submit(_log, folder, days)
            try:
                spark = new_session(folder, THREADS)
            except Exception as problem:
                raise Unavailable(f"Spark did not start: {problem}{_more(options, folder)}") from problem
        stop_on_signals(stop)  # the session has set its own handler for Ctrl-C, to cancel jobs
        try:
            if is_complete(folder / "query", final_watermark(read_log(log.result()))):
                progress.end("everything was published before; another --checkpoint begins anew")
                return 0
            code = _replay(options, spark, folder, log.result(), days, stop, progress)
        finally:
            end_session(spark)
    if options.supervised:
        stop.wait()  # the parent ends it
    return code


def _replay(
    options: argparse.Namespace,
    spark: Any,
    folder: Path,
    log: Path,
    days: Days,
    stop: threading.Event,
    progress: ProgressLine,
) -> int:
    clock = options.clock or folder / "clock.json"
    stream = news(spark, log, clock)
    plan = PLANS[options.plan]
    given = security_of(options)
    security = Security(**given) if given else None
    running = Running(role=options.role)
    writer = publish(plan, stream, options.server, options.merge, options.replica, running=running, security=security)
    if not options.supervised and options.clock is None:
        _set_clock(clock, options, days)
    query = writer.option("checkpointLocation", str(folder / "query")).queryName(options.replica).start()
    if options.supervised:
        if not follow(query, stop, None, progress):
            return INTERRUPTED
        report_to_parent(event="loaded")
        start = wait_for_start(stop)
        if start is None:
            return FAILED
        if options.clock is None:
            _set_clock(clock, argparse.Namespace(start=start, speed=options.speed), days)
        report_to_parent(event="joined")
    is_done = follow(query, stop, final_watermark(read_log(log)), progress)
    stop_query(query)
    progress.end("everything was published" if is_done else "stopped")
    if options.supervised and is_done:
        report_to_parent(event="done")
    return 0 if is_done else INTERRUPTED


def follow(query: Any, stop: threading.Event, until: int | None, progress: ProgressLine) -> bool:
    """Watch the query until a batch has run with the watermark ``until`` (None: until any batch has run).

    Returns False if ``stop`` came first. Raises Unavailable if the query fails.
    """
    while not stop.wait(LOOK_S):
        last = query.lastProgress
        if last is not None:
            progress.show(last)
            if until is None or watermark_of(last) >= until:
                return True
        if not query.isActive:
            raise failure(query)
    return False


def _more(options: argparse.Namespace, folder: Path) -> str:
    """Return a reference to Spark's log, for messages."""
    return f"; details in {folder / LOG}" if options.checkpoint is not None and not options.supervised else ""


def watermark_of(progress: Any) -> int:
    """Return the watermark that a batch ran with, in microseconds; 0: it had none."""
    text = progress["eventTime"].get("watermark", "")
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000) * 1000 if text else 0


def failure(query: Any) -> Unavailable:
    """Return what ended the query, with lmerge's own message if there is one."""
    text = str(query.exception() or "it ended without a message")
    return Unavailable(f"the query failed: {own_message(text) or text.splitlines()[0]}")


def is_complete(checkpoint: Path, until: int) -> bool:
    """Whether the query of this checkpoint has committed a batch that ran with the watermark ``until``."""
    commits = checkpoint / "commits"
    batches = [int(path.name) for path in commits.iterdir() if path.name.isdigit()] if commits.is_dir() else []
    watermark = batch_watermark_us(str(checkpoint), max(batches)) if batches else None
    return watermark is not None and watermark >= until


class ProgressLine:
    """Shows the query's progress: a line that changes in a terminal, now and then a line elsewhere."""

    def __init__(self, name: str, *, is_shown: bool) -> None:
        self._name = name
        self._is_shown = is_shown
        self._is_live = sys.stderr.isatty()
        self._batch = -1
        self._line_s = -LINE_EVERY_S

    def write(self, message: str) -> None:
        """Show a message instead of progress."""
        if self._is_shown:
            sys.stderr.write(f"\r{self._name}: {message}\x1b[K" if self._is_live else f"{self._name}: {message}\n")
            sys.stderr.flush()

    def show(self, last: Any) -> None:
        """Show Spark's progress, if it is new."""
        now_s = time.monotonic()
        if last["batchId"] == self._batch or (not self._is_live and now_s - self._line_s < LINE_EVERY_S):
            return
        self._batch, self._line_s = last["batchId"], now_s
        row = json.loads(last["sources"][0]["endOffset"])["row"]
        watermark = last["eventTime"].get("watermark", "")[:16].replace("T", " ")
        self.write(f"batch {self._batch} in {last['batchDuration']:,} ms, {row:,} news, stable to {watermark}")

    def end(self, message: str) -> None:
        """Show the last message."""
        self.write(message)
        if self._is_shown and self._is_live:
            sys.stderr.write("\n")


def _log(folder: Path, days: Days) -> Path:
    gc.disable()  # it makes a million objects and no garbage
    try:
        return write_log(folder, days)
    finally:
        gc.enable()


def _set_clock(path: Path, options: argparse.Namespace, days: Days) -> None:
    """Set the clock. A running clock continues unless a start is given: a replica that was away catches up."""
    if options.start is not None or not path.exists():
        start = time.time() if options.start is None else options.start
        write_clock(path, ReplayClock(start, first_instant(days), options.speed * 86_400))


@contextlib.contextmanager
def _folder(checkpoint: Path | None) -> Iterator[Path]:
    """Give the replica's folder. Raises UsageError if it cannot be made."""
    if checkpoint is None:
        with tempfile.TemporaryDirectory(prefix="lmerge-replica-", ignore_cleanup_errors=True) as scratch:
            yield Path(scratch)
        return
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"cannot use the checkpoint {checkpoint}: {problem}") from None
    yield checkpoint.resolve()


def _claim(folder: Path, options: argparse.Namespace, days: Days) -> None:
    """Raise UsageError if the folder belongs to another replica, as its offsets would then mean other rows."""
    owner = folder / "replica.json"
    mine = {
        "plan": options.plan,
        "replica": options.replica,
        "merge": options.merge,
        "first": days.first.isoformat(),
        "last": days.last.isoformat(),
    }
    if not owner.exists():
        owner.write_text(json.dumps(mine))
        return
    theirs = json.loads(owner.read_text())
    different = [name for name in mine if mine[name] != theirs.get(name)]
    if different:
        name = different[0]
        raise UsageError(
            f"the checkpoint {folder} belongs to another replica ({name} is {theirs.get(name)!r}, and not "
            f"{mine[name]!r}): give this one a --checkpoint of its own"
        )


@contextlib.contextmanager
def _quietly(options: argparse.Namespace, folder: Path) -> Iterator[None]:
    """Redirect Spark's log into the folder. A supervised process leaves it on standard error, for the parent."""
    with contextlib.nullcontext() if options.supervised else errors_into(folder / LOG):
        yield


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    plans = "; ".join(f"{plan.name}: {plan.summary}" for plan in PLANS.values())
    description = f"The flights of 2013 as a query of PySpark. {plans}."
    parser = options_parser("python -m lmerge_replicas.spark", description, "plan", PLANS)
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="where it keeps its place")
    options = parser.parse_args(argv)
    options.replica = options.replica or f"spark-{options.plan}"
    return options


if __name__ == "__main__":
    leave(main())
