"""The state of one merge in a server: what the parts of its hub share, and what status and metrics report.

``Hub`` makes it. Only the hub's task changes it. The queries change nothing, and work at any time, also while a thread
merges.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from lmerge.core.detaching import DetachCause, InputDetached
from lmerge.core.merge import InputStatus, Merge
from lmerge.errors import LmergeError
from lmerge.service.merge.acks import Acks
from lmerge.service.merge.attachments import Attached
from lmerge.service.merge.divergence_policy import Certifier
from lmerge.service.merge.inbox import Inbox, PublisherSession, Step
from lmerge.service.merge.lifecycle import InputLifecycle
from lmerge.service.merge.occurrences import OccurrenceKind, Occurrences
from lmerge.service.merge.payload_limit import PayloadLimit
from lmerge.service.merge.redundancy import Redundancy
from lmerge.service.merge.stable_history import StableHistory
from lmerge.service.merge_view import Observed, observe
from lmerge.service.offload import Offload
from lmerge.service.output.durable_merges import DurableOutput, RecoveredMerge
from lmerge.service.output.fanout import SubscriberQueue
from lmerge.service.output.pipeline import MergeOutput
from lmerge.service.output.session_recorder import Recorder
from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb


class MergeState:
    """The state of the merge ``name``. ``merge`` is another object after a gap or a reset: see ``begin_with``.

    ``inputs``: the attached inputs, by name. ``attached_ever``: whether an input has ever attached. ``detached``: the
    last ends of inputs, newest first; ``detached_counts``: their number, by label.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        inbox: Inbox,
        step: Callable[[Step], None],
        recorder: Recorder | None = None,
        pool: ThreadPoolExecutor | None = None,
        durable: DurableOutput | None = None,
        recovered: RecoveredMerge | None = None,
    ) -> None:
        """Make the state. ``step`` queues a step of the hub. The other parameters are those of ``Hub``."""
        self.name: Final = name
        self.settings: Final = settings
        self.merge: Merge = settings.new_merge() if recovered is None else recovered.merge
        self.inbox: Final = inbox
        self.inputs: Final[dict[str, Attached]] = {}
        self.recorder: Final = recorder
        self.offload: Final = Offload(pool)
        self.acks: Final = Acks(self.inputs, lambda: self.lives, settings)
        self.output: Final = MergeOutput(
            name, self.merge, settings, lambda: self.acks.released(self.output.release), self.offload, durable
        )
        self.attached_ever = recovered is not None
        if recovered is not None:
            self.output.go_on(recovered.facts, recovered.segments)
        self.occurrences: Final = Occurrences(settings.occurrences_remembered)
        facts = self.output.facts
        self.certifier: Final = Certifier(
            name, self.merge, settings, facts.kept, facts.keep, step, lambda: self.schema, self.occurrences
        )
        self.redundancy = Redundancy(settings.redundancy_lag_s)
        self.stable_history = StableHistory()
        self.payload_limit = self._new_payload_limit()
        self.detached: Final[deque[InputDetached]] = deque(maxlen=settings.detached_remembered)
        self.detached_counts: Final[dict[str, int]] = {}
        self.switches: Final[deque[str]] = deque(maxlen=settings.switches_remembered)
        self.turns = 0
        self.turn_seconds = 0.0
        self.received_bytes = 0  # of batches, as they came on the wire
        self.skips = 0  # of all inputs
        self.staged_commits = 0  # commits whose parts were all staged here
        self.missed_commits = 0  # commits of which a part was missing

    # Changes.

    def note_detached(self, gone: InputDetached) -> None:
        """Remember and count the end of an input."""
        self.detached.appendleft(gone)
        self.occurrences.note_detached(gone)
        self.detached_counts[gone.label] = self.detached_counts.get(gone.label, 0) + 1

    def end_inputs(self, cause: DetachCause, error: LmergeError) -> None:
        """End all inputs with ``error``, because the merge begins anew."""
        for name, inp in self.inputs.items():
            self.detached.appendleft(InputDetached(name, inp.incarnation, cause, str(error)))
            self.output.then(partial(inp.session.end, error))
        self.detached_counts[cause] = self.detached_counts.get(cause, 0) + len(self.inputs)
        self.occurrences.note(OccurrenceKind.GAP if cause is DetachCause.GAP else OccurrenceKind.RESET, str(error))
        self.inputs.clear()

    def begin_with(self, merge: Merge) -> None:
        """Take ``merge``, which is fresh and is the output's already, in place of the present one."""
        self.certifier.begin_anew(merge)
        self.merge = merge
        self.payload_limit = self._new_payload_limit()
        self.redundancy = Redundancy(self.settings.redundancy_lag_s)
        self.stable_history = StableHistory()
        if self.recorder is not None:
            self.recorder.begin_anew()

    def _new_payload_limit(self) -> PayloadLimit:
        settings = self.settings
        return PayloadLimit(settings.live_bytes_max, settings.live_bytes_per_input, self.merge.live_bytes)

    # Queries.

    def input_of(self, session: PublisherSession) -> Attached | None:
        """Return the input of a session, None if it is not attached any more."""
        return next((inp for inp in self.inputs.values() if inp.session is session), None)

    @property
    def queued_elements(self) -> int:
        return self.inbox.elements

    @property
    def queued_bytes(self) -> int:
        return self.inbox.bytes

    @property
    def observed(self) -> Observed:
        """The state of the merge for status and metrics: as it is now, or as it was before a thread began to merge."""
        before = self.offload.before
        return observe(self.merge) if before is None else before

    @property
    def lives(self) -> list[tuple[InputStatus, InputLifecycle]]:
        """The attached inputs: the core's status, and the server's record, of each."""
        return [(i, self.inputs[i.name].life) for i in self.observed.inputs if i.name in self.inputs]

    @property
    def survives_losses(self) -> int:
        """How many inputs can be lost before the output stops."""
        return self.redundancy.survives(self.lives, asyncio.get_running_loop().time())

    @property
    def schema(self) -> pb.Schema | None:
        return self.output.schema

    @property
    def subscribers(self) -> dict[int, SubscriberQueue]:
        return self.output.fanout.subscribers

    @property
    def cut_off_count(self) -> int:
        return self.output.fanout.cut_off_count

    @property
    def complete_from(self) -> int:
        """The time from which the output is complete: it is right for every event with Ve >= this."""
        return self.output.complete_from

    @property
    def retained_from(self) -> int:
        """The earliest time at which a subscriber can resume."""
        return self.output.retained_from

    @property
    def epoch(self) -> int:
        """The number of the merge's epoch: 0 until the merge is reset."""
        return self.output.epoch

    @property
    def kept(self) -> Mapping[str, str]:
        """The texts that are persisted beside the output, by name."""
        return self.output.facts.kept

    @property
    def gaps(self) -> int:
        """How many gaps there were: stretches of time that no input could deliver."""
        return self.output.gaps

    @property
    def store_status(self) -> str:
        """The state of the store: ``memory``, ``durable``, or what is wrong with it."""
        return self.output.store_status

    @property
    def store_problem(self) -> str | None:
        """Why the store cannot be written at present. None if it can, or if there is none."""
        full = None if self.output.durable is None else self.output.durable.full
        return None if full is None else str(full)

    @property
    def recording_has_stopped(self) -> bool:
        """Whether ``--record`` has stopped because of a disk."""
        return self.recorder is not None and self.recorder.has_stopped

    @property
    def recording_status(self) -> str:
        """The state of ``--record``: ``recording``, or why it has stopped. Empty if nothing is recorded."""
        return "" if self.recorder is None else self.recorder.status
