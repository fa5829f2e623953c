"""What is computed in windows as plans and as SQL: the modules of ``window_modules`` and one that is time-bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from plan_modules import StartedSoFar
from window_modules import LONGEST, MODULES

from lmerge.temporal.expressions.surface import col
from lmerge.temporal.modules.kinds import IncrementalTimedAggregate, TimedOperator
from lmerge.temporal.modules.properties import Properties, Stamped, TimedRow, Window
from lmerge.temporal.plan.stream import Stream, WindowCall, WindowedStream, aggregate, count, method_of
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Sessions, Snapshots, WindowKind
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.testing.canonical import forms, windows
from lmerge.testing.canonical.forms import StreamTimes
from lmerge.wire.schema import SchemaLike


class SumOfLengths(IncrementalTimedAggregate[Any, int, int]):
    """The sum of lifetimes as they are clipped; one without an end ends at ``LONGEST``."""

    inputs: ClassVar[SchemaLike] = {"b": "int"}
    result = "int"
    properties = Properties(reads=("start", "end"))

    def begin(self) -> int:
        return 0

    def add(self, state: int, rows: Sequence[TimedRow[Any]]) -> int:
        return state + sum(min(one.end, LONGEST) - one.start for one in rows)

    def remove(self, state: int, rows: Sequence[TimedRow[Any]]) -> int:
        return state - sum(min(one.end, LONGEST) - one.start for one in rows)

    def compute(self, state: int, window: Window) -> int:
        return state


class CountWithWindow(TimedOperator[Any]):
    """The number of events, and the window's ends."""

    results: ClassVar[SchemaLike] = {"n": "int", "first": "int", "last": "int"}
    properties = Properties(reads=("window",))

    def compute(self, rows: Sequence[TimedRow[Any]], window: Window) -> list[tuple[int, int, int]]:
        return [(len(rows), window.start, window.end)]


class EachBesideItsCount(TimedOperator[Any]):
    """Every event from the window's start on, with the number of events beside it."""

    results: ClassVar[SchemaLike] = {"n": "int", "ra": "int", "rb": "int"}

    def compute(self, rows: Sequence[TimedRow[Any]], window: Window) -> Iterator[Stamped]:
        for row, start, end in ((one.row, max(one.start, window.start), one.end) for one in rows):
            if start < end:
                yield Stamped((len(rows), *row), start, end)


Maker = Callable[[WindowedStream, Form, Clip, Stamp], Stream]
Query = Callable[[str, Sequence[str], Sequence[str]], str]


@dataclass(frozen=True)
class QueriedResults:
    """What is computed: as a plan; and as a query over members, by keys, with what is passed on.

    ``reads_ends``, ``reads_window``: what of the time results depend on. ``clips``, ``stamps``: what has an effect.
    """

    made: Maker
    query: Query
    columns: Sequence[str]
    reads_ends: bool = False
    reads_window: bool = False
    clips: Sequence[Clip] = (Clip.NONE,)
    stamps: Sequence[Stamp] = (Stamp.ALIGN, Stamp.POINT_AT_END)


def _in_windows(call: Callable[[], WindowCall]) -> Maker:
    return lambda windowed, form, clip, stamp: windowed.apply(call(), form=form, clip=clip, output=stamp)


def _counted(windowed: WindowedStream, form: Form, clip: Clip, stamp: Stamp) -> Stream:
    return windowed.agg(n=count(), s=aggregate("sum", col.b), form=form, output=stamp)


def _durations(windowed: WindowedStream, form: Form, clip: Clip, stamp: Stamp) -> Stream:
    return windowed.agg(d=method_of(SumOfLengths)(), form=form, clip=clip, output=stamp)


def _started(members: str, keys: Sequence[str], passed: Sequence[str]) -> str:
    """Return the results of ``StartedSoFar``: one for each distinct start in a window, until the next one."""
    by = ", ".join([*keys, "window_start"])
    start = "greatest(vs, window_start)"
    seen = f"count(*) OVER (PARTITION BY {by} ORDER BY {start})"
    kept = ", ".join([*keys, *passed, "window_start", "window_end"])
    last_end = f"max(own_ve) OVER (PARTITION BY {by}) AS last_end"
    each = f"SELECT DISTINCT {kept}, {seen} AS seen, {start} AS result_start, {last_end} FROM ({members})"
    end = f"coalesce(lead(result_start) OVER (PARTITION BY {by} ORDER BY result_start), window_end)"
    return f"SELECT *, {end} AS result_end FROM ({each})"


_OWN: Final = (Stamp.UNCHANGED, Stamp.CLIP)
_FIXED: Final = (Stamp.ALIGN, Stamp.POINT_AT_END)

