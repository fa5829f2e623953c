"""What a query declares of its sources: where rows are, how a row becomes an event, and when the stream is stable.

A declaration is a value. It opens no file and no connection; ``open`` makes the reader that does. ``fields`` and
``of_fields`` are its form in JSON, beside the plan (``lmerge.replica.plan_files``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from lmerge.client import Security
from lmerge.core.elements import NEG_INF
from lmerge.errors import UsageError
from lmerge.temporal.entrance import LatePolicy, ProgressRule
from lmerge.temporal.open_events import OpenEvents
from lmerge.temporal.running import Item
from lmerge.text_enum import TextEnum
from lmerge.wire.schema import Schema

if TYPE_CHECKING:
    from lmerge.replica.sources.column_items import ColumnItems

Position = Any
"""Where a reader is, as a JSON value. None: at the beginning, or a source that cannot seek."""

Declared = TypeVar("Declared", bound="PhysicalSource")
Text = TypeVar("Text", bound=TextEnum)


class IdleRule(TextEnum):
    """What the stable point of an idle source follows: the ``clock`` of the run, or the ``others`` of its sources.

    The clock of a run at no pace shows microseconds since 1970, so a stream in other units follows the others.
    """

    CLOCK = "clock"
    OTHERS = "others"


@dataclass(frozen=True)
class Progress:
    """When a source is stable, by rule; times are in units of the stream.

    The stable point stays ``delay`` behind the latest start. It moves when that is ``every`` further on, or each
    ``events`` events; with neither, at every start. ``late``: what happens to an event before it. A source that has
    been silent for ``idle_after_s`` seconds goes on without events, as ``idle`` declares. Raises UsageError.
    """

    delay: int = 0
    every: int = 0
    events: int = 0
    late: LatePolicy = LatePolicy.DROP
    idle_after_s: float | None = None
    idle: IdleRule = IdleRule.CLOCK

    def __post_init__(self) -> None:
        object.__setattr__(self, "late", _member(LatePolicy, self.late))
        object.__setattr__(self, "idle", _member(IdleRule, self.idle))
        if self.idle_after_s is not None and not self.idle_after_s > 0:
            raise UsageError(f"a source is idle after {self.idle_after_s} seconds; it must be more than 0")
        _ = self.rule

    @property
    def rule(self) -> ProgressRule:
        """The rule as the entrance of the stream takes it."""
        return ProgressRule(self.delay, self.every, self.events)

    @property
    def is_exact_over_gaps(self) -> bool:
        """Whether the stable point after a stretch of events depends on the latest of them alone."""
        return not self.every and not self.events


def after(
    delay: int,
    *,
    every: int = 0,
    events: int = 0,
    late: str = LatePolicy.DROP.value,
    idle_after_s: float | None = None,
    idle: str = IdleRule.CLOCK.value,
) -> Progress:
    """Return the rule of a source whose events come at most ``delay`` out of order."""
    return Progress(delay, every, events, _member(LatePolicy, late), idle_after_s, _member(IdleRule, idle))


def in_order(*, every: int = 0, idle_after_s: float | None = None, idle: str = IdleRule.CLOCK.value) -> Progress:
    """Return the rule of a source whose starts do not decrease. One that does ends the query."""
    return Progress(0, every, 0, LatePolicy.FAIL, idle_after_s, _member(IdleRule, idle))


class Chunk(NamedTuple):
    """Items of a source in their order, and the positions before and behind them.

    ``releases``: the time at which each item comes when the source is paced; None: at its start, or stable point.
    ``latest``: events were left out here after feedback, the latest of which began then.
    """

    items: list[Item] | ColumnItems
    begin: Position
    end: Position
    releases: list[int] | None = None
    latest: int | None = None


class SourceReader(ABC):
    """An open source. One thread reads ``chunks``; other threads may call the rest.

    ``parts_skipped``: parts of it that were not read after feedback.
    """

    parts_skipped = 0

    @abstractmethod
    def chunks(self) -> Iterator[Chunk]:
        """Yield the items from the position at which it was opened, to the end of the source.

        Raises InvalidRow, which names the source and the line or row, and Unavailable if the source is lost.
        """

    def complete_from(self) -> int | None:
        """Return the time from which the stream has all events that end then or later; -inf: from its beginning.

        None: it has not begun, so it is not known.
        """
        return NEG_INF

    def fast_forward(self, t: int) -> None:  # noqa: B027  (most sources read on, and the plan leaves events out)
        """Learn that no event is needed that ends before ``t``: a source that can seek leaves them out."""

    def close(self) -> None:  # noqa: B027  (an iterator has nothing to close)
        """Release what is open. ``chunks`` may end, or raise, after that."""


class EndedReader(SourceReader):
    """Reads a source of which a run before has taken all."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield nothing."""
        return iter(())


