"""A merge on the engine under test beside one on Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lmerge.core.merge import Merge, Outcome
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.errors import LmergeError


class Twins:
    """A merge on the engine under test and one on Python.

    Every call must have the same outcome on both, and leave the same status and snapshot, which are compared after
    every so many calls.
    """

    def __init__(self, *settings: Any, compare_every: int = 1, **options: Any) -> None:
        self.calls, self.compare_every = 0, compare_every
        config = MergeConfig(*settings, **options)
        self.merges = [Merge(config), Merge(replace(config, engine="python"))]

    def call(self, method: str, *arguments: object, **options: object) -> None:
        results = [self._result(getattr(merge, method), *arguments, **options) for merge in self.merges]
        assert results[0] == results[1]
        self.calls += 1
        if self.calls % self.compare_every == 0:
            self.compare()

    def compare(self) -> None:
        mine, python = self.merges
        mine.check()
        assert mine.inputs() == python.inputs()
        for name in ("algorithm", "algorithm_reason", "stable_point", "live_count", "visits"):
            assert getattr(mine, name) == getattr(python, name), name
        if mine.algorithm != "r3-":  # kept for comparison; its memory does not matter
            assert mine.live_bytes == python.live_bytes
        assert list(mine.live_events().elements()) == list(python.live_events().elements())
        assert snapshot_of(mine) == snapshot_of(python)

    def exchange(self) -> None:
        """Let each engine continue with the snapshot of the other."""
        mine, python = self.merges
        self.merges = [restored(snapshot_of(python)), restored(snapshot_of(mine), engine="python")]
        self.compare()

    @staticmethod
    def _result(method: Callable[..., Outcome], *arguments: object, **options: object) -> object:
        try:
            outcome = method(*arguments, **options)
        except LmergeError as error:
            return type(error), str(error)
        ended = [(d.input, d.incarnation, d.reason, getattr(d.violation, "index", None)) for d in outcome.detached]
        return list(outcome.batch.elements()), ended, outcome.joined, outcome.switched, outcome.refused
