"""Merges that survive their server: output is committed before it is delivered, and read again when the server starts.

Each file of the folder belongs to one merge. A merge to which no input ever attached has no file. When the disk is
full, no more output is delivered, and after a while the publishers wait. The commit is tried again and again, and the
merge continues by itself when it succeeds.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from google.protobuf.message import DecodeError

from lmerge.core.batch import AnyBatch
from lmerge.core.collector import without_collector
from lmerge.core.engines.selection import resolve
from lmerge.core.merge import Merge
from lmerge.core.policy import Show, parse_policy
from lmerge.core.resume import OutputReplay
from lmerge.errors import MergeSpoiled, StoreDamaged, StoreFull, StoreInUse, SubscriberTooSlow, UsageError
from lmerge.files import PRIVATE_FILE, make_folder, sync_path
from lmerge.histogram import DurationCounts
from lmerge.service import log
from lmerge.service.output.fanout import Message
from lmerge.service.output.journal import History, Segment
from lmerge.service.output.merge_record import complete_from
from lmerge.service.output.store import Store
from lmerge.service.output.transaction import Changes
from lmerge.service.settings import Settings
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.frames import Frames
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import UNLIMITED
from lmerge.wire.names import problem_of
from lmerge.wire.schema import Schema

SUFFIX: Final = ".lmerge"
LOCK: Final = "lock"
MEMORY: Final = "memory"
DURABLE: Final = "durable"
# A resuming reader gets its history in pieces of about this size.
_READ_BYTES: Final = 2**20


class RecoveredMerge(NamedTuple):
    """A merge as it was read from its store. ``facts``: as ``MergeRecord`` wrote them."""

    name: str
    merge: Merge
    facts: dict[str, bytes]
    segments: list[Segment]


class DurableOutput:
    """Writes and reads the store of one merge in a thread. ``status``: ``durable``, or what is wrong.

    ``errors``: attempts to commit that found no room, or a disk that failed. ``commit_seconds``: the commits that
    succeeded.
    """

    def __init__(self, store: Store, name: str, executor: Executor, settings: Settings) -> None:
        self.store = store
        self.status = DURABLE
        self.full: StoreFull | None = None
        self.errors = 0
        self.commit_seconds: Final = DurationCounts()
        self._waiting: list[asyncio.Future[StoreFull]] = []  # futures of ``trouble``, done when the store is full
        self._name = name
        self._executor = executor
        self._frames = frames_of(resolve(settings.engine))
        self._settings = settings

    async def commit(self, changes: list[Changes]) -> None:
        """Commit the changes; try again until it succeeds. Raises StoreDamaged."""
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            try:
                await loop.run_in_executor(
                    self._executor, self.store.commit, changes, self._frames, self._settings.batch_limits
                )
            except StoreFull as problem:
                self.errors += 1
                self._note(problem)
                await asyncio.sleep(self._settings.store_retry_s)
            else:
                self.commit_seconds.observe(loop.time() - started_s)
                self._note(None)
                return

    async def past(self, history: History) -> AsyncIterator[Message]:
        """Read the messages of a history, piece by piece. Raises StoreDamaged; StoreFull if it cannot be read."""
        loop = asyncio.get_running_loop()
        for segment, number, end in ((history.segment, 0, 2**31), (None, history.first, history.end)):
            while number < end:
                messages = await loop.run_in_executor(
                    self._executor, self.store.read, segment, number, end, _READ_BYTES
                )
                if not messages:
                    if segment is None or not await loop.run_in_executor(self._executor, self.store.holds, segment):
                        raise SubscriberTooSlow("what this subscriber was reading is not retained any more")
                    break
                for message in messages:
                    yield message
                number += len(messages)

    async def close(self) -> None:
        """Close the store. To be called after the last commit."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self.store.close)

    @contextmanager
    def trouble(self) -> Iterator[asyncio.Future[StoreFull]]:
        """Give a future that is done as soon as the store cannot be written."""
        future: asyncio.Future[StoreFull] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            yield future
        finally:
            self._waiting.remove(future)

    def _note(self, problem: StoreFull | None) -> None:
        for future in self._waiting if problem is not None else ():
            if not future.done():
                future.set_result(problem)  # type: ignore[arg-type]
        if problem is not None and self.full is None:
            log.event(logging.ERROR, "store cannot be written", merge=self._name, problem=str(problem))
        elif problem is None and self.full is not None:
            log.event(logging.WARNING, "store can be written again", merge=self._name)
        self.full = problem
        self.status = DURABLE if problem is None else str(problem)


