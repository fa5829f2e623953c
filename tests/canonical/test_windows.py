"""Windows against SQL in DuckDB: every kind, clipping, output and form that go together, after every batch (L1).

``TDB(out(P)) = form(SQL(TDB(P)), c, m)``: the query computes the windows, their events, the results, what is closed,
and which results the form must have emitted at the stable point c and the watermark m.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from canonical_world import NUMBER_ROWS, NUMBERS, RecordedRuns, StreamClock
from temporal_world import StreamTable, cut, random_stream
from window_modules import MODULES, QueriedModule

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Sessions, Snapshots, WindowKind
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.temporal.windows.window_operator import WindowOperator
from lmerge.testing.canonical import forms, windows
from lmerge.testing.canonical.forms import StreamTimes

KINDS: dict[str, WindowKind] = {
    "tumbling": Hopping(5, 5),
    "hopping": Hopping(4, 2, 1),
    "hopping, uneven": Hopping(3, 2),
    "with gaps": Hopping(2, 5),
    "snapshot": Snapshots(),
    "each start": CountWindows(1),
    "two starts": CountWindows(2),
    "three starts": CountWindows(3),
    "two ends": CountWindows(2, CountedEnd.ENDS),
    "session": Sessions(2),
    "session without a gap": Sessions(0),
}
NAMES: dict[type[WindowKind], forms.Kind] = {
    Hopping: "hopping",
    Snapshots: "snapshot",
    CountWindows: "count",
    Sessions: "session",
}
FORMS: dict[Form, forms.Form] = {
    Form.FINAL: "final",
    Form.SETTLED: "settled",
    Form.WATERMARK: "watermark",
    Form.EAGER: "eager",
}
TIMES = ("is_grouped", "stable", "mark", "begun", "passed")
EVENTS = "(SELECT *, CASE WHEN is_grouped THEN a END AS k FROM events)"
KEYS = ("run", "k")


@dataclass(frozen=True)
class WindowChoice:
    """A module with policies that go together."""

    module: QueriedModule
    clip: Clip
    stamp: Stamp
    form: Form


def choices(kind: WindowKind, module: QueriedModule) -> list[WindowChoice]:
    """Return every choice: clipping has no effect without lifetimes, and the end of a snapshot can move."""
    clips = list(Clip) if module.operator.reads_events else [Clip.NONE]
    stamps = [Stamp.ALIGN]
    stamps += [] if isinstance(kind, Snapshots | Sessions) else [Stamp.POINT_AT_END]
    stamps += [Stamp.UNCHANGED, Stamp.CLIP] if module.operator.stamps else []
    return [WindowChoice(module, clip, stamp, form) for clip in clips for stamp in stamps for form in Form]


# The query.


def members(kind: WindowKind) -> str:
    if isinstance(kind, Hopping):
        return windows.in_hopping(EVENTS, kind.size, kind.hop, kind.offset, "begun")
    if isinstance(kind, CountWindows):
        return windows.in_count_windows(EVENTS, kind.count, kind.by is CountedEnd.ENDS, KEYS)
    return (
        windows.in_sessions(EVENTS, kind.gap, KEYS)
        if isinstance(kind, Sessions)
        else windows.in_snapshots(EVENTS, KEYS)
    )


def queried(kind: WindowKind, choice: WindowChoice) -> str:
    module, clip, stamp = choice.module, choice.clip, choice.stamp
    cut_to_window = windows.clipped(members(kind), left=clip.cuts_left, right=clip.cuts_right)
    results = module.results(cut_to_window, KEYS, TIMES[1:])
    reads_ends = module.operator.reads_events
    gap = kind.gap if isinstance(kind, Sessions) else 0
    is_closed = forms.closed(NAMES[type(kind)], "stable", sees_ends=reads_ends and not clip.cuts_right, gap=gap)
    settles = isinstance(kind, Snapshots) and not (reads_ends or module.operator.reads_window)
    marked = forms.marked(
        results,
        is_closed,
        settles_behind_start="stable" if settles and stamp is Stamp.ALIGN else None,
        is_point_at_end=stamp is Stamp.POINT_AT_END,
    )
    peers = ["run"] if isinstance(kind, Hopping) else KEYS
    emitted = forms.emitted(marked, FORMS[choice.form], StreamTimes("stable", "mark", "passed"), peers)
    if stamp is Stamp.POINT_AT_END:
        return windows.at_end(emitted)
    if stamp.keeps_own:
        return windows.kept(emitted, cut=stamp is Stamp.CLIP)
    return windows.aligned(emitted)


# The run.


def judge(kind: WindowKind, choice: WindowChoice, seeds: Iterable[int]) -> None:
    runs = RecordedRuns({"events": NUMBERS}, TIMES)
    rules = WindowRules(kind, choice.module.operator, choice.clip, choice.stamp, choice.form, lambda row: row)
    for seed in seeds:
        record_windows(runs, rules, random.Random(f"{seed} {choice.clip} {choice.stamp} {choice.form}"))
    runs.judge(queried(kind, choice), ("k", *choice.module.columns))


def record_windows(runs: RecordedRuns, rules: WindowRules, random_: random.Random) -> None:
    """Run an operator over a random stream, by groups or without, and record every batch."""
    is_grouped = random_.random() < 0.5
    operator = WindowOperator("windows", rules, lambda row: row, by_a if is_grouped else None)
    given, output, clock = StreamTable(), StreamTable(), StreamClock()
    for delta in cut(random_, random_stream(random_, random_.choice((8, 14)), NUMBER_ROWS)):
        passed = output.stable
        given.apply(delta)
        clock.take(delta, given)
        output.apply(operator.step([delta]))
        emitted = output.events if is_grouped else ungrouped(output.events)
        times = (is_grouped, given.stable, clock.mark, clock.begun(given), passed)
        runs.note({"events": given.events}, Counter(emitted), times)
    assert rules.form is not Form.FINAL or output.inserts_only


def by_a(row: Values) -> Values:
    return row[:1]


def ungrouped(table: Counter[Lifetime]) -> Counter[Lifetime]:
    """Return results without a group as those of the group NULL."""
    return Counter({Lifetime((None, *row), vs, ve): count for (row, vs, ve), count in table.items()})


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_window_clipping_output_and_form_is_its_query_after_every_batch(kind: str, module: str) -> None:
    for choice in choices(KINDS[kind], MODULES[module]):
        judge(KINDS[kind], choice, range(8))


@pytest.mark.long
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_window_is_its_query_for_many_seeds(kind: str, module: str, long_seeds: range) -> None:
    for choice in choices(KINDS[kind], MODULES[module]):
        judge(KINDS[kind], choice, long_seeds)
