"""The way of a published batch through a merge, from the inbox to the output. ``Hub`` is the owner of one merge.

The hub is one task (``merge_task``), and the only code that touches its merge. Publishers put batches into the inbox,
in their order. Attaching, leaving, subscribing and administration are *steps* in the same inbox. So each step sees the
merge at one point of its history: a snapshot and the queue that follows it have no gap and no overlap.

This module reads from top to bottom as a batch goes:

1. ``put`` waits for room, and queues the batch.
2. ``_take_turns`` begins a *turn*, which takes what waits, up to a number of elements.
3. ``_turn`` takes runs of batches, and the steps between them, in their order.
4. ``_merge`` checks the rows of a run, compares it with the other inputs, and merges it.
5. ``_merged`` passes on what the merge has emitted, and what happened to inputs (``outcomes``).
6. ``_end_turn`` ends the turn with one output (encoded once for all subscribers), at most one ack per input, and one
   flush of the record. The release queue (``release_queue``) sends all of it, in this order.

Under load turns grow, and so do output batches. At a low rate turns start a little apart (``turn_pace``).

On the native engine a thread of the pool merges the batches of a large turn, with the GIL released. Other merges of
the server, and the sockets, continue on other cores. The task waits for the thread, so nothing else touches the merge.
Queries during that time are answered with the state before the work began (``MergeState.observed``).

What else a hub does has its own module: ``membership`` (inputs attach and end), ``subscriptions`` (subscribers),
``maintenance`` (comparison, limits), ``new_beginnings`` (gaps and resets). They share ``merge_state``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from lmerge.core.batch import AnyBatch
from lmerge.core.detaching import DetachCause
from lmerge.core.engines.selection import NATIVE
from lmerge.core.inputs import InputRole
from lmerge.core.merge import Outcome
from lmerge.errors import Draining, LmergeError
from lmerge.service import log
from lmerge.service.merge.attachments import Attached, elements_read
from lmerge.service.merge.inbox import PublisherSession, Work
from lmerge.service.merge.maintenance import Maintenance
from lmerge.service.merge.membership import Membership
from lmerge.service.merge.merge_state import MergeState
from lmerge.service.merge.merge_task import MergeTask
from lmerge.service.merge.new_beginnings import NewBeginnings
from lmerge.service.merge.outcomes import Outcomes
from lmerge.service.merge.row_check import RowCheck, SiftedWork
from lmerge.service.merge.stalled_merge import StandstillTimer
from lmerge.service.merge.subscriptions import Subscriptions
from lmerge.service.output.durable_merges import DurableOutput, RecoveredMerge
from lmerge.service.output.session_recorder import Recorder
from lmerge.service.settings import Settings
from lmerge.wire.codec import split_batch
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.limits import BatchLimits

# Batches of fewer elements are merged on the loop: a thread costs about as much as half a millisecond of merging.
THREAD_ELEMENTS_MIN: Final = 8192


class Hub:
    """Runs one merge. ``start`` makes its task, and calls ``on_crash`` if a bug ends it.

    ``task``: runs steps in the hub's task. ``state``: what the parts share, and what is reported. ``inputs``,
    ``subscriptions``, ``maintenance``, ``beginnings``: the other parts.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        recorder: Recorder | None = None,
        pool: ThreadPoolExecutor | None = None,
        durable: DurableOutput | None = None,
        recovered: RecoveredMerge | None = None,
    ) -> None:
        """Make the hub. ``durable``: the store of the output; ``recovered``: the merge that was read from it."""
        self.name: Final = name
        self.task: Final = MergeTask(name, settings, lambda effect: self._output.then(effect))
        self.state: Final = MergeState(
            name, settings, self.task.inbox, self.task.step, recorder, pool, durable, recovered
        )
        self.frames: Final = frames_of(self.state.merge.engine)  # messages as batches for this merge, and back
        self._standstill = StandstillTimer(
            settings.gap_after_s, lambda: self.task.step(lambda: self.beginnings.accept_gap())
        )
        self._outcomes = Outcomes(self.state, self._standstill)
        self.inputs: Final = Membership(self.state, self.task, self._outcomes)
        self.subscriptions: Final = Subscriptions(self.state, self.task)
        self.maintenance: Final = Maintenance(self.state, self.task, self._outcomes, self.inputs)
        self.beginnings: Final = NewBeginnings(self.state, self._standstill)
        self._output = self.state.output
        self._row_check = RowCheck(name)
        self._turn_elements = settings.turn_elements_of(self.state.merge.engine)
        self._piece_limits = BatchLimits(self._turn_elements, settings.payload_bytes, 2 * settings.message_bytes)
        self._releasing: asyncio.Task[None] | None = None

    # 1. A batch comes.

    async def put(
        self,
        session: PublisherSession,
        sequence: int,
        batch: AnyBatch,
        wire_bytes: int,
        *,
        received_s: float,
        base: int = 0,
        is_last: bool = True,
    ) -> None:
        """Queue a batch; wait while there is no room. Raises Draining if the server takes nothing new.

        Several batches can share one sequence. ``base`` is then the number of elements in the batches before this one,
        and only the batch that ``is_last`` is acked. ``received_s``: when its message was read, on the loop's clock.
        """
        self.task.check_open()
        self.state.received_bytes += wire_bytes
        await self.task.inbox.room()
        acked = sequence if is_last else 0
        pieces = [batch] if batch.count <= self._turn_elements else list(split_batch(batch, self._piece_limits))
        for piece in pieces[:-1]:
            self.task.queue(Work(session, piece, 0, sequence, base, 0, received_s), self._turn_elements)
            base += piece.count
        last = Work(session, pieces[-1], acked, sequence, base, wire_bytes, received_s)
        self.task.queue(last, self._turn_elements)

    # 2. Turns.

    async def _take_turns(self) -> None:
        inbox, pace, state = self.task.inbox, self.task.pace, self.state
        while True:
            await inbox.wake.wait()
            await pace.pause()
            await self._output.release.room()
            pace.begin()
            await self._turn()
            state.turns += 1
            state.turn_seconds += pace.end(len(self._output.fanout.subscribers))
            if inbox:
                pace.hurry()
                await asyncio.sleep(0)  # let the streams of other merges, and acks, run

    # 3. One turn.

    async def _turn(self) -> None:
        budget = self._turn_elements
        inbox = self.task.inbox
        while inbox and budget > 0:
            works = inbox.take_batches(budget)
            if works:
                budget -= sum(work.batch.count or 1 for work in works)
                self._output.note_received(works[0].received_s)
                await self._merge(works)
            else:
                await self._certify()  # first: an input that the step ends has still given its last stable
                more = inbox.take_step()()
                if more is not None:
                    await more
        await self._certify()
        self.maintenance.end_turn()
        await self._end_turn()

    async def _certify(self) -> None:
        if self.state.certifier.is_due:
            await self.maintenance.certify()

    # 4. A run of batches, without a step between them.

    async def _merge(self, works: list[Work]) -> None:
        state = self.state
        by_session = {id(inp.session): inp for inp in state.inputs.values()}
        pending = [(work, inp) for work in works if (inp := by_session.get(id(work.session))) is not None]
        merge, certifier, payload_limit, schema = state.merge, state.certifier, state.payload_limit, state.schema

        def apply() -> tuple[SiftedWork, list[Outcome]]:
            outcomes = []
            sifted = self._row_check.sift(schema, pending)
            for work, inp in sifted.fitting:
                outcomes.append(certifier.apply(inp.name, work.batch, inp.incarnation))
                payload_limit.note((inp.name, inp.incarnation), merge.live_bytes)
            return sifted, outcomes

        (fitting, misfits), outcomes = await state.offload.run(merge, apply) if self._takes_long(pending) else apply()
        for (work, inp), outcome in zip(fitting, outcomes, strict=True):
            self._merged(work, inp, outcome)
        if len(fitting) < len(works):  # fenced, or detached by a fault, while they waited; or no rows
            merge.refused += sum(w.batch.count for w in works) - sum(w.batch.count for w, _ in fitting)
        if any(outcome.detached for outcome in outcomes):
            self._outcomes.admit_if_stuck()  # last: an admission emits output, which must follow that of this run
        for session, error in misfits:
            self.inputs.detach(session, DetachCause.INVALID_ROW, f"invalid-row {error}")
            self._output.then(partial(session.end, error))

    def _takes_long(self, pending: list[tuple[Work, Attached]]) -> bool:
        offload, merge = self.state.offload, self.state.merge
        if not offload.has_thread:
            return False
        if self._row_check.takes_long(self.state.schema, pending):
            return True
        if merge.engine != NATIVE:
            return False
        if sum(work.batch.count for work, _ in pending) >= THREAD_ELEMENTS_MIN:
            return True
        return offload.is_large(merge) and any(work.batch.counts(work.batch.count)[2] for work, _ in pending)

    # 5. One batch, merged.

    def _merged(self, work: Work, inp: Attached, outcome: Outcome) -> None:
        state = self.state
        is_attached = state.inputs.get(inp.name) is inp  # False behind a broken promise: the merge refused the batch
        if state.recorder is not None and is_attached:
            state.recorder.applied(inp.name, work.batch, elements_read(outcome, inp.name, work.batch))
        if is_attached and inp.role is InputRole.ACTIVE and self._output.may_be_declared:
            self._output.note_bare_events(work.batch)
        self._outcomes.absorb(outcome, work)
        if work.sequence and state.inputs.get(inp.name) is inp:
            inp.merged = work.sequence
            inp.unacked = True

    # 6. The output of the turn.

    async def _end_turn(self) -> None:
        self._output.flush()
        if self.state.recorder is not None:
            self.state.recorder.flush()
        await self._output.keep_journal()
        self.state.acks.hand_over(self._output.release)
        self._output.end_turn()
        self.task.inbox.settle()

    # Life.

    def start(self, on_crash: Callable[[BaseException], None]) -> None:
        """Start the task that takes turns."""
        self.task.start(self._run(on_crash))
        self._releasing = self._output.start(lambda problem: self._break(problem, on_crash))

    async def drain(self) -> None:
        """Take nothing new, merge what was received, then end all publishers and subscribers with Draining."""
        self.task.is_draining = True
        if not self.task.is_alive:  # it has failed, and its streams have ended with an error
            return
        await self.task.inbox.emptied()
        error = Draining(f"merge {self.name!r}: {Draining.MESSAGE}")
        await self.task.settled(lambda: self.subscriptions.end_all(error))

    async def close(self) -> None:
        """End the task. Called after ``drain``, or for a merge without inputs and subscribers."""
        state = self.state
        timers = (state.acks, self._output.fanout, self._standstill, self.maintenance.lead_alarm, state.certifier)
        for timer in timers:
            timer.close()
        await self.task.close()
        if self._releasing is not None:
            self._releasing.cancel()
            await asyncio.gather(self._releasing, return_exceptions=True)
        await self._output.close()
        if state.recorder is not None:
            state.recorder.close()

    def abandon(self) -> None:
        """End the task without waiting for it: for a merge that was never used."""
        self.task.cancel()
        if self._releasing is not None:
            self._releasing.cancel()
        if self.state.recorder is not None:
            self.state.recorder.close()

    @property
    def is_unused(self) -> bool:
        """Whether no input ever attached, there are no subscribers, and nothing waits in the inbox."""
        return not (self.state.attached_ever or self.state.subscribers or self.task.inbox)

    async def _run(self, on_crash: Callable[[BaseException], None]) -> None:
        try:
            await self._take_turns()
        except Exception as bug:
            log.logger.exception("merge %r failed", self.name)
            self.subscriptions.end_all(self.task.failure())
            self._output.release.end_turn(self._output.release.stable_point)
            on_crash(bug)

    def _break(self, problem: Exception, on_crash: Callable[[BaseException], None]) -> None:
        """End the merge: its output cannot be persisted. A damaged file does not end the other merges."""
        log.logger.error("the output of merge %r cannot be kept", self.name, exc_info=problem)
        self.task.broken = problem if isinstance(problem, LmergeError) else None
        self.task.cancel()
        self.subscriptions.cut_all(self.task.failure())
        if self.task.broken is None:
            on_crash(problem)
