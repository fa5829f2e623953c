"""The output path of one merge: output is encoded once, journalled, persisted, released and delivered, in one order.

The hub calls ``MergeOutput``. It owns the journal, the release queue, the fan-out and, in a durable server, the changes
for the store. Everything that leaves the merge goes through ``then`` or ``emit``. So a snapshot, the output after it,
an ack and the end of a stream keep the order in which they were made. ``flush`` is the place where output becomes
bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeVar

from lmerge.core.batch import AnyBatch
from lmerge.core.elements import NEG_INF, show_time
from lmerge.core.merge import Merge
from lmerge.core.resume import emitted_events
from lmerge.errors import MergeReset, OutOfRange, OutputGap, StoreFull
from lmerge.service import log
from lmerge.service.offload import Offload
from lmerge.service.output.durable_merges import MEMORY, DurableOutput
from lmerge.service.output.fanout import Fanout, Message, SubscriberQueue, encoded, marks
from lmerge.service.output.journal import History, Journal, Segment
from lmerge.service.output.merge_record import MergeRecord
from lmerge.service.output.release_queue import Effect, ReleaseQueue
from lmerge.service.settings import Settings
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.generated import lmerge_pb2 as pb

T = TypeVar("T")


class Beginning(NamedTuple):
    """The output that a subscriber gets before its queue: the live events of now, or the history since it left."""

    live: AnyBatch | None
    history: History | None
    stable_point: int
    complete_from: int
    schema: pb.Schema | None
    epoch: int

    @property
    def events(self) -> int:
        """The number of inserts in it."""
        if self.history is not None:
            return self.history.events
        return self.live.counts(self.live.count)[0] if self.live is not None else 0


class MergeOutput:
    """The output of the merge ``name``.

    ``complete_from``: the output is right for every event with Ve >= this. ``gaps``: see ``MergeState``. ``released``:
    called after each turn that was released. ``durable``: the store of the output; None: it is in memory only.
    """

    def __init__(
        self,
        name: str,
        merge: Merge,
        settings: Settings,
        released: Effect,
        offload: Offload,
        durable: DurableOutput | None = None,
    ) -> None:
        self.name = name
        self.merge = merge
        self.complete_from = NEG_INF
        self.gaps = 0
        self.epoch = 0  # of the merge: see ``reset``
        self.schema: pb.Schema | None = None  # the first one that an active input declares
        self.has_bare_events = False  # events were merged without a schema: none can be declared any more
        self.facts = MergeRecord()
        self.fanout = Fanout(name, settings.progress_interval_s, merge.stable_point)
        self.release = ReleaseQueue(self.fanout, released, durable, settings.store_waiting_bytes)
        self.journal = Journal(
            settings.retain_bytes,
            settings.retain_time,
            settings.segment_bytes,
            None if durable is None else self.release.changes,
        )
        self.durable = durable
        self._limits = settings.batch_limits
        self._retain_bytes = settings.retain_bytes
        self._frames = frames_of(merge.engine)
        self._offload = offload
        self._segment_is_due = False
        self._emitted: list[AnyBatch] = []
        self._is_used = False
        self._received_s: float | None = None  # when the first batch of the turn was received
        self._with_marks = False  # whether a subscriber has requested marks

    # What the merge emits.

    def emit(self, batch: AnyBatch) -> None:
        """Add a batch that the merge has emitted."""
        if batch.count:
            self._emitted.append(batch)

    def note_received(self, received_s: float) -> None:
        """Note when a batch of this turn was received. What the turn emits is measured from the first one."""
        if self._received_s is None:
            self._received_s = received_s

    @property
    def may_be_declared(self) -> bool:
        """Whether an input that attaches may declare the schema of the merge."""
        return self.schema is None and not self.has_bare_events

    def note_bare_events(self, batch: AnyBatch) -> None:
        """Note that an active input has delivered ``batch`` while the merge has no schema."""
        self.has_bare_events = batch.counts(batch.count)[0] > 0

    def then(self, effect: Effect) -> None:
        """Add an effect at this point of the turn: it is run when all before it is released."""
        self.release.then(effect)

    def flush(self) -> None:
        """Encode what was emitted so far, and hand it to the release queue at this point."""
        if not self._emitted:
            return
        batches, self._emitted = self._emitted, []
        received_s = asyncio.get_running_loop().time() if self._received_s is None else self._received_s
        supporters = [n for b in batches for n in self.merge.supporters(b)] if self._with_marks else []
        for message in encoded(batches, self._frames, self._limits):
            self.journal.append(message)
            self.release.emit(message.data, message.elements, received_s)
            if supporters and message.inserts:
                counts, supporters = supporters[: message.inserts], supporters[message.inserts :]
                self.then(partial(self.fanout.mark, marks(counts)))

    async def keep_journal(self) -> None:
        """Once a turn, after ``flush``: begin a segment if one is due, and forget what is too old."""
        stable_point = self.merge.stable_point
        if self._segment_is_due or self.journal.needs_segment(stable_point):
            await self._begin_large_segment()
        self.journal.trim(stable_point)

    def end_turn(self) -> None:
        """Hand over the output and the effects of the turn."""
        if self.durable is not None and self._is_used:
            self.facts.note(self.release.changes, self)
        self.release.end_turn(self.merge.stable_point)
        self._received_s = None

    # Where it begins.

    def use(self, replica: str, incarnation: int) -> None:
        """Note that an input has attached. From the first one on the merge has a journal and a record."""
        if not self._is_used:
            self._is_used = True
            self._begin_segment()
        if self.durable is not None:
            self.release.changes.incarnations[replica] = incarnation

    def go_on(self, facts: dict[str, bytes], segments: list[Segment]) -> None:
        """Continue with the facts and segments that were read from a store."""
        self._is_used = True
        self.facts.load(facts, self)
        self.journal.reopen(segments)

    def begin_from(self, complete_from: int) -> None:
        """Begin at ``complete_from``: the output is right only for events with Ve >= this, so the journal is dropped.

        Subscribers that rely on earlier times end with OutputGap, and subscribe again.
        """
        self.complete_from = max(self.complete_from, complete_from)
        error = OutputGap(
            f"merge {self.name!r}: what ended before {show_time(complete_from)} may be missing, as no input that is "
            "left could deliver it; subscribe again to go on from there"
        )
        self.then(lambda: self.fanout.finish(error, complete_from))
        self.flush()
        self.journal.forget()
        self._begin_segment()

    def begin_anew(self, merge: Merge, complete_from: int, error: OutputGap) -> None:
        """Replace a merge that could not go on by ``merge``, which has emitted nothing: see ``stalled_merge``.

        A subscription that begins before an input is back is promised no more than ``complete_from``.
        """
        log.event(logging.WARNING, "merge begins anew", merge=self.name, reason=str(error))
        self.flush()
        self.gaps += 1
        self.merge = merge
        self.complete_from = complete_from
        self.then(partial(self.fanout.finish, error))
        self.journal.forget()
        self._begin_segment()

    def reset(self, merge: Merge, epoch: int, error: MergeReset) -> None:
        """Begin a new epoch with ``merge``, which has emitted nothing. Nothing of the epoch before is kept."""
        self.flush()
        self.then(lambda: self.fanout.finish(error))
        self.journal.forget()
        if self.durable is not None:
            self.release.changes.reset()
        self.facts.forget()
        self.merge, self.epoch = merge, epoch
        self.complete_from, self.gaps = NEG_INF, 0
        self.schema, self.has_bare_events = None, False
        self._is_used = True
        self._begin_segment()

    def forget(self, replica: str) -> None:
        """Remove the fence of this replica's incarnations from the store."""
        if self.durable is not None:
            self.release.changes.incarnations[replica] = None

    def _begin_segment(self) -> None:
        """Begin a segment at this point.

        A segment with many live events begins at the end of this turn instead, behind everything that the turn emits.
        """
        if self._skips_segment():
            return
        self._segment_is_due = self._offload.is_large(self.merge)
        if not self._segment_is_due:
            self._begin_with(emitted_events(self.merge))

    async def _begin_large_segment(self) -> None:
        self._segment_is_due = False
        if not self._skips_segment():
            self._begin_with(await self._offload.read(self.merge, lambda: emitted_events(self.merge)))

    def _skips_segment(self) -> bool:
        is_too_large = self.durable is None and self.merge.live_bytes > self._retain_bytes
        if is_too_large:
            self._segment_is_due = False
            self.journal.skip()  # does not copy the live events, which cannot be kept
        return is_too_large

    def _begin_with(self, live: AnyBatch) -> None:
        self.journal.begin(live, self.merge.stable_point, self.complete_from)

    # Subscribers.

    @property
    def retained_from(self) -> int:
        """The earliest time at which a subscriber can resume."""
        retained = self.journal.retained_from
        return self.release.stable_point if retained is None else retained

    async def subscribe(
        self, subscriber: SubscriberQueue, resume_at: int | None, snapshot_if_too_old: bool
    ) -> Beginning:
        """Register a subscriber at this point. The answer has the output before it, the queue gets the output after it.

        The hub waits, so nothing is emitted meanwhile. Raises OutOfRange, MergeReset.
        """
        if subscriber.epoch not in (None, self.epoch):
            raise MergeReset(
                f"cannot resume merge {self.name!r} with a token of epoch {subscriber.epoch}: it is in epoch "
                f"{self.epoch} here, as it was reset; what was read before does not go on, so subscribe without a token"
            )
        self.flush()
        self._with_marks = self._with_marks or subscriber.takes_marks
        stable_point = self.merge.stable_point
        complete_from = max(self.complete_from, stable_point)
        live, history = None, None
        if resume_at is not None and resume_at < complete_from:
            history = self._history(resume_at, snapshot_if_too_old)
        if history is None:
            live = await self._offload.read(self.merge, self.merge.live_events)
        else:
            complete_from = history.complete_from
        subscriber.complete_from = max(complete_from, NEG_INF if resume_at is None else resume_at)
        self.then(lambda: self.fanout.add(subscriber))
        return Beginning(live, history, stable_point, complete_from, self.schema, self.epoch)

    def past(self, history: History) -> AsyncIterator[Message]:
        """Return the messages of a history that is in the store."""
        assert self.durable is not None
        return self.durable.past(history)

    def _history(self, resume_at: int, snapshot_if_too_old: bool) -> History | None:
        segment = self.journal.find(resume_at)
        if segment is None and snapshot_if_too_old:
            segment = self.journal.oldest()
            if segment is None:
                return None
        if segment is not None:
            return self.journal.history(segment)
        raise OutOfRange(
            f"cannot resume merge {self.name!r} at {show_time(resume_at)}: it retains times from "
            f"{show_time(self.retained_from)} to {show_time(self.merge.stable_point)}; "
            "subscribe without a token, or allow a snapshot that begins later"
        )

    # The store.

    @property
    def store_status(self) -> str:
        """The state of the store: ``memory``, ``durable``, or what is wrong with it."""
        return MEMORY if self.durable is None else self.durable.status

    async def once_kept(self, what: str, settled: Coroutine[Any, Any, T]) -> T:
        """Await ``settled``; return its result. Raises StoreFull if the store cannot be written, now or while it waits.

        ``what``: what was attempted, for the error.
        """
        if self.durable is None:
            return await settled
        if self.durable.full is not None:
            settled.close()
            raise self._full(what, self.durable.full)
        task = asyncio.ensure_future(settled)
        with self.durable.trouble() as trouble:
            try:
                await asyncio.wait((task, trouble), return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    return task.result()
            finally:
                task.cancel()
        raise self._full(what, trouble.result())

    def _full(self, what: str, problem: StoreFull) -> StoreFull:
        return StoreFull(f"cannot {what} merge {self.name!r} now: {problem}")

    def start(self, broken: Callable[[Exception], None]) -> asyncio.Task[None] | None:
        """Return the task that commits, or None if there is no store. ``broken``: called if it cannot go on."""
        if self.durable is None:
            return None

        async def run() -> None:
            try:
                await self.release.run()
            except Exception as problem:
                broken(problem)

        return asyncio.create_task(run(), name=f"release {self.name}")

    async def close(self) -> None:
        """Close the store. To be called after the task has ended."""
        if self.durable is not None:
            await self.durable.close()
