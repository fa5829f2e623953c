"""Final events in Parquet files, each event in exactly one of them (needs the extra ``arrow``).

A file holds all events with start <= Ve < end and is named so: ``MERGE_START_END.parquet``. It is written under a
temporary name and renamed when it is complete and on the disk, so a file with such a name is whole. Its metadata hold
the token of its end. A sink that starts goes on from the newest file; what a killed sink had not renamed is written
again. Files follow one another without overlap, so all files together hold exactly the events that ended from the first
START to the last END. The metadata also list gaps, if there are any.

Any reader of Parquet reads the files: ``select * from 'out/*.parquet'`` in DuckDB.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from lmerge.client.sinks import SinkProgress, SinkSubscriber, Subscribe, ignore_progress
from lmerge.client.subscribe.envelopes import Delivery, FinalEvent, Finals, deliveries
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.client.views.arrow_tables import event_table, import_pyarrow
from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.errors import UsageError
from lmerge.files import PRIVATE_FILE, make_folder, sync_path
from lmerge.wire.schema import Schema
from lmerge.wire.token import format_token, parse_token, read_token

FILE_EVENTS_MAX: Final = 1_000_000
FILE_BYTES_MAX: Final = 256 * 2**20  # of payloads: a size that engines read well as one piece
# Events that are held before they go to the file as a row group: some 10 MB, and large enough to compress well.
GROUP_EVENTS_MAX: Final = 65_536
TEMPORARY: Final = ".unfinished"

_NAME: Final = re.compile(r"(?P<merge>.+)_(?P<start>-inf|-?\d{1,19})_(?P<end>inf|-?\d{1,19})\.parquet")


class Piece(NamedTuple):
    """A complete file, by its name."""

    start: int
    end: int
    path: Path


class ParquetSink:
    """``await ParquetSink("out", "flights").run(subscribe)``; ``stop()`` completes the file and ends.

    A file is closed at the first stable point at which it has ``file_events_max`` events or ``file_bytes_max`` of
    payloads, spans ``roll_interval`` units of time (files then end at multiples of it or later), or is ``roll_s`` old.
    Raises UsageError.
    """

    def __init__(
        self,
        folder: str | Path,
        merge: str,
        *,
        file_events_max: int = FILE_EVENTS_MAX,
        file_bytes_max: int = FILE_BYTES_MAX,
        roll_interval: int | None = None,
        roll_s: float | None = None,
        on_progress: Callable[[SinkProgress], None] = ignore_progress,
    ) -> None:
        import_pyarrow()
        if any(limit is not None and limit <= 0 for limit in (file_events_max, file_bytes_max, roll_interval, roll_s)):
            raise UsageError("the limits of a Parquet file must be positive")
        self.folder, self.merge = Path(folder), merge
        self.progress = SinkProgress(format_token(merge, NEG_INF))
        self._events_max, self._bytes_max = file_events_max, file_bytes_max
        self._roll_interval, self._roll_s = roll_interval, roll_s
        self._on_progress = on_progress
        self._subscriber: SinkSubscriber | None = None
        self._file: _File | None = None
        self._from = NEG_INF  # the end of the newest complete file
        self._epoch = 0  # of the merge, as that file has it
        self._stopped = False

    async def run(self, subscribe: Subscribe) -> SinkProgress:
        """Follow the merge until its stream is complete or ``stop`` is called. Returns what was done."""
        lock = self._lock()
        try:
            self._from = self._recover()
            token = None if self._from == NEG_INF else format_token(self.merge, self._from, self._epoch)
            if token is not None:
                self.progress.token = token
            if self._from < INF and not self._stopped:
                await self._follow(subscribe(token))
            return self.progress
        finally:
            if self._file is not None:
                self._file.discard()
            os.close(lock)

    def stop(self) -> None:
        """Complete the file with the events that are final, and end."""
        self._stopped = True
        if self._subscriber is not None:
            self._subscriber.close()

    async def _follow(self, subscriber: SinkSubscriber) -> None:
        self._subscriber = subscriber
        try:
            async for delivery in deliveries(subscriber, Finals(self.merge, since=self._from)):
                self._epoch = subscriber.epoch or 0
                await self._take(delivery, subscriber.schema)
        finally:
            subscriber.close()
        if self._file is not None and self._file.events:
            await self._complete()

    async def _take(self, delivery: Delivery[FinalEvent], schema: Schema | None) -> None:
        file = self._file
        if file is not None and file.events and file.schema != schema:
            await self._complete()
            file = None
        if self._from == NEG_INF and file is None and not delivery.changes:
            self._from = delivery.stable_point  # a new sink began here and never received what had ended before
        now = asyncio.get_running_loop().time()
        if file is None or not file.events:
            file = self._file = self._new_file(file, schema, now)
        file.add(delivery)
        if len(file.held) >= GROUP_EVENTS_MAX:
            await asyncio.get_running_loop().run_in_executor(None, file.flush)
        if file.events and self._is_full(file, now):
            await self._complete()

    def _new_file(self, empty: _File | None, schema: Schema | None, now: float) -> _File:
        """Return a file without events; it takes over the end and the gaps of an empty one before it."""
        fresh = _File(self.folder, self.merge, self._from, schema, now)
        if empty is not None:
            fresh.end, fresh.gaps = empty.end, empty.gaps
        return fresh

    def _is_full(self, file: _File, now: float) -> bool:
        interval = self._roll_interval
        return (
            file.events >= self._events_max
            or file.payload_bytes >= self._bytes_max
            or file.end == INF
            or (interval is not None and file.first_end // interval < file.end // interval)
            or (self._roll_s is not None and now - file.opened_s >= self._roll_s)
        )

    async def _complete(self) -> None:
        file, self._file = self._file, None
        assert file is not None
        await asyncio.get_running_loop().run_in_executor(None, file.complete, self._epoch)
        self._from = file.end
        progress = self.progress
        progress.token = format_token(self.merge, file.end, self._epoch)
        progress.written += file.events
        progress.steps += 1
        progress.gaps += file.gaps
        self._on_progress(progress)

    def _lock(self) -> int:
        """Take the lock of this merge and folder. Raises UsageError if another sink has it."""
        try:
            make_folder(self.folder)
            lock = os.open(self.folder / f".{quote(self.merge, safe='')}.lock", os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        except OSError as problem:
            raise UsageError(f"cannot write to folder {str(self.folder)!r}: {problem.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise UsageError(f"another sink writes merge {self.merge!r} to folder {str(self.folder)!r}") from None
        return lock

    def _recover(self) -> int:
        """Remove what was not completed; return the time at which to go on."""
        name = quote(self.merge, safe="")
        for path in self.folder.glob(f"*{TEMPORARY}"):
            if path.name.startswith(f".{name}_"):
                path.unlink()
        found = pieces(self.folder, self.merge)
        if not found:
            return NEG_INF
        newest = found[-1]
        token = token_in(newest.path)
        if token is None or parse_token(token, self.merge) != newest.end:
            raise UsageError(
                f"{str(newest.path)!r} was not written by a sink of merge {self.merge!r}: it holds "
                f"{'no token' if token is None else repr(token)}"
            )
        self._epoch = read_token(token, self.merge).epoch or 0
        return newest.end


class _File:
    """The file that is being written. Row groups go to the disk as they fill; ``complete`` gives it its final name."""

    def __init__(self, folder: Path, merge: str, start: int, schema: Schema | None, opened_s: float) -> None:
        self.schema = schema
        self.events = self.payload_bytes = 0
        self.held: list[tuple[int, int, bytes]] = []
        self.gaps: list[SubscriptionGap] = []
        self.start = self.end = start
        self.first_end = start
        self.opened_s = opened_s
        self._folder, self._merge = folder, merge
        self._temporary = folder / f".{quote(merge, safe='')}_{show_time(start)}{TEMPORARY}"
        self._writer: Any = None

    def add(self, delivery: Delivery[FinalEvent]) -> None:
        """Take the events that have become final at a stable point."""
        if delivery.changes and not self.events:
            self.first_end = delivery.changes[0].ve
        self.held += [event[:3] for event in delivery.changes]
        self.events += len(delivery.changes)
        self.payload_bytes += sum(len(event.payload) for event in delivery.changes)
        self.end = delivery.stable_point
        self.gaps += delivery.gaps

    def flush(self) -> None:
        """Write the held events as a row group. Raises InvalidRow."""
        from pyarrow import parquet

        if not self.held:
            return
        table = event_table(self.schema, self.held)
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._temporary, table.schema, compression="zstd")
        self._writer.write_table(table)
        self.held = []

    def complete(self, epoch: int) -> None:
        """Make the file whole, durable and visible, in this order. ``epoch``: of the merge, for the token."""
        self.flush()
        self._writer.add_key_value_metadata(
            {
                "lmerge.merge": self._merge,
                "lmerge.token": format_token(self._merge, self.end, epoch),
                "lmerge.start": show_time(self.start),
                "lmerge.end": show_time(self.end),
                "lmerge.gaps": ",".join(f"{show_time(gap.start)}..{show_time(gap.end)}" for gap in self.gaps),
            }
        )
        self._writer.close()
        sync_path(self._temporary)
        name = f"{quote(self._merge, safe='')}_{show_time(self.start)}_{show_time(self.end)}.parquet"
        self._temporary.rename(self._folder / name)
        sync_path(self._folder)

    def discard(self) -> None:
        """Remove the file."""
        if self._writer is not None:
            self._writer.close()
        self._temporary.unlink(missing_ok=True)


def pieces(folder: Path, merge: str) -> list[Piece]:
    """Return the complete files of a merge, oldest first. Raises UsageError if two of them overlap."""
    found = []
    for path in folder.glob("*.parquet"):
        match = _NAME.fullmatch(path.name)
        if match is not None and match["merge"] == quote(merge, safe=""):
            start, end = (parse_token(f"{merge}@{match[bound]}", merge) for bound in ("start", "end"))
            found.append(Piece(start, end, path))
    found.sort()
    for before, after in pairwise(found):
        if after.start < before.end:
            names = f"{before.path.name!r} and {after.path.name!r} in {str(folder)!r}"
            raise UsageError(f"{names} overlap: no sink wrote both")
    return found


def token_in(path: Path) -> str | None:
    """Return the token in a file's metadata. Raises UsageError if it is no Parquet file."""
    from pyarrow import parquet

    try:
        metadata = parquet.read_metadata(path).metadata or {}
    except (OSError, ValueError) as problem:
        raise UsageError(f"cannot read {str(path)!r}: {problem}") from None
    token = metadata.get(b"lmerge.token")
    return None if token is None else token.decode(errors="replace")
