"""A merge on the engine of this machine beside one on Python: every call must have the same outcome on both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol

from lmerge.core.engines import selection
from lmerge.core.merge import Merge, Outcome
from lmerge.core.merge_config import MergeConfig
from lmerge.core.properties import R3_MINUS
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.errors import LmergeError

_STATES: Final = ("algorithm", "algorithm_reason", "stable_point", "live_count", "visits")


class ComparedMerges(Protocol):
    """Merges that get the same calls, and are compared."""

    def call(self, method: str, name: str, /, *arguments: Any, **options: Any) -> None:
        """Call a method of each for an input."""

    def exchange(self) -> None:
        """Let each continue from a snapshot."""


class EngineTwins:
    """A merge on the engine of this machine (``auto``) and one on Python.

    Every call must have the same outcome on both, and leave the same status and snapshot, which are compared after
    every ``compare_every`` calls. Raises AssertionError for a difference.
    """

    def __init__(self, config: MergeConfig, *, compare_every: int = 1) -> None:
        self.calls, self.compare_every = 0, compare_every
        self.merges = [Merge(config), Merge(replace(config, engine=selection.PYTHON))]

    def call(self, method: str, *arguments: object, **options: object) -> None:
        """Call a method of both merges; what it returns or raises must be the same."""
        mine, python = [result_of(getattr(merge, method), *arguments, **options) for merge in self.merges]
        assert mine == python, f"{method}: on {self.merges[0].engine} {mine}, in Python {python}"
        self.calls += 1
        if self.calls % self.compare_every == 0:
            self.compare()

    def compare(self) -> None:
        """Compare what the merges report, and their snapshots."""
        assert_same_state(*self.merges)

    def exchange(self) -> None:
        """Let each engine continue with the snapshot of the other."""
        mine, python = self.merges
        self.merges = [restored(snapshot_of(python)), restored(snapshot_of(mine), engine=selection.PYTHON)]
        self.compare()


def assert_same_state(mine: Merge, python: Merge) -> None:
    """Assert that two merges report the same, and have the same snapshot."""
    mine.check()
    assert mine.inputs() == python.inputs()
    for name in _STATES:
        found, expected = getattr(mine, name), getattr(python, name)
        assert found == expected, f"{name}: on {mine.engine} {found}, in Python {expected}"
    if mine.algorithm != R3_MINUS:  # kept for comparison; its memory does not matter
        assert mine.live_bytes == python.live_bytes
    live = python.live_events()
    assert list(mine.live_events().elements()) == list(live.elements())
    assert mine.supporters(live) == python.supporters(live)
    assert snapshot_of(mine) == snapshot_of(python)


def comparable(outcome: Outcome) -> tuple[Any, ...]:
    """Return an outcome as a value that is equal for equal outcomes, whatever engine gave it."""
    ended = [(d.input, d.incarnation, d.reason, getattr(d.violation, "index", None)) for d in outcome.detached]
    return list(outcome.batch.elements()), ended, outcome.joined, outcome.switched, outcome.refused


def result_of(method: Callable[..., Outcome], *arguments: object, **options: object) -> tuple[Any, ...]:
    """Return the outcome of a call, or its error, as a value."""
    try:
        return comparable(method(*arguments, **options))
    except LmergeError as error:
        return type(error), str(error)
