"""What can be asked of the hub of a merge at any time, also while a thread is at work on it: it changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from lmerge.core.merge import InputStatus, Merge
from lmerge.service.admin.merge_view import Observed, observe
from lmerge.service.merge.attachments import Attached
from lmerge.service.merge.inbox import Inbox
from lmerge.service.merge.lifecycle import InputLifecycle
from lmerge.service.merge.offload import Offload
from lmerge.service.merge.redundancy import Redundancy
from lmerge.service.output.fanout import SubscriberQueue
from lmerge.service.output.pipeline import MergeOutput
from lmerge.service.output.session_recorder import Recorder
from lmerge.wire.generated import lmerge_pb2 as pb


class HubQueries:
    """The answers; ``Hub`` makes what they come from."""

    merge: Merge
    redundancy: Redundancy
    _inbox: Inbox
    _inputs: dict[str, Attached]
    _output: MergeOutput
    _recorder: Recorder | None
    _aside: Offload

    @property
    def queued_elements(self) -> int:
        return self._inbox.elements

    @property
    def queued_bytes(self) -> int:
        return self._inbox.bytes

    @property
    def observed(self) -> Observed:
        """The merge for people and dashboards."""
        before = self._aside.before
        return observe(self.merge) if before is None else before

    @property
    def lives(self) -> list[tuple[InputStatus, InputLifecycle]]:
        """The attached inputs: what the core knows, and what the server knows."""
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
        """The output is right for every event with Ve >= this."""
        return self._output.complete_from

    @property
    def retained_from(self) -> int:
        """A subscriber can resume at any time from here on."""
        return self._output.retained_from

    @property
    def epoch(self) -> int:
        """Which one of the merge: 0 until it is reset."""
        return self._output.epoch

    @property
    def kept(self) -> Mapping[str, str]:
        """What others have asked to ``keep``."""
        return self._output.facts.kept

    @property
    def gaps(self) -> int:
        """How often a stretch of time was given up, as no input could tell it."""
        return self._output.gaps

    @property
    def store_status(self) -> str:
        """``memory``, ``durable``, or what is wrong with the store."""
        return self._output.store_status

    @property
    def store_problem(self) -> str | None:
        """Why nothing can be written at present; None: it can."""
        full = None if self._output.durable is None else self._output.durable.full
        return None if full is None else str(full)

    @property
    def recording_status(self) -> str:
        """``recording``, or why it has stopped; empty: nothing is recorded."""
        return "" if self._recorder is None else self._recorder.status