RESULTS: Final[Mapping[str, QueriedResults]] = {
    "no time": QueriedResults(_counted, MODULES["no time"].results, ("n", "s")),
    "durations": QueriedResults(
        _durations, MODULES["durations"].results, ("d",), reads_ends=True, clips=tuple(Clip), stamps=_FIXED
    ),
    "the window": QueriedResults(
        _in_windows(lambda: method_of(CountWithWindow)()),
        MODULES["the window"].results,
        ("n", "first", "last"),
        reads_window=True,
    ),
    "own lifetimes": QueriedResults(
        _in_windows(lambda: method_of(EachBesideItsCount)()),
        MODULES["own lifetimes"].results,
        ("n", "ra", "rb"),
        reads_ends=True,
        clips=tuple(Clip),
        stamps=(*_FIXED, *_OWN),
    ),
    "started so far": QueriedResults(
        _in_windows(lambda: method_of(StartedSoFar)()),
        _started,
        ("seen",),
        reads_window=True,
        stamps=(*_FIXED, *_OWN, Stamp.TIME_BOUND),
    ),
}

_NAMES: Final[Mapping[type[WindowKind], forms.Kind]] = {
    Hopping: "hopping",
    Snapshots: "snapshot",
    CountWindows: "count",
    Sessions: "session",
}
_FORMS: Final[Mapping[Form, forms.Form]] = {
    Form.FINAL: "final",
    Form.SETTLED: "settled",
    Form.WATERMARK: "watermark",
    Form.EAGER: "eager",
}
OF_STREAM: Final = StreamTimes("stable", "mark", "passed")
"""The columns of a run that have the times of its stream."""


def stamps_of(kind: WindowKind, results: QueriedResults) -> list[Stamp]:
    """Return the outputs that a kind of window has: the end of a snapshot or session can move."""
    return [one for one in results.stamps if not (one is Stamp.POINT_AT_END and isinstance(kind, Snapshots | Sessions))]


def members_of(kind: WindowKind, events: str, keys: Sequence[str]) -> str:
    """Return the query of the members of windows. ``events`` has the column ``begun``, where grids stop."""
    if isinstance(kind, Hopping):
        return windows.in_hopping(events, kind.size, kind.hop, kind.offset, "begun", kind.since)
    if isinstance(kind, CountWindows):
        return windows.in_count_windows(events, kind.count, kind.by is CountedEnd.ENDS, keys)
    return (
        windows.in_sessions(events, kind.gap, keys)
        if isinstance(kind, Sessions)
        else windows.in_snapshots(events, keys)
    )


@dataclass(frozen=True)
class WindowPolicy:
    """What decides which results are there. ``reads_ends``, ``reads_window``: as of ``QueriedResults``.

    ``form`` None: each run has the place of its form in the column ``form``, so that one query judges all forms.
    """

    form: Form | None
    stamp: Stamp = Stamp.ALIGN
    clip: Clip = Clip.NONE
    reads_ends: bool = False
    reads_window: bool = False


def emitted_of(
    kind: WindowKind,
    results: str,
    keys: Sequence[str],
    policy: WindowPolicy,
    moment: StreamTimes = OF_STREAM,
    peers: Sequence[str] | None = None,
) -> str:
    """Return the query of what must have been emitted of results. ``keys``: of groups, the number of the run first.

    ``peers``: the columns of windows that wait for each other. Without it they are the keys, and on a grid the run.
    """
    stamp, sees_ends = policy.stamp, policy.reads_ends and not policy.clip.cuts_right
    gap = kind.gap if isinstance(kind, Sessions) else 0
    is_closed = forms.closed(_NAMES[type(kind)], moment.stable, sees_ends=sees_ends, gap=gap)
    settles = isinstance(kind, Snapshots) and not (policy.reads_ends or policy.reads_window) and stamp is Stamp.ALIGN
    is_point = stamp is Stamp.POINT_AT_END
    marked = forms.marked(
        results, is_closed, settles_behind_start=moment.stable if settles else None, is_point_at_end=is_point
    )
    if peers is None:
        peers = keys[:1] if isinstance(kind, Hopping) else keys
    emitted = forms.emitted_where(marked, _must_be_emitted(policy, moment), peers)
    if is_point:
        return windows.at_end(emitted)
    if stamp.keeps_own:
        return windows.kept(emitted, cut=stamp is Stamp.CLIP)
    return windows.aligned(emitted)


def _must_be_emitted(policy: WindowPolicy, moment: StreamTimes) -> str:
    is_bound = policy.stamp is Stamp.TIME_BOUND
    if policy.form is not None:
        return forms.condition(_FORMS[policy.form], moment, is_time_bound=is_bound)
    by_form = (forms.condition(_FORMS[form], moment, is_time_bound=is_bound) for form in Form)
    return f"CASE form {' '.join(f'WHEN {at} THEN ({one})' for at, one in enumerate(by_form))} END"
