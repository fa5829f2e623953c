"""Queries of the hub of a merge. They change nothing, and work at any time, also while a thread merges."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from lmerge.core.merge import InputStatus, Merge
from lmerge.service.merge.attachments import Attached
from lmerge.service.merge.inbox import Inbox
from lmerge.service.merge.lifecycle import InputLifecycle
from lmerge.service.merge.redundancy import Redundancy
from lmerge.service.merge_view import Observed, observe
from lmerge.service.offload import Offload
from lmerge.service.output.fanout import SubscriberQueue
from lmerge.service.output.pipeline import MergeOutput
from lmerge.service.output.session_recorder import Recorder
from lmerge.wire.generated import lmerge_pb2 as pb


class HubQueries:
    """The queries. ``Hub`` sets the attributes that they read."""

    merge: Merge
    redundancy: Redundancy
    _inbox: Inbox
    _inputs: dict[str, Attached]
    _output: MergeOutput
    _recorder: Recorder | None
    _offload: Offload

    @property
    def queued_elements(self) -> int:
        return self._inbox.elements

    @property
    def queued_bytes(self) -> int:
        return self._inbox.bytes

    @property
    def observed(self) -> Observed:
        """The state of the merge for status and metrics: as it is now, or as it was before a thread began to merge."""
        before = self._offload.before
        return observe(self.merge) if before is None else before

    @property
    def lives(self) -> list[tuple[InputStatus, InputLifecycle]]:
        """The attached inputs: the core's status, and the server's record, of each."""
        return [(i, self._inputs[i.name].life) for i in self.observed.inputs if i.name in self._inputs]

    @property
    def survives_losses(self) -> int:
        """How many inputs can be lost before the output stops."""
        return self.redundancy.survives(self.lives, asyncio.get_running_loop().time())

    @property
    def schema(self) -> pb.Schema | None:
        return self._output.schema

    @property
    def subscribers(self) -> dict[int, SubscriberQueue]:
        return self._output.fanout.subscribers

    @property
    def cut_off_count(self) -> int:
        return self._output.fanout.cut_off_count

    @property
    def complete_from(self) -> int:
        """The time from which the output is complete: it is right for every event with Ve >= this."""
        return self._output.complete_from

    @property
    def retained_from(self) -> int:
        """The earliest time at which a subscriber can resume."""
        return self._output.retained_from

    @property
    def epoch(self) -> int:
        """The number of the merge's epoch: 0 until the merge is reset."""
        return self._output.epoch

    @property
    def kept(self) -> Mapping[str, str]:
        """The texts that ``Hub.keep`` has persisted, by name."""
        return self._output.facts.kept

    @property
    def gaps(self) -> int:
        """How many gaps there were: stretches of time that no input could deliver."""
        return self._output.gaps

    @property
    def store_status(self) -> str:
        """The state of the store: ``memory``, ``durable``, or what is wrong with it."""
        return self._output.store_status

    @property
    def store_problem(self) -> str | None:
        """Why the store cannot be written at present. None if it can, or if there is none."""
        full = None if self._output.durable is None else self._output.durable.full
        return None if full is None else str(full)

    @property
    def recording_has_stopped(self) -> bool:
        """Whether ``--record`` has stopped because of a disk."""
        return self._recorder is not None and self._recorder.has_stopped

    @property
    def recording_status(self) -> str:
        """The state of ``--record``: ``recording``, or why it has stopped. Empty if nothing is recorded."""
        return "" if self._recorder is None else self._recorder.status
