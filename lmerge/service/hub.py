"""The owner of one merge: a task that takes steps from an inbox, and is the only one that touches the merge.

Publishers put batches in, in their order; attaching, leaving, subscribing and status changes are steps in the same
inbox, so each sees the merge at one point of its history: a snapshot and the queue that follows it have no gap and
no overlap.

A *turn* takes what waits, up to a number of elements, and ends with one output (encoded once for all subscribers),
at most one ack per input, and one flush of the record. Under load turns grow and so do output batches; at a low
rate turns start ``turn_interval_s`` apart, which bounds the latency that batching adds.

On the native engine the batches of a large turn are merged in a thread (``Pool``), with the GIL released: other merges
of the server, and the sockets, go on on other cores. Nobody but this task touches the merge, and it waits; what others
may ask meanwhile is answered from the moment before (``observed``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from lmerge.core.batch import AnyBatch
from lmerge.core.elements import NEG_INF, show_time
from lmerge.core.engines import NATIVE
from lmerge.core.inputs import ACTIVE
from lmerge.core.merge import Counts, InputStatus, Merge, Outcome
from lmerge.core.merge import InputDetached as Gone
from lmerge.errors import (
    Draining,
    InputViolation,
    LimitExceeded,
    LmergeError,
    StaleIncarnation,
    Unavailable,
    UsageError,
)
from lmerge.service import log
from lmerge.service.fanout import Subscriber, encoded, progress
from lmerge.service.inbox import Inbox, Session, Work
from lmerge.service.lifecycle import Life, survives_losses, to_fast_forward
from lmerge.service.observed import Observed, observe
from lmerge.service.record import Recorder
from lmerge.service.settings import Settings
from lmerge.wire.codec import split_batch
from lmerge.wire.frames import frames_of
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import BatchLimits

T = TypeVar("T")

# Batches of fewer elements are merged at once: a thread costs about as much as half a millisecond of merging.
THREAD_ELEMENTS_MIN: Final = 8192


class AttachRequest(NamedTuple):
    """What a replica asks for. ``incarnation`` None: the next one."""

    name: str
    incarnation: int | None
    properties: frozenset[str]
    join_at: int | None
    role: str
    schema: pb.Schema | None


class Accepted(NamedTuple):
    """What it gets."""

    incarnation: int
    stable_point: int
    joined: bool
    algorithm: str
    algorithm_reason: str


class Attached:
    """The hub's record of one attached input."""

    __slots__ = ("acked_stable", "attached_at", "incarnation", "joined", "life", "merged", "name", "session", "unacked")

    def __init__(self, name: str, incarnation: int, session: Session, joined: bool, stable_point: int) -> None:
        self.name = name
        self.incarnation = incarnation
        self.session = session
        self.joined = joined
        self.merged = 0  # the last sequence merged
        self.unacked = False
        self.acked_stable = stable_point
        self.attached_at = time.monotonic()
        self.life = Life()


