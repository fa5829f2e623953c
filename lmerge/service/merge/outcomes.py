"""What a call of the merge causes in the server: output, inputs that join or end, another algorithm.

Every part of a hub that calls its ``Merge`` passes the ``Outcome`` to ``Outcomes.absorb``. When inputs end, and only
joining ones are left, one of them may have to be admitted early.
"""

from __future__ import annotations

import logging
from functools import partial

from lmerge.core.detaching import InputDetached
from lmerge.core.elements import NEG_INF, show_time
from lmerge.core.merge import InputStatus, Outcome, earliest_joining
from lmerge.service import log
from lmerge.service.merge.attachments import ending
from lmerge.service.merge.inbox import Work
from lmerge.service.merge.merge_state import MergeState
from lmerge.service.merge.occurrences import OccurrenceKind
from lmerge.service.merge.stalled_merge import StandstillTimer


class Outcomes:
    """Does what outcomes require, for one merge. All methods are to be called in the hub's task."""

    def __init__(self, state: MergeState, standstill: StandstillTimer) -> None:
        self._state = state
        self._standstill = standstill

    def absorb(self, outcome: Outcome, work: Work | None = None) -> None:
        """Emit the output, and note what happened to inputs. ``work``: the batch that was merged, if it was one."""
        state = self._state
        state.output.emit(outcome.batch)
        for name in outcome.joined:
            state.certifier.notice()
            state.occurrences.note(OccurrenceKind.JOINED, "counts from now on", name)
            if name in state.inputs:
                state.inputs[name].joined = state.inputs[name].unacked = True
        for change in outcome.switched:
            switch = f"{change.before} -> {change.after}: {change.reason}"
            state.switches.append(switch)
            state.occurrences.note(OccurrenceKind.SWITCHED, switch)
            log.event(
                logging.WARNING,
                "algorithm switched",
                merge=state.name,
                before=change.before,
                after=change.after,
                reason=change.reason,
            )
        for gone in outcome.detached:
            self._input_gone(gone, work)
        if outcome.detached and work is None:
            self.admit_if_stuck()

    def _input_gone(self, gone: InputDetached, work: Work | None) -> None:
        state = self._state
        state.certifier.gone(gone)
        state.payload_limit.gone((gone.input, gone.incarnation), state.merge.live_bytes)
        state.note_detached(gone)
        log.event(
            logging.INFO if gone.violation is None else logging.WARNING,
            "input detached",
            merge=state.name,
            input=gone.input,
            incarnation=gone.incarnation,
            reason=gone.reason,
        )
        inp = state.inputs.get(gone.input)
        if inp is None or inp.incarnation != gone.incarnation:
            return
        del state.inputs[gone.input]
        if inp.unacked:
            state.acks.ack(inp, state.output.release)
        ending_message = ending(state.name, gone, inp, work)
        if ending_message is not None:
            state.output.then(partial(inp.session.end, *ending_message))
        elif (error := state.certifier.ending(gone)) is not None:
            state.output.then(partial(inp.session.end, error))

    def admit_if_stuck(self) -> None:
        """Admit an input if the merge has emitted no stable and has only joining inputs: it would wait for ever.

        This happens when the first replica comes back to a server that has started without its state, and when that
        replica ends again before its first stable. The merge has emitted nothing that it could contradict. So the input
        with the earliest join_at is admitted, and the output is right from that time on. A merge that has emitted a
        stable waits for an input that has the missing time (``StandstillTimer``).
        """
        merge = self._state.merge
        first = earliest_joining(merge.inputs())
        if first is not None and merge.stable_point == NEG_INF:
            self._admit(first)
            first = None
        self._standstill.look(first is not None)

    def _admit(self, first: InputStatus) -> None:
        assert first.join_at is not None
        state = self._state
        log.event(logging.WARNING, "input admitted early", merge=state.name, input=first.name, join_at=first.join_at)
        state.occurrences.note(
            OccurrenceKind.ADMITTED, f"counts early: the output is right from {show_time(first.join_at)} on", first.name
        )
        state.output.flush()
        if state.recorder is not None:
            state.recorder.admitted(first.name)
        self.absorb(state.merge.admit(first.name))
        state.output.begin_from(first.join_at)
