"""Windows of every kind, clipping, timestamp and form against their definition, after every batch of a stream."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from window_judge import check_windows

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import (
    CountedEnd,
    CountWindows,
    Hopping,
    Sessions,
    Snapshots,
    WindowDescriptor,
    WindowKind,
)
from lmerge.temporal.windows.module import IncrementalModule, ModuleState, WindowModule
from lmerge.temporal.windows.policies import Clip, Form, Stamp

KINDS: dict[str, WindowKind] = {
    "tumbling": Hopping(5, 5),
    "hopping": Hopping(4, 2, 1),
    "hopping, uneven": Hopping(3, 2),
    "with gaps": Hopping(2, 5),
    "with a first window": Hopping(4, 3, 1, since=3),
    "snapshot": Snapshots(),
    "each start": CountWindows(1),
    "two starts": CountWindows(2),
    "three starts": CountWindows(3),
    "two ends": CountWindows(2, CountedEnd.ENDS),
    "session": Sessions(2),
    "session without a gap": Sessions(0),
}
SEEDS = 12
SeedsOf = Callable[[int, int], range]


class CountRows(IncrementalModule):
    def begin(self) -> ModuleState:
        return 0

    def add(self, state: ModuleState, event: Lifetime) -> ModuleState:
        return state + 1

    def remove(self, state: ModuleState, event: Lifetime) -> ModuleState:
        return state - 1

    def result(self, state: ModuleState, window: WindowDescriptor) -> Sequence[Values]:
        return [(state,)]


class ListRows(WindowModule):
    def compute(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Sequence[Values]:
        return [tuple(value for event in events for value in event.row)]


class SumDurations(IncrementalModule):
    reads_events = True

    def begin(self) -> ModuleState:
        return 0

    def add(self, state: ModuleState, event: Lifetime) -> ModuleState:
        return state + min(event.ve, 1000) - event.vs

    def remove(self, state: ModuleState, event: Lifetime) -> ModuleState:
        return state - min(event.ve, 1000) + event.vs

    def result(self, state: ModuleState, window: WindowDescriptor) -> Sequence[Values]:
        return [(state,)]


class ListEvents(WindowModule):
    reads_events = True

    def compute(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Sequence[Values]:
        return [tuple((*event.row, event.vs, event.ve) for event in events)]


class MeasureWindow(WindowModule):
    reads_window = True

    def compute(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Sequence[Values]:
        return [(len(events), window.start, window.end)]


class EmitEvents(WindowModule):
    """Gives every event of the window its own lifetime from the window's start on, and counts the others beside it."""

    reads_events = True
    stamps = True

    def compute(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Sequence[Lifetime]:
        cut_left = [Lifetime((len(events), *row), max(vs, window.start), ve) for row, vs, ve in events]
        return [event for event in cut_left if event.vs < event.ve]


MODULES = {
    module.__name__: module() for module in (CountRows, ListRows, SumDurations, ListEvents, MeasureWindow, EmitEvents)
}


@dataclass(frozen=True)
class Policies:
    """A clipping and a timestamp that go together with a module."""

    clip: Clip
    stamp: Stamp


def choices(module: WindowModule, kind: WindowKind) -> list[Policies]:
    """Return what can be chosen for a module: without lifetimes, clipping has no effect; aligned results only."""
    clips = list(Clip) if module.reads_events else [Clip.NONE]
    stamps = [Stamp.ALIGN]
    stamps += [] if isinstance(kind, Snapshots | Sessions) else [Stamp.POINT_AT_END]
    stamps += [Stamp.UNCHANGED, Stamp.CLIP] if module.stamps else []
    return [Policies(clip, stamp) for clip in clips for stamp in stamps]


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_emitted_is_what_the_definition_has(kind: str, module: str, form: Form, seeds_of: SeedsOf) -> None:
    for at, policies in enumerate(choices(MODULES[module], KINDS[kind])):
        rules = WindowRules(KINDS[kind], MODULES[module], policies.clip, policies.stamp, form, key=lambda row: row)
        for seed in seeds_of(SEEDS, 3):
            check_windows(rules, random.Random(seed * 100 + at))


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("kind", [Hopping(5, 5, since=-4), Hopping(4, 3, 1, since=3), Hopping(2, 5, since=0)], ids=str)
@pytest.mark.parametrize("module", ["CountRows", "ListRows", "SumDurations", "MeasureWindow", "EmitEvents"])
def test_windows_without_events_have_the_results_that_are_declared(
    kind: Hopping, module: str, form: Form, seeds_of: SeedsOf
) -> None:
    chosen = MODULES[module]

    def on_empty(window: WindowDescriptor) -> Sequence[Values] | Sequence[Lifetime]:
        row = ("empty", window.start)
        return [Lifetime(row, window.start, window.end)] if chosen.stamps else [row]

    for at, policies in enumerate(choices(chosen, kind)):
        key = order_of_texts
        rules = WindowRules(kind, chosen, policies.clip, policies.stamp, form, lambda row: row, on_empty=on_empty)
        for seed in seeds_of(SEEDS, 3):
            check_windows(rules, random.Random(seed * 100 + at), output_key=key)


def order_of_texts(row: Values) -> str:
    return repr(row)