class StoreFolder:
    """The folder of one server's stores: their files, and the lock that keeps another server out."""

    def __init__(self, settings: Settings) -> None:
        """Make and lock the folder. Raises StoreInUse, UsageError."""
        assert settings.store is not None
        self.path = Path(settings.store)
        self.damaged: dict[Path, StoreDamaged] = {}
        self._settings = settings
        try:
            make_folder(self.path)
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        except OSError as problem:
            raise UsageError(f"cannot use {str(self.path)!r} as a store: {problem.strerror}") from problem
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise StoreInUse(f"cannot use {str(self.path)!r} as a store: another server has it") from None
        self.free_bytes: int | None = None
        self.measure()

    def measure(self) -> None:
        """Measure the space that the file system has left for this process: ``free_bytes``, None if it fails."""
        try:
            found = os.statvfs(self.path)
        except OSError:
            self.free_bytes = None
        else:
            self.free_bytes = found.f_bavail * found.f_frsize

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)

    def path_of(self, name: str) -> Path:
        """Return the file of a merge: a name that every file system accepts, and that shows the name of the merge."""
        return self.path / f"{quote(name, safe='')[:100]}-{sha256(name.encode()).hexdigest()[:16]}{SUFFIX}"

    def store_of(self, name: str) -> Store:
        """Return the store of a merge. Raises StoreDamaged if it was found damaged."""
        path = self.path_of(name)
        self.check(name)
        return Store(path, self._settings.store_sync)

    def check(self, name: str) -> None:
        """Raise StoreDamaged if the file of this merge was found damaged, or spoiled."""
        problem = self.damaged.get(self.path_of(name))
        if problem is not None:
            raise type(problem)(f"merge {name!r}: {problem}")

    def remove(self, name: str) -> None:
        """Delete the file of a merge and all that belongs to it. It must not be open. Raises StoreFull."""
        path = self.path_of(name)
        try:
            for one in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")), Store(path).mark):
                one.unlink(missing_ok=True)
            sync_path(self.path)
        except OSError as problem:
            raise StoreFull(f"cannot remove the store {path}: {problem.strerror}") from problem
        self.damaged.pop(path, None)

    def _recovered(self, store: Store, found: list[tuple[RecoveredMerge, Store]]) -> RecoveredMerge | None:
        try:
            return recover(store, self._settings)
        except (UsageError, StoreInUse, StoreFull):  # the server does not start, so no store may stay open
            for one in (store, *(other for _, other in found)):
                one.close()
            raise

    def recover(self) -> list[tuple[RecoveredMerge, Store]]:
        """Read all merges of the folder; return those that are whole. The others are in ``damaged``.

        Raises UsageError, StoreInUse, StoreFull.
        """
        found: list[tuple[RecoveredMerge, Store]] = []
        for path in sorted(self.path.glob(f"*{SUFFIX}")):
            store = Store(path, self._settings.store_sync)
            try:
                recovered = self._recovered(store, found)
                if recovered is not None and self.path_of(recovered.name) != path:
                    raise StoreDamaged(f"the store {path} holds merge {recovered.name!r}, whose file has another name")
            except StoreDamaged as problem:
                self.damaged[path] = problem
                store.close()
                what = "merge spoiled" if isinstance(problem, MergeSpoiled) else "store damaged"
                log.event(logging.ERROR, what, file=str(path), problem=str(problem))
                continue
            if store.mark_problem is not None:
                log.event(logging.ERROR, "store mark lost", file=str(store.mark), problem=store.mark_problem)
            if recovered is None:
                store.close()
            else:
                found.append((recovered, store))
        return found


@without_collector()
def recover(store: Store, settings: Settings) -> RecoveredMerge | None:
    """Read the merge of a file; None if nothing was committed to it. Raises StoreDamaged, UsageError."""
    found = store.load()
    if not found.facts:
        return None
    try:
        name, running = found.facts["name"].decode(), found.facts["algorithm"].decode()
        policy = found.facts["policy"].decode()
        replay = OutputReplay(running, settings.engine)
        frames = frames_of(resolve(settings.engine))
        for data in found.last:
            replay.add(_batch(frames, data))
        live, stable_point = replay.live_events(), replay.stable_point
    except Exception as problem:  # the checksums fit, so the writer was wrong
        raise StoreDamaged(f"the store {store.path} is damaged ({problem!r}) and was not opened") from problem
    spoilt = spoilt_by(name, found.facts)
    if spoilt is not None:
        raise MergeSpoiled(
            f"merge {name!r} of the store {store.path} is spoiled and was not opened: {spoilt}; lmerge reset empties it"
        )
    if parse_policy(settings.policy).show is Show.FINAL and parse_policy(policy).show is not Show.FINAL:
        raise UsageError(
            f"merge {name!r} of store {str(store.path)!r} ran with policy {policy}, and has emitted events that are "
            f"not final; it cannot go on with {settings.policy}"
        )
    merge = settings.resumed_merge(live, stable_point, running, found.incarnations, complete_from(found.facts))
    return RecoveredMerge(name, merge, found.facts, found.segments)


def spoilt_by(name: str, facts: Mapping[str, bytes]) -> str | None:
    """Return what is wrong with the name or the schema of a stored merge; None if nothing is.

    No publisher could declare such a name or schema today, and no client could read it.
    """
    problem = problem_of(name)
    if problem is not None:
        return f"the name of a merge {problem}"
    declared = facts.get("schema", b"")
    try:
        if declared:
            Schema.from_message(pb.Schema.FromString(declared[1:]))
    except (UsageError, DecodeError) as found:
        return f"its schema is invalid: {found}"
    return None


def _batch(frames: Frames, data: bytes) -> AnyBatch:
    received = frames.read_subscribe(data)
    if isinstance(received, pb.SubscribeResponse):
        raise ValueError("a message without a batch")
    return received.decode(UNLIMITED)  # it may have been emitted under other limits than today's
