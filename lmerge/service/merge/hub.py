"""The owner of one merge: a task that takes steps from an inbox. Only this task touches the merge.

Publishers put batches into the inbox, in their order. Attaching, leaving, subscribing and status changes are steps in
the same inbox. So each step sees the merge at one point of its history: a snapshot and the queue that follows it have
no gap and no overlap.

A *turn* takes what waits, up to a number of elements. It ends with one output (encoded once for all subscribers), at
most one ack per input, and one flush of the record. The release queue (``release_queue``) sends all of it, in this
order. Under load turns grow, and so do output batches. At a low rate turns start a little apart (``turn_pace``).

On the native engine a thread of the pool merges the batches of a large turn, with the GIL released. Other merges of
the server, and the sockets, continue on other cores. The task waits for the thread, so nothing else touches the merge.
Queries during that time are answered with the state before the work began (``HubQueries.observed``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from lmerge.core.batch import AnyBatch
from lmerge.core.detaching import DetachCause, InputDetached
from lmerge.core.elements import show_time
from lmerge.core.engines.selection import NATIVE
from lmerge.core.inputs import InputRole, JoinState
from lmerge.core.merge import InputStatus, Merge, Outcome
from lmerge.errors import Draining, LimitExceeded, LmergeError, Unavailable, UsageError
from lmerge.service import log
from lmerge.service.merge.acks import Acks
from lmerge.service.merge.attachments import (
    Accepted,
    Attached,
    AttachRequest,
    check_schema,
    elements_read,
    ending,
    too_large,
)
from lmerge.service.merge.divergence_policy import Certifier, Expulsion
from lmerge.service.merge.inbox import Inbox, PublisherSession, Step, Work
from lmerge.service.merge.lead_alarm import LeadAlarm, behind, without_stable
from lmerge.service.merge.new_beginnings import NewBeginnings
from lmerge.service.merge.payload_limit import PayloadLimit
from lmerge.service.merge.redundancy import Redundancy
from lmerge.service.merge.row_check import RowCheck, SiftedWork
from lmerge.service.merge.stalled_merge import StandstillTimer
from lmerge.service.merge.turn_pace import TurnPace
from lmerge.service.offload import Offload
from lmerge.service.output.durable_merges import DurableOutput, RecoveredMerge
from lmerge.service.output.fanout import Message, SubscriberQueue
from lmerge.service.output.journal import History
from lmerge.service.output.pipeline import Beginning, MergeOutput
from lmerge.service.output.session_recorder import Recorder
from lmerge.service.settings import Settings
from lmerge.wire.codec import split_batch
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.limits import BatchLimits

__all__ = ["Accepted", "AttachRequest", "Attached", "Hub"]

T = TypeVar("T")

# Batches of fewer elements are merged on the loop: a thread costs about as much as half a millisecond of merging.
THREAD_ELEMENTS_MIN: Final = 8192


class Hub(NewBeginnings):
    """Runs one merge. ``start`` makes its task, and calls ``on_crash`` if a bug ends it."""

    def __init__(
        self, name: str, settings: Settings, recorder: Recorder | None = None, pool: ThreadPoolExecutor | None = None,
        durable: DurableOutput | None = None, recovered: RecoveredMerge | None = None,
    ) -> None:
        """Make the hub. ``durable``: the store of the output; ``recovered``: the merge that was read from it."""
        self.name: Final = name
        self.merge: Merge = settings.new_merge() if recovered is None else recovered.merge
        self.frames: Final = frames_of(self.merge.engine)  # messages as batches for this merge, and back
        self.staged_commits = 0  # commits whose parts were all staged here
        self.missed_commits = 0  # commits of which a part was missing
        self.detached: deque[InputDetached] = deque(maxlen=settings.detached_remembered)
        self.detached_counts: dict[str, int] = {}
        self.switches: deque[str] = deque(maxlen=settings.switches_remembered)
        self.turns = 0
        self.turn_seconds = 0.0
        self.attached_ever = False
        self._settings = settings
        self._recorder = recorder
        self._inputs: dict[str, Attached] = {}
        self._turn_elements = settings.turn_elements_of(self.merge.engine)
        self._inbox = Inbox(settings.merge_queue_elements, settings.merge_queue_bytes)
        self._pool = pool if self.merge.engine == NATIVE else None
        self._offload = Offload(pool)
        self._pace = TurnPace(settings)
        self._draining = False
        self._piece_limits = BatchLimits(self._turn_elements, settings.payload_bytes, 2 * settings.message_bytes)
        self._acks = Acks(self._inputs, lambda: self.lives, settings)
        self._output = MergeOutput(
            name, self.merge, settings, lambda: self._acks.released(self._output.release), self._offload, durable
        )
        self._broken: LmergeError | None = None
        self._releasing: asyncio.Task[None] | None = None
        if recovered is not None:
            self._output.go_on(recovered.facts, recovered.segments)
            self.attached_ever = True
        self.certifier = Certifier(
            name, self.merge, settings, self.kept, self.keep, self._step, lambda: self._output.schema
        )
        self.lead_alarm = LeadAlarm(
            name, settings.lead_wait_s, lambda: self._step(lambda: self._excuse(without_stable))
        )
        self.redundancy = Redundancy(settings.redundancy_lag_s)
        self.payload_limit = self._new_payload_limit()
        self._row_check = RowCheck(name)
        self._standstill = StandstillTimer(settings.gap_after_s, lambda: self._step(self._end_standstill))
        self._task: asyncio.Task[None] | None = None

    # Life.

    def start(self, on_crash: Callable[[BaseException], None]) -> None:
        """Start the task that takes steps."""
        self._task = asyncio.create_task(self._run(on_crash), name=f"merge {self.name}")
        self._releasing = self._output.start(lambda problem: self._break(problem, on_crash))

    async def drain(self) -> None:
        """Take nothing new, merge what was received, then end all publishers and subscribers with Draining."""
        self._draining = True
        if not self.is_alive:  # it has failed, and its streams have ended with an error
            return
        await self._inbox.emptied()
        error = Draining(f"merge {self.name!r}: {Draining.MESSAGE}")
        await self.settled(lambda: self._end_all(error))

    async def close(self) -> None:
        """End the task. Called after ``drain``, or for a merge without inputs and subscribers."""
        for timers in (self._acks, self._output.fanout, self._standstill, self.lead_alarm, self.certifier):
            timers.close()
        for task in (self._task, self._releasing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._output.close()
        if self._recorder is not None:
            self._recorder.close()

    def abandon(self) -> None:
        """End the task without waiting for it: for a merge that was never used."""
        for task in (self._task, self._releasing):
            if task is not None:
                task.cancel()
        if self._recorder is not None:
            self._recorder.close()

    @property
    def is_unused(self) -> bool:
        """Whether no input ever attached, there are no subscribers, and nothing waits in the inbox."""
        return not (self.attached_ever or self.subscribers or self._inbox)

    def keep(self, name: str, text: str) -> None:
        """Persist ``text`` under ``name``, so that it outlives the server. To be called in a step (``call``)."""
        self._output.facts.keep(name, text)

    def past(self, history: History) -> AsyncIterator[Message]:
        """Return the messages of a history that is in the store."""
        return self._output.past(history)

    def attached(self, name: str) -> Attached | None:
        return self._inputs.get(name)

    # What publishers do.

    async def attach(self, session: PublisherSession, request: AttachRequest) -> Accepted:
        """Attach an input. Raises UsageError and its subclasses, Draining."""
        self._check_open()
        return await self._output.once_kept("attach to", self.settled(lambda: self._attach(session, request)))

    async def put(
        self, session: PublisherSession, sequence: int, batch: AnyBatch, wire_bytes: int, *, base: int = 0,
        is_last: bool = True,
    ) -> None:
        """Queue a batch; wait while there is no room. Raises Draining if the server takes nothing new.

        Several batches can share one sequence. ``base`` is then the number of elements in the batches before this one,
        and only the batch that ``is_last`` is acked.
        """
        self._check_open()
        await self._inbox.room()
        acked = sequence if is_last else 0
        pieces = [batch] if batch.count <= self._turn_elements else list(split_batch(batch, self._piece_limits))
        for piece in pieces[:-1]:
            self._queue(Work(session, piece, 0, sequence, base, 0))
            base += piece.count
        self._queue(Work(session, pieces[-1], acked, sequence, base, wire_bytes))

    async def leave(self, session: PublisherSession, cause: DetachCause, reason: str) -> None:
        """Detach the session's input after all of its batches, if it is still attached."""
        if self.is_alive:
            await self.settled(lambda: self._leave(session, cause, reason))

    def leaving(self, session: PublisherSession) -> None:
        """Note that the session's input sends nothing more: it does not count any more."""
        inp = self._of(session)
        if inp is not None:
            inp.life.leaving = True

    async def skip(self, session: PublisherSession, until: int) -> None:
        """Note that the session's input leaves out events that end before ``until``, after all its queued batches.

        Raises UsageError.
        """
        if self.is_alive:
            await self.call(lambda: self._skip(session, until))

    def gone(self, session: PublisherSession, cause: DetachCause, reason: str) -> None:
        """Detach the session's input without waiting: ``leave`` for a stream that has ended."""
        self._step(lambda: self._leave(session, cause, reason))

    # What subscribers do.

    async def subscribe(
        self, subscriber: SubscriberQueue, resume_at: int | None = None, *, snapshot_if_too_old: bool = False
    ) -> Beginning:
        """Register a subscriber; return the output that comes before its queue.

        ``resume_at``: the subscriber has all events that end before this time. Raises LimitExceeded, Draining, and
        OutOfRange if ``resume_at`` is too old.
        """
        self._check_open()
        subscribed = self._called(
            lambda: self._subscribe(subscriber, resume_at, snapshot_if_too_old), self._output.then
        )
        return await self._output.once_kept("subscribe to", subscribed)

    def unsubscribe(self, subscriber: SubscriberQueue) -> None:
        self._output.fanout.remove(subscriber)

    # The inbox.

    async def call(self, step: Callable[[], T]) -> T:
        """Run ``step`` in the hub's task, after all that was queued before it. Return its result or raise its error."""
        return await self._called(lambda: _at_once(step), lambda answer: answer())

    async def settled(self, step: Callable[[], T]) -> T:
        """Like ``call``, but return the result only when all output emitted before it is released."""
        return await self._called(lambda: _at_once(step), self._output.then)

    async def _called(
        self, step: Callable[[], Awaitable[T]], hand_over: Callable[[Callable[[], None]], None]
    ) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                result = await step()
            except LmergeError as error:
                if not future.done():
                    future.set_exception(error)
            else:
                hand_over(lambda: None if future.done() else future.set_result(result))

        assert self._task is not None
        self._step(run)
        await asyncio.wait((future, self._task), return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise self._failed()
        return future.result()

    @property
    def is_alive(self) -> bool:
        """Whether the hub takes steps. False once it has failed."""
        return self._task is not None and not self._task.done()

    def _failed(self) -> LmergeError:
        return self._broken or Unavailable(f"merge {self.name!r} has failed; see the server's log")

    def _check_open(self) -> None:
        if self._draining:
            raise Draining(f"merge {self.name!r}: {Draining.MESSAGE}")
        if not self.is_alive:
            raise self._failed()

    def _queue(self, work: Work) -> None:
        self._inbox.put(work)
        if self._inbox.elements >= self._turn_elements:
            self._pace.hurry()

    def _step(self, step: Step) -> None:
        self._inbox.put(step)
        self._pace.hurry()

    # Turns.

    async def _run(self, on_crash: Callable[[BaseException], None]) -> None:
        try:
            await self._take_turns()
        except Exception as bug:
            log.logger.exception("merge %r failed", self.name)
            self._end_all(self._failed())
            self._output.release.end_turn(self._output.release.stable_point)
            on_crash(bug)

    def _break(self, problem: Exception, on_crash: Callable[[BaseException], None]) -> None:
        """End the merge: its output cannot be persisted. A damaged file does not end the other merges."""
        log.logger.error("the output of merge %r cannot be kept", self.name, exc_info=problem)
        self._broken = problem if isinstance(problem, LmergeError) else None
        if self._task is not None:
            self._task.cancel()
        for inp in self._inputs.values():
            inp.session.end(self._failed())
        self._output.fanout.finish(self._failed())
        if self._broken is None:
            on_crash(problem)

    async def _take_turns(self) -> None:
        while True:
            await self._inbox.wake.wait()
            await self._pace.pause()
            await self._output.release.room()
            self._pace.begin()
            await self._turn()
            self.turns += 1
            self.turn_seconds += self._pace.end(len(self._output.fanout.subscribers))
            if self._inbox:
                self._pace.hurry()
                await asyncio.sleep(0)  # let the streams of other merges, and acks, run

    async def _turn(self) -> None:
        budget = self._turn_elements
        inbox = self._inbox
        while inbox and budget > 0:
            works = inbox.take_batches(budget)
            if works:
                budget -= sum(work.batch.count or 1 for work in works)
                await self._merge(works)
            else:
                more = inbox.take_step()()
                if more is not None:
                    await more
        if self.certifier.is_due:
            await self._certify()
        self._shed()
        if self._settings.lead_max is not None:
            self.lead_alarm.look(self.merge.inputs())
        self.redundancy.note(asyncio.get_running_loop().time(), self.merge.stable_point)
        self._output.flush()
        if self._recorder is not None:
            self._recorder.flush()
        await self._output.keep_journal()
        self._acks.hand_over(self._output.release)
        self._output.end_turn()
        inbox.settle()

    # Steps.

    async def _merge(self, works: list[Work]) -> None:
        by_session = {id(inp.session): inp for inp in self._inputs.values()}
        pending = [(work, inp) for work in works if (inp := by_session.get(id(work.session))) is not None]
        merge, certifier, payload_limit, schema = self.merge, self.certifier, self.payload_limit, self.schema

        def apply() -> tuple[SiftedWork, list[Outcome]]:
            outcomes = []
            sifted = self._row_check.sift(schema, pending)
            for work, inp in sifted.fitting:
                outcomes.append(certifier.apply(inp.name, work.batch, inp.incarnation))
                payload_limit.note((inp.name, inp.incarnation), merge.live_bytes)
            return sifted, outcomes

        (fitting, misfits), outcomes = await self._offload.run(merge, apply) if self._takes_long(pending) else apply()
        for (work, inp), outcome in zip(fitting, outcomes, strict=True):
            self._merged(work, inp, outcome)
        if len(fitting) < len(works):  # fenced, or detached by a fault, while they waited; or no rows
            merge.refused += sum(w.batch.count for w in works) - sum(w.batch.count for w, _ in fitting)
        if any(outcome.detached for outcome in outcomes):
            self._admit_if_stuck()  # last: an admission emits output, which must follow the output of this run
        for session, error in misfits:
            self._leave(session, DetachCause.INVALID_ROW, f"invalid-row {error}")
            self._output.then(partial(session.end, error))

    def _takes_long(self, pending: list[tuple[Work, Attached]]) -> bool:
        if self._offload.has_thread and self._row_check.takes_long(self.schema, pending):
            return True
        if self.merge.engine != NATIVE or self._pool is None:
            return False
        if sum(work.batch.count for work, _ in pending) >= THREAD_ELEMENTS_MIN:
            return True
        return self._offload.is_large(self.merge) and any(work.batch.counts(work.batch.count)[2] for work, _ in pending)

    def _merged(self, work: Work, inp: Attached, outcome: Outcome) -> None:
        is_attached = self._inputs.get(inp.name) is inp  # False behind a broken promise: the merge refused the batch
        if self._recorder is not None and is_attached:
            self._recorder.applied(inp.name, work.batch, elements_read(outcome, inp.name, work.batch))
        if is_attached and inp.role is InputRole.ACTIVE and self._output.may_be_declared:
            self._output.note_bare_events(work.batch)
        self._absorb(outcome, work)
        if work.sequence and self._inputs.get(inp.name) is inp:
            inp.merged = work.sequence
            inp.unacked = True

    def _attach(self, session: PublisherSession, request: AttachRequest) -> Accepted:
        if self._draining:
            self._check_open()
        check_schema(self.name, request, self.schema, has_bare_events=self._output.has_bare_events)
        name, settings, merge = request.name, self._settings, self.merge
        self.certifier.check(name)
        if name not in self._inputs and len(self._inputs) >= settings.inputs_per_merge:
            raise LimitExceeded(
                f"input {name!r} cannot attach to merge {self.name!r}: it has {len(self._inputs)} inputs, the limit"
            )
        outcome = merge.attach(
            name, request.properties, join_at=request.join_at, role=request.role, incarnation=request.incarnation
        )
        self.attached_ever = True
        self._output.use(name, merge.status(name).incarnation)
        if self._output.schema is None and request.role is InputRole.ACTIVE:  # an observer's rows are never emitted
            self._output.schema = request.schema
        if self._recorder is not None:
            if outcome.detached:
                self._recorder.detached(name)
            self._recorder.attached(name, request.properties, request.join_at, request.role)
        self._absorb(outcome)
        self._admit_if_stuck()
        status = merge.status(name)
        self.certifier.attached(name, status.incarnation, request.role, request.join_at)
        joined = status.state is JoinState.JOINED
        self._inputs[name] = Attached(name, status.incarnation, session, request, joined, merge.stable_point)
        log.event(
            logging.INFO, "input attached", merge=self.name, input=name, incarnation=status.incarnation,
            properties=sorted(request.properties), join_at=request.join_at, joined=joined, algorithm=merge.algorithm,
        )
        return Accepted(
            status.incarnation, merge.stable_point, joined, merge.algorithm, merge.algorithm_reason
        )

    def _of(self, session: PublisherSession) -> Attached | None:
        return next((inp for inp in self._inputs.values() if inp.session is session), None)

    def _skip(self, session: PublisherSession, until: int) -> None:
        inp = self._of(session)
        if inp is None:  # it has been detached meanwhile
            return
        if not inp.life.may_skip(until, self.merge.status(inp.name), self.merge.stable_point):
            raise UsageError(
                f"input {inp.name!r} of merge {self.name!r} cannot skip to {show_time(until)}: the merge is only at "
                f"{show_time(self.merge.stable_point)}; attach again with that join_at"
            )
        inp.life.skipped_until = max(until, inp.life.skipped_until or until)
        self.certifier.skipped(inp.name, until)

    def _leave(self, session: PublisherSession, cause: DetachCause, reason: str) -> None:
        inp = self._of(session)
        if inp is None:
            return
        if self._recorder is not None:
            self._recorder.detached(inp.name)
        self._absorb(self.merge.detach(inp.name, reason, cause))

    def expel(self, name: str, expulsion: Expulsion) -> None:
        """End an input; to be called in a step. Its publisher gets the reason (``Certifier.ending``).

        Raises UnknownInput.
        """
        outcome = self.merge.detach(name, expulsion.reason, expulsion.cause)
        if self._recorder is not None:
            self._recorder.detached(name)
        self._absorb(outcome)

    def forget(self, name: str) -> None:
        """Let any incarnation of ``name`` attach; to be called in a step. Raises UsageError while it is attached."""
        self.merge.forget_fence(name)
        self._output.forget(name)

    async def release(self, name: str) -> str:
        """Release an input; return what was released, as a sentence. Raises UsageError.

        If its stable is held, the hold ends. If its version is disputed, its version decides. If its name is refused,
        it may attach again.
        """
        return await self._called(lambda: self._release(name), self._output.then)

    async def _release(self, name: str) -> str:
        if name in self._inputs and self.merge.status(name).held:
            await self._excuse(lambda inputs: behind(inputs, name))
            return f"the stable of {name} is not held any more"
        if self.certifier.decide_disputes_by(name):
            return f"what {name} delivered decides the disputed intervals"
        self.certifier.release(name)
        return f"{name} may attach again"

    async def _excuse(self, whom: Callable[[list[InputStatus]], list[str]]) -> None:
        """Excuse these inputs: until they have a new stable point, no other input's stable is held for them."""
        for name in whom(self.merge.inputs()):
            log.event(logging.WARNING, "input excused", merge=self.name, input=name)
            if self._recorder is not None:
                self._recorder.excused(name)
            self._absorb(await self._offload.read(self.merge, partial(self.merge.excuse, name)))

    def _new_payload_limit(self) -> PayloadLimit:
        settings = self._settings
        return PayloadLimit(settings.live_bytes_max, settings.live_bytes_per_input, self.merge.live_bytes)

    def _shed(self) -> None:
        """End the input that takes the merge above its limit of bytes."""
        found = self.payload_limit.too_much(self._inbox.bytes)
        inp = None if found is None else self._inputs.get(found[0])
        if found is None or inp is None:
            return
        error = found[1]
        log.event(logging.WARNING, "merge above its limit", merge=self.name, problem=str(error))
        # Sent as a message too: a peer that is held in the middle of a write may never see the status.
        self._leave(inp.session, DetachCause.LIMIT_EXCEEDED, f"limit-exceeded {error}")
        self._output.then(partial(inp.session.end, error, too_large(error)))

    async def _certify(self) -> None:
        """Compare the inputs, and do what the policy requires."""
        for name, expulsion in self.certifier.settle(lambda: self.lives):
            self.expel(name, expulsion)
        has_joined = True
        while has_joined:
            has_joined = False
            for give in self.certifier.releases(lambda: self.lives):
                outcome = await self._offload.read(self.merge, give)
                self._absorb(outcome)
                has_joined = has_joined or bool(outcome.joined)
        self.certifier.wait_for_late(lambda: self.lives)

    async def _subscribe(
        self, subscriber: SubscriberQueue, resume_at: int | None, snapshot_if_too_old: bool
    ) -> Beginning:
        if self._draining:
            self._check_open()
        if len(self.subscribers) >= self._settings.subscribers_per_merge:
            raise LimitExceeded(
                f"subscriber {subscriber.name!r} cannot subscribe to merge {self.name!r}: "
                f"it has {len(self.subscribers)} subscribers, the limit"
            )
        return await self._output.subscribe(subscriber, resume_at, snapshot_if_too_old)

    def _end_all(self, error: LmergeError) -> None:
        self._output.flush()
        self._acks.hand_over(self._output.release)
        for inp in list(self._inputs.values()):
            self._output.then(partial(inp.session.end, error))
        self._output.then(lambda: self._output.fanout.finish(error))

    # What a call of the merge has caused.

    def _absorb(self, outcome: Outcome, work: Work | None = None) -> None:
        self._output.emit(outcome.batch)
        for name in outcome.joined:
            self.certifier.notice()
            if name in self._inputs:
                self._inputs[name].joined = self._inputs[name].unacked = True
        for change in outcome.switched:
            self.switches.append(f"{change.before} -> {change.after}: {change.reason}")
            log.event(
                logging.WARNING, "algorithm switched", merge=self.name, before=change.before, after=change.after,
                reason=change.reason,
            )
        for gone in outcome.detached:
            self._input_gone(gone, work)
        if outcome.detached and work is None:
            self._admit_if_stuck()

    def _input_gone(self, gone: InputDetached, work: Work | None) -> None:
        self.certifier.gone(gone)
        self.payload_limit.gone((gone.input, gone.incarnation), self.merge.live_bytes)
        self.detached.appendleft(gone)
        self.detached_counts[gone.label] = self.detached_counts.get(gone.label, 0) + 1
        log.event(
            logging.INFO if gone.violation is None else logging.WARNING, "input detached",
            merge=self.name, input=gone.input, incarnation=gone.incarnation, reason=gone.reason,
        )
        inp = self._inputs.get(gone.input)
        if inp is None or inp.incarnation != gone.incarnation:
            return
        del self._inputs[gone.input]
        if inp.unacked:
            self._acks.ack(inp, self._output.release)
        ending_message = ending(self.name, gone, inp, work)
        if ending_message is not None:
            self._output.then(partial(inp.session.end, *ending_message))
        elif (error := self.certifier.ending(gone)) is not None:
            self._output.then(partial(inp.session.end, error))


async def _at_once(step: Callable[[], T]) -> T:
    return step()
