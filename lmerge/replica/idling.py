"""Where sources go on that have been silent, so that time does not stand still with them. Called by the loop of a run.

An idle source follows the clock of the run, or the other sources: the least of their latest starts, as long as one of
them has something. When all others have ended or are idle, it follows the one that has come furthest.

The clock of a run without a pace is the wall clock, in microseconds since 1970. A stream in other units has times far
from that: to follow the clock would make all its events late, so it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.errors import UsageError
from lmerge.replica.feeds import SourceFeed
from lmerge.replica.sources.declared import IdleRule
from lmerge.temporal.entrance import StreamEntrance

# Sources that are idle go on so often: more often costs a step each time.
IDLE_TICK_S: Final = 0.02
# A stream in milliseconds, seconds or nanoseconds is further from the wall clock than that.
FAR_US: Final = 10 * 366 * 86_400 * 1_000_000


class IdleSources:
    """The sources of a run that may be idle. ``clock``: of the run. ``is_wall``: it is the wall clock.

    Times in seconds are those of ``SourceFeed.taken_s``.
    """

    def __init__(
        self,
        feeds: Sequence[SourceFeed],
        entrances: Mapping[str, StreamEntrance],
        clock: Callable[[], int],
        *,
        is_wall: bool,
    ) -> None:
        self._feeds, self._entrances = feeds, entrances
        self._clock, self._is_wall = clock, is_wall
        self._ruled = [feed for feed in feeds if _limit_s(feed) is not None]
        self._before_end: dict[str, int] = {}  # watermarks, each before the last step of its source
        self._looked_s = -math.inf
        self._is_unproven = False  # a source follows the wall clock, and no event has shown the units of the stream

    def due(self, now_s: float) -> list[tuple[SourceFeed, int]]:
        """Return the sources that go on without events, each with the time to which it goes. Raises UsageError."""
        if not self._ruled or now_s - self._looked_s < IDLE_TICK_S:
            return []
        self._looked_s = now_s
        found = []
        for feed in self._ruled:
            if self._is_idle(feed, now_s):
                latest = self._latest(feed, now_s)
                if latest is not None and latest > self._entrances[feed.name].mark:
                    found.append((feed, latest))
        return found

    def note(self, feed: SourceFeed) -> None:
        """Note where a source is before a step. Raises UsageError for units that cannot be those of the clock."""
        if self._ruled:
            mark = self._entrances[feed.name].mark
            if mark < INF:
                self._before_end[feed.name] = mark
            self._check_first(feed)

    def _check_first(self, feed: SourceFeed) -> None:
        """Raise UsageError if a source follows the wall clock, and the next item of ``feed``, the first, is far off."""
        if self._is_unproven:
            release = feed.next_release()
            if release is not None and NEG_INF < release < INF:
                self._check_units(release)
                self._is_unproven = False

    def _is_idle(self, feed: SourceFeed, now_s: float) -> bool:
        limit_s = _limit_s(feed)
        if limit_s is None or feed.has_ended or now_s - feed.taken_s < limit_s:
            return False
        return feed.next_release() is None

    def _latest(self, idle: SourceFeed, now_s: float) -> int | None:
        """Return the time that an idle source follows; None: there is none yet."""
        if idle.source.progress is None or idle.source.progress.idle is IdleRule.OTHERS:
            return self._latest_of_others(idle, now_s)
        now = self._clock()
        if self._is_wall:
            known = [mark for feed in self._feeds if (mark := self._mark(feed)) > NEG_INF]
            if known:
                self._check_units(max(known))
            self._is_unproven = not known
        return now

    def _latest_of_others(self, idle: SourceFeed, now_s: float) -> int | None:
        busy: list[int] = []
        rest: list[int] = []
        for feed in self._feeds:
            if feed is not idle:
                is_busy = not feed.has_ended and not (_follows_others(feed) and self._is_idle(feed, now_s))
                (busy if is_busy else rest).append(self._mark(feed))
        return min(busy) if busy else max(rest, default=None)

    def _mark(self, feed: SourceFeed) -> int:
        """Return the latest start that a source has had, or where it has gone to. At its end its watermark is +inf."""
        mark = self._entrances[feed.name].mark
        return mark if mark < INF else max(self._before_end.get(feed.name, NEG_INF), feed.last_start)

    def _check_units(self, latest: int) -> None:
        now = self._clock()
        if abs(now - latest) > FAR_US:
            names = ", ".join(repr(feed.name) for feed in self._ruled if not _follows_others(feed))
            raise UsageError(
                f"an idle source ({names}) follows the wall clock, which shows {show_time(now)} microseconds, and the "
                f"stream is at {show_time(latest)}: where its times are no microseconds, declare idle='others', or run "
                "it at the pace of a clock"
            )


def _limit_s(feed: SourceFeed) -> float | None:
    return None if feed.source.progress is None else feed.source.progress.idle_after_s


def _follows_others(feed: SourceFeed) -> bool:
    progress = feed.source.progress
    return progress is not None and progress.idle_after_s is not None and progress.idle is IdleRule.OTHERS