class SourceContext(NamedTuple):
    """What a source is opened with. ``may_skip``: to leave out events changes nothing about the others.

    ``live``: the live events of a stream that goes on from a checkpoint. ``as_columns``: all that reads the stream
    takes columns of the native core, so a source that has columns need not make rows.
    """

    name: str
    schema: Schema
    may_skip: bool = False
    live: OpenEvents | None = None
    security: Security | None = None
    as_columns: bool = False


@dataclass(frozen=True, kw_only=True)
class PhysicalSource(ABC):
    """A source as it is declared. ``progress`` None: it declares its stable points, at the latest at its end.

    ``is_live``: the next item may take long to come, and other sources do not wait for it. ``counts_items``: its items
    come again in the same order, so a restart passes over those of a chunk that were taken. ``can_seek``: a restart
    goes on where the run before has stopped; otherwise what came meanwhile is lost.
    """

    kind: ClassVar[str]
    is_live: ClassVar[bool] = False
    counts_items: ClassVar[bool] = True
    can_seek: ClassVar[bool] = True

    progress: Progress | None = None

    @property
    @abstractmethod
    def where(self) -> str:
        """Where its rows are, for messages."""

    @property
    def no_checkpoint(self) -> str:
        """Why a run of this source cannot go on from a checkpoint, and what to do; empty: it can."""
        return ""

    @abstractmethod
    def open(self, context: SourceContext, position: Position) -> SourceReader:
        """Return a reader that begins at a position. Raises UsageError, Unavailable."""

    def moved_to(self: Declared, place: str) -> Declared:
        """Return the same source at another place: a file, or an address. Raises UsageError if it has none."""
        raise UsageError(f"the source {self.where} has no place that can be changed")

    def fields(self) -> dict[str, Any]:
        """Return it as JSON values. Raises UsageError if it cannot be written."""
        given = {
            field.name: getattr(self, field.name)
            for field in fields_of(self)
            if getattr(self, field.name) != field.default and field.name != "progress"
        }
        document = {"kind": self.kind, **{name: _plain(value) for name, value in given.items()}}
        if self.progress is not None:
            document["progress"] = _progress_fields(self.progress)
        return document


@dataclass(frozen=True, kw_only=True)
class RowSource(PhysicalSource):
    """A source of rows. The columns of the plan's source are found by name; others are ignored.

    ``time``: the column of a point event, ``[time, time + 1)``. ``start`` and ``end``: of an interval; without an end,
    or where it is missing, the event does not end. A time is a whole number or a timestamp. ``release``: the column by
    which a paced source releases its rows; by default the time or start. An edge event, which holds until the next one
    of its key, is a point that the plan extends (``Stream.edges``).
    """

    time: str | None = None
    start: str | None = None
    end: str | None = None
    release: str | None = None

    def __post_init__(self) -> None:
        if (self.time is None) == (self.start is None):
            raise UsageError(f"the source {self.where} needs time=, for points, or start= and end=, for intervals")
        if self.time is not None and self.end is not None:
            raise UsageError(f"the source {self.where} has points, at {self.time!r}, and they have no end=")


def _member(kind: type[Text], text: str) -> Text:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"a rule of progress has {text!r:.40}; there are {', '.join(kind)}") from None


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    raise UsageError(f"{value!r:.64} cannot be written as JSON: a plan in a file has files, sockets and merges")


def _progress_fields(progress: Progress) -> dict[str, Any]:
    given = {field.name: (getattr(progress, field.name), field.default) for field in fields_of(progress)}
    return {
        name: str(value) if isinstance(value, TextEnum) else value
        for name, (value, rest) in given.items()
        if value != rest
    }


def declaration(kinds: Mapping[str, Callable[..., PhysicalSource]], document: object) -> PhysicalSource:
    """Return the source that ``fields`` has described. ``kinds``: of sources by name. Raises UsageError."""
    if not isinstance(document, Mapping) or not isinstance(document.get("kind"), str):
        raise UsageError(f"a source is an object with a kind, not {document!r:.100}")
    given = {str(name): value for name, value in document.items()}
    kind = given.pop("kind")
    if kind not in kinds:
        raise UsageError(f"there is no source of kind {kind!r:.64}; there are {', '.join(kinds)}")
    progress = given.pop("progress", None)
    try:
        if progress is not None:
            given["progress"] = Progress(**progress)
        return kinds[kind](**given)
    except (TypeError, ValueError) as problem:
        raise UsageError(f"a source of kind {kind!r} cannot be made of {document!r:.200}: {problem}") from None
