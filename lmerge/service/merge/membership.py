"""The inputs of one merge: they attach, skip, leave, and are expelled. Sessions of publishers and administrators call.

The coroutines, and ``gone``, queue a step and may be called from any task of the loop. The other methods are steps
themselves, for callers that are in the hub's task already.
"""

from __future__ import annotations

import logging

from lmerge.core.detaching import DetachCause
from lmerge.core.elements import show_time
from lmerge.core.inputs import InputRole, JoinState
from lmerge.errors import LimitExceeded, UsageError
from lmerge.service import log
from lmerge.service.merge.attachments import Accepted, Attached, AttachRequest, check_schema
from lmerge.service.merge.divergence_policy import Expulsion
from lmerge.service.merge.inbox import PublisherSession
from lmerge.service.merge.merge_state import MergeState
from lmerge.service.merge.merge_task import MergeTask
from lmerge.service.merge.occurrences import OccurrenceKind
from lmerge.service.merge.outcomes import Outcomes


class Membership:
    """The inputs of the merge of ``state``."""

    def __init__(self, state: MergeState, task: MergeTask, outcomes: Outcomes) -> None:
        self._state = state
        self._task = task
        self._outcomes = outcomes

    def get(self, name: str) -> Attached | None:
        """Return the record of an attached input, None if it is not attached."""
        return self._state.inputs.get(name)

    # What publishers do.

    async def attach(self, session: PublisherSession, request: AttachRequest) -> Accepted:
        """Attach an input. Raises UsageError and its subclasses, Draining."""
        self._task.check_open()
        attached = self._task.settled(lambda: self._attach(session, request))
        return await self._state.output.once_kept("attach to", attached)

    async def skip(self, session: PublisherSession, until: int) -> None:
        """Note that the session's input leaves out events that end before ``until``, after all its queued batches.

        Raises UsageError.
        """
        if self._task.is_alive:
            await self._task.call(lambda: self._skip(session, until))

    def leaving(self, session: PublisherSession) -> None:
        """Note that the session's input sends nothing more: it is no stand-in for others any more."""
        inp = self._state.input_of(session)
        if inp is not None:
            inp.life.leaving = True

    async def leave(self, session: PublisherSession, cause: DetachCause, reason: str) -> None:
        """Detach the session's input after all of its batches, if it is still attached."""
        if self._task.is_alive:
            await self._task.settled(lambda: self.detach(session, cause, reason))

    def gone(self, session: PublisherSession, cause: DetachCause, reason: str) -> None:
        """Detach the session's input without waiting: ``leave`` for a stream that has ended."""
        self._task.step(lambda: self.detach(session, cause, reason))

    # Steps.

    def _attach(self, session: PublisherSession, request: AttachRequest) -> Accepted:
        if self._task.is_draining:
            self._task.check_open()
        state, merge = self._state, self._state.merge
        check_schema(state.name, request, state.schema, has_bare_events=state.output.has_bare_events)
        name = request.name
        state.certifier.check(name)
        if name not in state.inputs and len(state.inputs) >= state.settings.inputs_per_merge:
            raise LimitExceeded(
                f"input {name!r} cannot attach to merge {state.name!r}: it has {len(state.inputs)} inputs, the limit"
            )
        outcome = merge.attach(
            name, request.properties, join_at=request.join_at, role=request.role, incarnation=request.incarnation
        )
        state.attached_ever = True
        state.output.use(name, merge.status(name).incarnation)
        if state.output.schema is None and request.role is InputRole.ACTIVE:  # an observer's rows are never emitted
            state.output.schema = request.schema
        if state.recorder is not None:
            if outcome.detached:
                state.recorder.detached(name)
            state.recorder.attached(name, request.properties, request.join_at, request.role)
        self._outcomes.absorb(outcome)
        self._outcomes.admit_if_stuck()
        status = merge.status(name)
        state.certifier.attached(name, status.incarnation, request.role, request.join_at)
        joined = status.state is JoinState.JOINED
        state.occurrences.note(OccurrenceKind.ATTACHED, _attached_text(status.incarnation, joined, request), name)
        state.inputs[name] = Attached(name, status.incarnation, session, request, joined, merge.stable_point)
        log.event(
            logging.INFO,
            "input attached",
            merge=state.name,
            input=name,
            incarnation=status.incarnation,
            properties=sorted(request.properties),
            join_at=request.join_at,
            joined=joined,
            algorithm=merge.algorithm,
        )
        return Accepted(status.incarnation, merge.stable_point, joined, merge.algorithm, merge.algorithm_reason)

    def _skip(self, session: PublisherSession, until: int) -> None:
        state = self._state
        inp = state.input_of(session)
        if inp is None:  # it has been detached meanwhile
            return
        if not inp.life.may_skip(until, state.merge.status(inp.name), state.merge.stable_point):
            raise UsageError(
                f"input {inp.name!r} of merge {state.name!r} cannot skip to {show_time(until)}: the merge is only at "
                f"{show_time(state.merge.stable_point)}; attach again with that join_at"
            )
        state.skips += 1
        inp.life.skipped_until = max(until, inp.life.skipped_until or until)
        state.certifier.skipped(inp.name, until)

    def detach(self, session: PublisherSession, cause: DetachCause, reason: str) -> None:
        """Detach the session's input, if it is still attached."""
        inp = self._state.input_of(session)
        if inp is not None:
            self.expel(inp.name, Expulsion(cause, reason))

    def expel(self, name: str, expulsion: Expulsion) -> None:
        """End an input. Its publisher gets the reason (``Certifier.ending``). Raises UnknownInput."""
        outcome = self._state.merge.detach(name, expulsion.reason, expulsion.cause)
        if self._state.recorder is not None:
            self._state.recorder.detached(name)
        self._outcomes.absorb(outcome)

    def forget(self, name: str) -> None:
        """Let any incarnation of ``name`` attach. Raises UsageError while it is attached."""
        self._state.merge.forget_fence(name)
        self._state.output.forget(name)


def _attached_text(incarnation: int, joined: bool, request: AttachRequest) -> str:
    """Return what an input does from now on, as a sentence without its name."""
    if request.role is InputRole.OBSERVE:
        return f"incarnation {incarnation} observes"
    if joined or request.join_at is None:
        return f"incarnation {incarnation} counts at once"
    return f"incarnation {incarnation} joins at {show_time(request.join_at)}"
