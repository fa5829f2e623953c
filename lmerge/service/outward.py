"""What can be asked of a merge's output, of the hub that runs it: for status, metrics, and those who subscribe."""

from __future__ import annotations

from collections.abc import Mapping

from lmerge.service.fanout import Subscriber
from lmerge.service.output import Output
from lmerge.wire.generated import lmerge_pb2 as pb


class Outward:
    """The part of ``Hub`` that repeats what its ``Output`` has."""

    _output: Output

    @property
    def schema(self) -> pb.Schema | None:
        return self._output.schema

    @property
    def subscribers(self) -> dict[int, Subscriber]:
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
    def gaps(self) -> int:
        """How often a stretch of time was given up, as no input could tell it."""
        return self._output.gaps

    @property
    def store_words(self) -> str:
        """``memory``, ``durable``, or what is wrong with the store."""
        return self._output.store_words

    @property
    def kept(self) -> Mapping[str, str]:
        """What others have asked to ``keep``."""
        return self._output.facts.kept
