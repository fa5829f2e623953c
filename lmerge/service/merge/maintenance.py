"""What a hub does for its merge at the end of each turn, beside output: compare the inputs, bound leads and bytes.

``Maintenance`` applies what ``divergence_policy``, ``lead_alarm``, ``payload_limit`` and ``redundancy`` decide.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from lmerge.core.detaching import DetachCause
from lmerge.core.merge import InputStatus
from lmerge.service import log
from lmerge.service.merge.attachments import too_large
from lmerge.service.merge.lead_alarm import LeadAlarm, behind, without_stable
from lmerge.service.merge.membership import Membership
from lmerge.service.merge.merge_state import MergeState
from lmerge.service.merge.merge_task import MergeTask
from lmerge.service.merge.occurrences import OccurrenceKind
from lmerge.service.merge.outcomes import Outcomes


class Maintenance:
    """The upkeep of the merge of ``state``."""

    def __init__(self, state: MergeState, task: MergeTask, outcomes: Outcomes, inputs: Membership) -> None:
        self.lead_alarm: Final = LeadAlarm(
            state.name, state.settings.lead_wait_s, lambda: task.step(lambda: self._excuse(without_stable))
        )
        self._state = state
        self._task = task
        self._outcomes = outcomes
        self._inputs = inputs

    def end_turn(self) -> None:
        """After the comparison of the inputs: end an input for its bytes, watch leads, note how far the output is."""
        state = self._state
        self._shed()
        if state.settings.lead_max is not None:
            self.lead_alarm.look(state.merge.inputs())
        now_s, stable_point = asyncio.get_running_loop().time(), state.merge.stable_point
        state.redundancy.note(now_s, stable_point)
        state.stable_history.note(now_s, stable_point)

    async def certify(self) -> None:
        """Compare the inputs, and do what the policy requires."""
        state, certifier = self._state, self._state.certifier
        for name, expulsion in certifier.settle(lambda: state.lives):
            self._inputs.expel(name, expulsion)
        has_joined = True
        while has_joined:
            has_joined = False
            for give in certifier.releases(lambda: state.lives):
                outcome = await state.offload.read(state.merge, give)
                self._outcomes.absorb(outcome)
                has_joined = has_joined or bool(outcome.joined)
        certifier.wait_for_late(lambda: state.lives)

    def _shed(self) -> None:
        """End the input that takes the merge above its limit of bytes."""
        state = self._state
        found = state.payload_limit.too_much(state.inbox.bytes)
        inp = None if found is None else state.inputs.get(found[0])
        if found is None or inp is None:
            return
        error = found[1]
        log.event(logging.WARNING, "merge above its limit", merge=state.name, problem=str(error))
        # Sent as a message too: a peer that is held in the middle of a write may never see the status.
        self._inputs.detach(inp.session, DetachCause.LIMIT_EXCEEDED, f"limit-exceeded {error}")
        state.output.then(partial(inp.session.end, error, too_large(error)))

    async def release(self, name: str) -> str:
        """Release an input; return what was released, as a sentence. Raises UsageError.

        If its stable is held, the hold ends. If its version is disputed, its version decides. If its name is refused,
        it may attach again.
        """
        released = await self._task.settled_long(lambda: self._release(name))
        self._state.occurrences.note(OccurrenceKind.RELEASED, released, name)
        return released

    async def _release(self, name: str) -> str:
        state = self._state
        if name in state.inputs and state.merge.status(name).held:
            await self._excuse(lambda inputs: behind(inputs, name))
            return f"the stable of {name} is not held any more"
        if state.certifier.decide_disputes_by(name):
            return f"what {name} delivered decides the disputed intervals"
        state.certifier.release(name)
        return f"{name} may attach again"

    async def _excuse(self, whom: Callable[[list[InputStatus]], list[str]]) -> None:
        """Excuse these inputs: until they have a new stable point, no other input's stable is held for them."""
        state = self._state
        for name in whom(state.merge.inputs()):
            log.event(logging.WARNING, "input excused", merge=state.name, input=name)
            if state.recorder is not None:
                state.recorder.excused(name)
            self._outcomes.absorb(await state.offload.read(state.merge, partial(state.merge.excuse, name)))