class Hub:
    """Runs one merge. ``start`` makes its task; ``on_crash`` hears of a bug in it."""

    def __init__(
        self, name: str, settings: Settings, recorder: Recorder | None = None, pool: ThreadPoolExecutor | None = None,
    ) -> None:
        self.name: Final = name
        self.merge: Merge = settings.new_merge()
        self.frames: Final = frames_of(self.merge.engine)  # messages as batches for this merge, and back
        self.schema: pb.Schema | None = None
        self.subscribers: dict[int, Subscriber] = {}
        self.detached: deque[Gone] = deque(maxlen=settings.detached_remembered)
        self.detached_counts: dict[str, int] = {}
        self.cut_off_count = 0
        self.turns = 0
        self.turn_seconds = 0.0
        self.attached_ever = False
        self._settings = settings
        self._recorder = recorder
        self._inputs: dict[str, Attached] = {}
        self._turn_elements = settings.turn_elements_of(self.merge.engine)
        self._inbox = Inbox(settings.merge_queue_elements, settings.merge_queue_bytes)
        self._pool = pool if self.merge.engine == NATIVE else None
        self._before: Observed | None = None  # while a thread merges: what was before
        self._stable_point = self.merge.stable_point  # at the end of the last turn
        self._hurry = asyncio.Event()  # ends the pause between turns early
        self._draining = False
        self._output: list[AnyBatch] = []
        self._piece_limits = BatchLimits(self._turn_elements, settings.payload_bytes, 2 * settings.message_bytes)
        self._stable_ack_timer: asyncio.TimerHandle | None = None
        self._feedback_timer: asyncio.TimerHandle | None = None
        self._progress_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    # Life.

    def start(self, on_crash: Callable[[BaseException], None]) -> None:
        """Begin to take steps."""
        self._task = asyncio.create_task(self._run(on_crash), name=f"merge {self.name}")

    async def drain(self) -> None:
        """Merge what was received, take nothing new, then end all publishers and subscribers: Draining."""
        self._draining = True
        if not self._is_alive:  # it has failed, and its streams have been told
            return
        await self._inbox.emptied()
        error = Draining(f"merge {self.name!r}: the server is draining; try another server, or this one later")
        await self.call(lambda: self._end_all(error))

    async def close(self) -> None:
        """End the task. Called after ``drain``, or for a merge that nobody uses."""
        for timer in (self._stable_ack_timer, self._feedback_timer, self._progress_timer):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._recorder is not None:
            self._recorder.close()

    def abandon(self) -> None:
        """``close`` for a merge that never was used, without waiting."""
        if self._task is not None:
            self._task.cancel()
        if self._recorder is not None:
            self._recorder.close()

    @property
    def is_unused(self) -> bool:
        """Nobody has ever attached, and nobody is about to."""
        return not (self.attached_ever or self.subscribers or self._inbox)

    @property
    def queued_elements(self) -> int:
        return self._inbox.elements

    @property
    def observed(self) -> Observed:
        """The merge for people and dashboards."""
        return self._before if self._before is not None else observe(self.merge)

    @property
    def lives(self) -> list[tuple[InputStatus, Life]]:
        """The attached inputs: what the core knows, and what the server knows."""
        return [(i, self._inputs[i.name].life) for i in self.observed.inputs if i.name in self._inputs]

    @property
    def survives_losses(self) -> int:
        """How many inputs can be lost before the output stops."""
        return survives_losses(self.lives)

    def attached(self, name: str) -> Attached | None:
        return self._inputs.get(name)

    # What publishers do.

    async def attach(self, session: Session, request: AttachRequest) -> Accepted:
        """Attach an input. Raises UsageError and its kinds, Draining."""
        self._check_open()
        return await self.call(lambda: self._attach(session, request))

    async def put(self, session: Session, sequence: int, batch: AnyBatch, wire_bytes: int) -> None:
        """Queue a batch; waits while there is no room. Raises Draining if the server takes nothing new."""
        self._check_open()
        await self._inbox.room()
        if batch.count <= self._turn_elements:
            self._queue(Work(session, batch, sequence, sequence, 0, wire_bytes))
            return
        base, pieces = 0, list(split_batch(batch, self._piece_limits))
        for piece in pieces:
            is_last = piece is pieces[-1]
            self._queue(Work(session, piece, sequence if is_last else 0, sequence, base, wire_bytes if is_last else 0))
            base += piece.count

    async def leave(self, session: Session, reason: str) -> None:
        """Detach the session's input after all of its batches, if it is still attached."""
        if self._is_alive:
            await self.call(lambda: self._leave(session, reason))

    def leaving(self, session: Session) -> None:
        """The session's input has said its last; it counts no more."""
        inp = self._of(session)
        if inp is not None:
            inp.life.leaving = True

    async def skip(self, session: Session, until: int) -> None:
        """After all of the session's batches: its input leaves out what ends before ``until``. Raises UsageError."""
        if self._is_alive:
            await self.call(lambda: self._skip(session, until))

    def gone(self, session: Session, reason: str) -> None:
        """``leave`` for a stream that cannot wait."""
        self._step(lambda: self._leave(session, reason))

    # What subscribers do.

    async def subscribe(self, subscriber: Subscriber) -> tuple[AnyBatch, int, pb.Schema | None]:
        """Register, and get (live events, stable point, schema) of the same moment. Raises LimitExceeded, Draining."""
        self._check_open()
        return await self.call(lambda: self._subscribe(subscriber))

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self.subscribers.pop(id(subscriber), None)

    # The inbox.

    async def call(self, step: Callable[[], T]) -> T:
        """Run ``step`` in the hub's task, after all that was queued before it; its result or its error."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def run() -> None:
            try:
                result = step()
            except LmergeError as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        assert self._task is not None
        self._step(run)
        await asyncio.wait((future, self._task), return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise self._failed()
        return future.result()

    @property
    def _is_alive(self) -> bool:
        return self._task is not None and not self._task.done()

    def _failed(self) -> Unavailable:
        return Unavailable(f"merge {self.name!r} has failed; the server's log says why")

    def _check_open(self) -> None:
        if self._draining:
            raise Draining(f"merge {self.name!r}: the server is draining; try another server, or this one later")
        if not self._is_alive:
            raise self._failed()

    def _queue(self, work: Work) -> None:
        self._inbox.put(work)
        if self._inbox.elements >= self._turn_elements:
            self._hurry.set()

    def _step(self, step: Callable[[], None]) -> None:
        self._inbox.put(step)
        self._hurry.set()

    # Turns.

    async def _run(self, on_crash: Callable[[BaseException], None]) -> None:
        try:
            await self._take_turns()
        except Exception as bug:
            log.logger.exception("merge %r failed", self.name)
            self._end_all(self._failed())
            on_crash(bug)

    async def _take_turns(self) -> None:
        interval = self._settings.turn_interval_s
        loop = asyncio.get_running_loop()
        next_turn = 0.0
        while True:
            await self._inbox.wake.wait()
            pause = next_turn - loop.time()
            if pause > 0 and not self._hurry.is_set():
                timer = loop.call_later(pause, self._hurry.set)
                await self._hurry.wait()
                timer.cancel()
            started = loop.time()
            next_turn = started + interval
            self._hurry.clear()
            await self._turn()
            self.turns += 1
            self.turn_seconds += loop.time() - started
            if self._inbox:
                self._hurry.set()
                await asyncio.sleep(0)  # the streams of other merges, and acks, go on

    async def _turn(self) -> None:
        budget = self._turn_elements
        inbox = self._inbox
        while inbox and budget > 0:
            works = inbox.take_batches(budget)
            if works:
                budget -= sum(work.batch.count or 1 for work in works)
                await self._merge(works)
            else:
                inbox.take_step()()
        self._stable_point = self.merge.stable_point
        self._flush_output()
        if self._recorder is not None:
            self._recorder.flush()
        self._send_acks()
        inbox.settle()

    # Steps.

    async def _merge(self, works: list[Work]) -> None:
        by_session = {id(inp.session): inp for inp in self._inputs.values()}
        told = [(work, inp) for work in works if (inp := by_session.get(id(work.session))) is not None]
        if len(told) < len(works):  # fenced, or detached by a fault, while they waited
            gone = {id(work) for work in works} - {id(work) for work, _ in told}
            self.merge.refused += sum(work.batch.count for work in works if id(work) in gone)
        merge = self.merge

        def apply() -> list[Outcome]:
            return [merge.apply(inp.name, work.batch, inp.incarnation) for work, inp in told]

        if self._pool is None or sum(work.batch.count for work, _ in told) < THREAD_ELEMENTS_MIN:
            outcomes = apply()
        else:
            self._before = observe(merge)
            try:
                outcomes = await asyncio.get_running_loop().run_in_executor(self._pool, apply)
            finally:
                self._before = None
        for (work, inp), outcome in zip(told, outcomes, strict=True):
            self._merged(work, inp, outcome)
        if any(outcome.detached for outcome in outcomes):
            self._admit_if_stuck()  # last: the merge says what comes of it after all that it has said

    def _merged(self, work: Work, inp: Attached, outcome: Outcome) -> None:
        is_attached = self._inputs.get(inp.name) is inp  # not so behind a broken promise: the merge has refused it then
        if self._recorder is not None and is_attached:
            self._recorder.applied(inp.name, work.batch, _told(outcome, inp.name, work.batch))
        self._absorb(outcome, work)
        if work.sequence and self._inputs.get(inp.name) is inp:
            inp.merged = work.sequence
            inp.unacked = True

    def _attach(self, session: Session, request: AttachRequest) -> Accepted:
        if self._draining:
            self._check_open()
        self._check_schema(request)
        name, settings, merge = request.name, self._settings, self.merge
        if name not in self._inputs and len(self._inputs) >= settings.inputs_per_merge:
            raise LimitExceeded(
                f"input {name!r} cannot attach to merge {self.name!r}: it has {len(self._inputs)} inputs, the limit"
            )
        # A fresh merge has said nothing that the first input could contradict: it starts from there.
        nothing_said = merge.stable_point == NEG_INF and merge.emitted == Counts()
        is_first = nothing_said and not any(i.role == ACTIVE for i in merge.inputs())
        join_at = None if is_first else request.join_at
        outcome = merge.attach(
            name, request.properties, join_at=join_at, role=request.role, incarnation=request.incarnation
        )
        self.attached_ever = True
        if self.schema is None:
            self.schema = request.schema
        if self._recorder is not None:
            if outcome.detached:
                self._recorder.detached(name)
            self._recorder.attached(name, request.properties, join_at, request.role)
        self._absorb(outcome)
        self._admit_if_stuck()
        status = next(i for i in merge.inputs() if i.name == name)
        joined = status.state == "joined"
        self._inputs[name] = Attached(name, status.incarnation, session, joined, merge.stable_point)
        log.event(
            logging.INFO, "input attached", merge=self.name, input=name, incarnation=status.incarnation,
            properties=sorted(request.properties), join_at=join_at, joined=joined, algorithm=merge.algorithm,
        )
        return Accepted(
            status.incarnation, merge.stable_point, joined, merge.algorithm, merge.algorithm_reason
        )

    def _check_schema(self, request: AttachRequest) -> None:
        if request.schema is not None and self.schema is not None and request.schema != self.schema:
            raise UsageError(
                f"input {request.name!r} cannot attach to merge {self.name!r}: it declares columns "
                f"{_columns(request.schema)}, but the merge has {_columns(self.schema)}"
            )

    def _of(self, session: Session) -> Attached | None:
        return next((inp for inp in self._inputs.values() if inp.session is session), None)

    def _skip(self, session: Session, until: int) -> None:
        inp = self._of(session)
        if inp is None:  # it has been detached meanwhile
            return
        status = next(i for i in self.merge.inputs() if i.name == inp.name)
        if not inp.life.may_skip(until, status, self.merge.stable_point):
            raise UsageError(
                f"input {inp.name!r} of merge {self.name!r} cannot skip to {show_time(until)}: the merge is only at "
                f"{show_time(self.merge.stable_point)}; attach again with that join_at"
            )
        inp.life.skipped_until = max(until, inp.life.skipped_until or until)

    def _leave(self, session: Session, reason: str) -> None:
        inp = self._of(session)
        if inp is None:
            return
        if self._recorder is not None:
            self._recorder.detached(inp.name)
        self._absorb(self.merge.detach(inp.name, reason))

    def _subscribe(self, subscriber: Subscriber) -> tuple[AnyBatch, int, pb.Schema | None]:
        if self._draining:
            self._check_open()
        if len(self.subscribers) >= self._settings.subscribers_per_merge:
            raise LimitExceeded(
                f"subscriber {subscriber.name!r} cannot subscribe to merge {self.name!r}: "
                f"it has {len(self.subscribers)} subscribers, the limit"
            )
        self._flush_output()  # what was emitted before belongs to the snapshot, not to the queue
        snapshot = self.merge.live_events()
        self.subscribers[id(subscriber)] = subscriber
        if self._progress_timer is None:
            self._progress_timer = asyncio.get_running_loop().call_later(self._settings.progress_interval_s, self._tick)
        return snapshot, self.merge.stable_point, self.schema

    def _end_all(self, error: LmergeError) -> None:
        self._flush_output()
        self._send_acks()
        for inp in list(self._inputs.values()):
            inp.session.end(error)
        for subscriber in list(self.subscribers.values()):
            subscriber.finish(error)

    # What a call of the merge caused.

    def _absorb(self, outcome: Outcome, work: Work | None = None) -> None:
        if outcome.batch.count:
            self._output.append(outcome.batch)
        for name in outcome.joined:
            if name in self._inputs:
                self._inputs[name].joined = self._inputs[name].unacked = True
        for change in outcome.switched:
            log.event(
                logging.WARNING, "algorithm switched", merge=self.name, before=change.before, after=change.after,
                reason=change.reason,
            )
        for gone in outcome.detached:
            self._input_gone(gone, work)
        if outcome.detached and work is None:
            self._admit_if_stuck()

    def _admit_if_stuck(self) -> None:
        """A merge that has said no stable and has only joining inputs left would wait for ever for its first one.

        So it is after a restart when the first replica to come back goes again before its first stable. Nothing has
        been said that could be contradicted: the input that knows the earliest time begins, as the first one did.
        """
        inputs = [i for i in self.merge.inputs() if i.role == ACTIVE]
        if self.merge.stable_point > NEG_INF or not inputs or any(i.state == "joined" for i in inputs):
            return
        first = min(inputs, key=lambda i: (i.join_at is not None, i.join_at))
        log.event(logging.WARNING, "input admitted early", merge=self.name, input=first.name, join_at=first.join_at)
        self._absorb(self.merge.admit(first.name))

    def _input_gone(self, gone: Gone, work: Work | None) -> None:
        self.detached.appendleft(gone)
        word = gone.violation.code if gone.violation is not None else gone.reason.split(" ")[0]
        self.detached_counts[word] = self.detached_counts.get(word, 0) + 1
        log.event(
            logging.INFO if gone.violation is None else logging.WARNING, "input detached",
            merge=self.name, input=gone.input, incarnation=gone.incarnation, reason=gone.reason,
        )
        inp = self._inputs.get(gone.input)
        if inp is None or inp.incarnation != gone.incarnation:
            return
        del self._inputs[gone.input]
        if inp.unacked:
            self._ack(inp)
        if gone.violation is not None:
            is_own = work is not None and work.session is inp.session
            number, base = (work.number, work.index_base) if work is not None and is_own else (inp.merged, 0)
            inp.session.end(gone.violation, _detached_message(gone.violation, number, base))
        elif gone.reason.startswith("replaced"):
            inp.session.end(StaleIncarnation(
                f"input {gone.input!r} of merge {self.name!r} is fenced: incarnation {gone.incarnation} was "
                f"{gone.reason}"
            ))

    def _flush_output(self) -> None:
        if not self._output:
            return
        batches, self._output = self._output, []
        if not self.subscribers:
            return
        for message, elements in encoded(batches, self.frames, self._settings.batch_limits):
            for subscriber in list(self.subscribers.values()):
                if not subscriber.offer(message, elements):
                    self._cut_off(subscriber)

    def _cut_off(self, subscriber: Subscriber) -> None:
        self.cut_off_count += 1
        self.unsubscribe(subscriber)
        log.event(
            logging.WARNING, "subscriber cut off", merge=self.name, subscriber=subscriber.name, peer=subscriber.peer
        )

    # Acks and progress.

    def _ack(self, inp: Attached) -> None:
        inp.unacked = False
        inp.acked_stable = self._stable_point
        inp.session.acknowledge(inp.merged, inp.acked_stable, inp.joined)

    def _send_acks(self) -> None:
        stable_point = self._stable_point
        others = False
        for inp in self._inputs.values():
            if inp.unacked:
                self._ack(inp)
            elif inp.acked_stable != stable_point:
                others = True
        if others and self._stable_ack_timer is None:
            loop = asyncio.get_running_loop()
            self._stable_ack_timer = loop.call_later(self._settings.stable_ack_interval_s, self._send_stable_acks)
        if others and self._settings.feedback_lag is not None and self._feedback_timer is None:
            loop = asyncio.get_running_loop()
            self._feedback_timer = loop.call_later(self._settings.feedback_interval_s, self._send_feedback)

    def _send_stable_acks(self) -> None:
        """Tell the inputs that were quiet how far others have moved the merge."""
        self._stable_ack_timer = None
        for inp in self._inputs.values():
            if inp.acked_stable != self._stable_point:
                self._ack(inp)

    def _send_feedback(self) -> None:
        """V.D. The stable point is one that the publishers have been told, so a restart cannot take it back."""
        self._feedback_timer = None
        lag = self._settings.feedback_lag
        assert lag is not None
        for name in to_fast_forward(self.lives, self._stable_point, lag):
            inp = self._inputs[name]
            inp.life.fast_forwarded_to = self._stable_point
            inp.session.fast_forward(self._stable_point)

    def _tick(self) -> None:
        """Once per progress interval, while there are subscribers: those that heard nothing hear that."""
        self._progress_timer = None
        if not self.subscribers:
            return
        message = progress(self._stable_point)
        for subscriber in list(self.subscribers.values()):
            if subscriber.quiet and not subscriber.queued_bytes:
                subscriber.offer(message, 0)
            subscriber.quiet = True
        self._progress_timer = asyncio.get_running_loop().call_later(self._settings.progress_interval_s, self._tick)


def _told(outcome: Outcome, name: str, batch: AnyBatch) -> int:
    """How many elements of ``batch`` the merge looked at: all, or up to the one that broke a promise."""
    for gone in outcome.detached:
        if gone.input == name and gone.violation is not None:
            return min(gone.violation.index + 1, batch.count)
    return batch.count


def _columns(schema: pb.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema.columns) or "none"


def _detached_message(violation: InputViolation, sequence: int, index_base: int) -> pb.PublishResponse.Detached:
    return pb.PublishResponse.Detached(
        code=violation.code, message=str(violation), sequence=sequence, index=index_base + violation.index
    )


