"""The way out of one merge: what it says is encoded once, remembered, kept, released and shown, all in one order.

The hub says; this class owns the journal, the release, the fan-out and, in a durable server, what the store is told.
Everything that others may hear of the merge goes through ``then`` or ``say``, so a snapshot, the deltas behind it, an
ack and the end of a stream stand in the order in which they came about.
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
from lmerge.service.merge.offload import Aside
from lmerge.service.output.durable_merges import MEMORY, Durable
from lmerge.service.output.fanout import Fanout, Message, Subscriber, encoded, marks
from lmerge.service.output.journal import History, Journal, Segment
from lmerge.service.output.merge_record import Facts
from lmerge.service.output.release_queue import Effect, Release
from lmerge.service.settings import Settings
from lmerge.wire.frames import frames_of
from lmerge.wire.generated import lmerge_pb2 as pb

T = TypeVar("T")


class Beginning(NamedTuple):
    """What a subscriber gets before the present: the live events of now, or the past since it left."""

    live: AnyBatch | None
    history: History | None
    stable_point: int
    complete_from: int
    schema: pb.Schema | None
    epoch: int

    @property
    def events(self) -> int:
        """Inserts in it."""
        if self.history is not None:
            return self.history.events
        return self.live.counts(self.live.count)[0] if self.live is not None else 0


class Output:
    """Of the merge ``name``. ``complete_from``: it is right for every event with Ve >= this; ``gaps``: see ``Hub``.

    ``released``: called after each turn that was released. ``durable``: where it is kept, None: in memory.
    """

    def __init__(
        self, name: str, merge: Merge, settings: Settings, released: Effect, aside: Aside,
        durable: Durable | None = None,
    ) -> None:
        self.name = name
        self.merge = merge
        self.complete_from = NEG_INF
        self.gaps = 0
        self.epoch = 0  # of the merge: see ``reset``
        self.schema: pb.Schema | None = None  # the first one that an active input declares
        self.has_bare_events = False  # events were merged while there was none: nobody can declare one any more
        self.facts = Facts()
        self.fanout = Fanout(name, settings.progress_interval_s, merge.stable_point)
        self.release = Release(self.fanout, released, durable, settings.store_waiting_bytes)
        self.journal = Journal(
            settings.retain_bytes, settings.retain_time, settings.segment_bytes,
            None if durable is None else self.release.changes,
        )
        self.durable = durable
        self._limits = settings.batch_limits
        self._retain_bytes = settings.retain_bytes
        self._frames = frames_of(merge.engine)
        self._aside = aside
        self._segment_is_due = False
        self._said: list[AnyBatch] = []
        self._is_used = False
        self._with_marks = False  # whether a subscriber has asked for them

    # What the merge says.

    def say(self, batch: AnyBatch) -> None:
        """The merge has emitted this."""
        if batch.count:
            self._said.append(batch)

    @property
    def may_be_declared(self) -> bool:
        """Whether an input that attaches may declare the schema of the merge."""
        return self.schema is None and not self.has_bare_events

    def note_bare_events(self, batch: AnyBatch) -> None:
        """An active input has delivered ``batch`` while the merge has no schema."""
        self.has_bare_events = batch.counts(batch.count)[0] > 0

    def then(self, effect: Effect) -> None:
        """What is to happen at this point of a turn, once all before it is released."""
        self.release.then(effect)

    def flush(self) -> None:
        """Encode what was emitted so far; it is said at this point."""
        if not self._said:
            return
        batches, self._said = self._said, []
        supporters = [n for b in batches for n in self.merge.supporters(b)] if self._with_marks else []
        for message in encoded(batches, self._frames, self._limits):
            self.journal.append(message)
            self.release.say(message.data, message.elements)
            if supporters and message.inserts:
                told, supporters = supporters[:message.inserts], supporters[message.inserts:]
                self.then(partial(self.fanout.mark, marks(told)))

    async def keep_journal(self) -> None:
        """Once a turn, after ``flush``: begin a segment if it is time, forget what is too old."""
        stable_point = self.merge.stable_point
        if self._segment_is_due or self.journal.wants_segment(stable_point):
            await self._begin_large_segment()
        self.journal.trim(stable_point)

    def end_turn(self) -> None:
        """Hand over what the turn has said."""
        if self.durable is not None and self._is_used:
            self.facts.note(self.release.changes, self)
        self.release.end_turn(self.merge.stable_point)

    # Where it begins.

    def use(self, replica: str, incarnation: int) -> None:
        """An input is in: from the first one on there is something to remember."""
        if not self._is_used:
            self._is_used = True
            self._begin_segment()
        if self.durable is not None:
            self.release.changes.incarnations[replica] = incarnation

    def go_on(self, facts: dict[str, bytes], segments: list[Segment]) -> None:
        """With what a store holds."""
        self._is_used = True
        self.facts.load(facts, self)
        self.journal.reopen(segments)

    def begin_from(self, complete_from: int) -> None:
        """The output is right only for events with Ve >= ``complete_from``: the past is of no use to anybody.

        Those who rely on earlier times subscribe again, and are told.
        """
        self.complete_from = max(self.complete_from, complete_from)
        error = OutputGap(
            f"merge {self.name!r}: what ended before {show_time(complete_from)} may be missing, as no input that is "
            "left could tell it; subscribe again to go on from there"
        )
        self.then(lambda: self.fanout.finish(error, complete_from))
        self.flush()
        self.journal.forget()
        self._begin_segment()

    def begin_anew(self, merge: Merge, complete_from: int, error: OutputGap) -> None:
        """``merge``, which has said nothing, takes the place of one that could not go on: see ``standstill``.

        Who subscribes before an input is back is promised no more than ``complete_from``.
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
        """``merge``, which has said nothing, begins a new epoch: nothing of the one before is kept, or goes on."""
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
        """The fence of this replica's incarnations is gone."""
        if self.durable is not None:
            self.release.changes.incarnations[replica] = None

    def _begin_segment(self) -> None:
        """Here; one with many live events at the end of this turn, which then has everything that the turn emits."""
        if self._skips_segment():
            return
        self._segment_is_due = self._aside.is_large(self.merge)
        if not self._segment_is_due:
            self._begin_with(emitted_events(self.merge))

    async def _begin_large_segment(self) -> None:
        self._segment_is_due = False
        if not self._skips_segment():
            self._begin_with(await self._aside.read(self.merge, lambda: emitted_events(self.merge)))

    def _skips_segment(self) -> bool:
        is_too_large = self.durable is None and self.merge.live_bytes > self._retain_bytes
        if is_too_large:
            self._segment_is_due = False
            self.journal.skip()  # without a copy of what cannot be kept
        return is_too_large

    def _begin_with(self, live: AnyBatch) -> None:
        self.journal.begin(live, self.merge.stable_point, self.complete_from)

    # Subscribers.

    @property
    def retained_from(self) -> int:
        """A subscriber can resume at any time from here on."""
        retained = self.journal.retained_from
        return self.release.stable_point if retained is None else retained

    async def subscribe(self, subscriber: Subscriber, resume_at: int | None, snapshot_if_too_old: bool) -> Beginning:
        """Its place is here: what comes before is in the answer, what comes after in its queue. The hub waits, so
        nothing is emitted meanwhile. Raises OutOfRange, MergeReset.
        """
        if subscriber.epoch not in (None, self.epoch):
            raise MergeReset(
                f"cannot resume merge {self.name!r} with a token of epoch {subscriber.epoch}: it is in epoch "
                f"{self.epoch} here, as it was reset; what was read before does not go on, so subscribe without a token"
            )
        self.flush()
        self._with_marks = self._with_marks or subscriber.wants_marks
        stable_point = self.merge.stable_point
        complete_from = max(self.complete_from, stable_point)
        live, history = None, None
        if resume_at is not None and resume_at < complete_from:
            history = self._history(resume_at, snapshot_if_too_old)
        if history is None:
            live = await self._aside.read(self.merge, self.merge.live_events)
        else:
            complete_from = history.complete_from
        subscriber.complete_from = max(complete_from, NEG_INF if resume_at is None else resume_at)
        self.then(lambda: self.fanout.add(subscriber))
        return Beginning(live, history, stable_point, complete_from, self.schema, self.epoch)

    def past(self, history: History) -> AsyncIterator[Message]:
        """The messages of a history that is in the store."""
        assert self.durable is not None
        return self.durable.past(history)

    def _history(self, resume_at: int, snapshot_if_too_old: bool) -> History | None:
        segment = self.journal.find(resume_at)
        if segment is not None:
            return self.journal.history(segment)
        if snapshot_if_too_old:
            return None
        raise OutOfRange(
            f"cannot resume merge {self.name!r} at {show_time(resume_at)}: it retains times from "
            f"{show_time(self.retained_from)} to {show_time(self.merge.stable_point)}; "
            "subscribe without a token, or allow a snapshot that begins later"
        )

    # The store.

    @property
    def store_words(self) -> str:
        """``memory``, ``durable``, or what is wrong with the store."""
        return MEMORY if self.durable is None else self.durable.words

    async def once_kept(self, what: str, settled: Coroutine[Any, Any, T]) -> T:
        """What comes of ``settled``. Raises StoreFull if nothing can be written at present, or while it waits."""
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
        return StoreFull(f"nobody can {what} merge {self.name!r} now: {problem}")

    def start(self, broken: Callable[[Exception], None]) -> asyncio.Task[None] | None:
        """The task that commits, if there is a store. ``broken``: hears why no more can be kept."""
        if self.durable is None:
            return None

        async def run() -> None:
            try:
                await self.release.run()
            except Exception as problem:
                broken(problem)

        return asyncio.create_task(run(), name=f"release {self.name}")

    async def close(self) -> None:
        """After its task has ended."""
        if self.durable is not None:
            await self.durable.close()
