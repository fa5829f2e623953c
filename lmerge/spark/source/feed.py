"""Follows a merge ahead of a streaming query, in a thread of the driver that subscribes to all servers.

A ``Feed`` keeps the stream from the query's last offset on as ``DecidedEvents``. So it can return how far a micro-batch
may go, how many rows that is and, for a batch of ordinary size, the rows themselves; then no task asks a server. When
the feed holds too much, it stops reading until the query has caught up. Meanwhile the servers hold back, or cut the
subscription off and it resumes later.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from lmerge.client import Subscriber, SubscriberLimits, SubscriptionGap
from lmerge.client.subscribe.subscriber import ERROR, SNAPSHOT
from lmerge.core.elements import show_time
from lmerge.errors import MergeReset, OutOfRange
from lmerge.spark.source.decided_events import DecidedEvents
from lmerge.spark.source.envelope_rows import Range, fitting_end, rows
from lmerge.spark.source.merge_queries import ANEW, query_servers
from lmerge.spark.source.options import ReadOptions
from lmerge.wire.token import format_token

_log: Final = logging.getLogger(__name__)

# How long the end of a query waits for the thread, which only has to notice it.
CLOSE_S: Final = 5.0

_GO_ON: Final = "failOnDataLoss=false continues without what was lost"


class Feed:
    """Follows the merge from ``start`` on, in ``epoch``; None: in any. Close it with ``close``.

    Methods raise what has ended the thread. Any thread may call them, one at a time.
    """

    def __init__(self, options: ReadOptions, start: int, epoch: int | None) -> None:
        self.gaps: list[SubscriptionGap] = []
        self._options = options
        self._changed = threading.Condition()
        self._events_read = DecidedEvents(start)
        self._problem: Exception | None = None
        self._is_closed = False
        begin = start if options.fails_on_loss else self._oldest(start, epoch)
        self._subscriber = Subscriber(
            options.target,
            options.merge,
            name="spark",
            resume=format_token(options.merge, begin, epoch or 0),
            if_too_old=ERROR if options.fails_on_loss else SNAPSHOT,
            wait_for_merge=options.waits_for_merge,
            on_gap=self._report_gap,
            limits=SubscriberLimits(give_up_after_s=options.give_up_s),
            security=options.security,
        )
        self._thread = threading.Thread(target=self._run, name="lmerge feed", daemon=True)
        self._thread.start()

    @property
    def stable_point(self) -> int:
        """The time up to which the merge was read."""
        return self._events_read.stable_point

    @property
    def epoch(self) -> int | None:
        """The epoch of the merge that is read; None: no server has answered yet, and nothing was read."""
        return self._subscriber.epoch

    def holds(self, requested: Range) -> bool:
        """Whether the rows of a range are held."""
        with self._changed:
            return self._events_read.since <= requested.start <= requested.end <= self._events_read.stable_point

    def end_for(self, envelope: str, start: int, limit: int, rows_max: int) -> int:
        """Return how far a range from ``start`` may go: to ``limit`` and ``rows_max`` rows at most.

        Returns ``start`` if there is nothing new. Events that ended before ``start`` are dropped.
        """
        with self._changed:
            self._raise()
            self._forget(start)
            limit = min(limit, self._events_read.stable_point)
            if limit <= start:
                return start
            self._events_read.settle(limit)
            return fitting_end(envelope, Range(start, limit), self._events_read, rows_max)

    def goes_on_from(self, start: int) -> bool:
        """Whether the feed can give ranges from ``start`` on."""
        with self._changed:
            return self._events_read.since <= start

    def wait_beyond(self, start: int, t: int, wait_s: float) -> bool:
        """Wait until the stable point is ``t``, no more can be held, or none will come. Return whether one happened.

        Events that ended before ``start`` are dropped.
        """
        with self._changed:
            self._forget(start)
            return self._changed.wait_for(
                lambda: self._problem is not None or self._events_read.stable_point >= t or self._is_full(), wait_s
            )

    def rows(self, envelope: str, requested: Range) -> Any:
        """Return the rows of a range that is held."""
        with self._changed:
            self._raise()
            self._events_read.settle(requested.end)
            return rows(envelope, requested, self._events_read, requested.start, requested.end, is_last=True)

    def cuts(self, requested: Range, parts: int) -> list[int]:
        """Return times that cut a held range into about equal parts: ends of events, ascending, all different."""
        with self._changed:
            self._events_read.settle(requested.end)
            ends = self._events_read.between(requested.start, requested.end).column("ve")
        cuts = {ends[len(ends) * part // parts].as_py() for part in range(1, parts)} if len(ends) else set()
        return sorted(t for t in cuts if requested.start < t < requested.end)

    def ahead(self) -> tuple[str, ...]:
        """Return the servers, those furthest ahead first."""
        sources = sorted(self._subscriber.sources, key=lambda source: -source.stable_point)
        return tuple(source.target for source in sources)

    def close(self) -> None:
        """Stop following."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._subscriber.close()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        """Read the merge. This is the thread's function."""
        try:
            for batch in self._subscriber.batches():
                with self._changed:
                    before = self._events_read.stable_point
                    self._events_read.add(batch)
                    if self._events_read.stable_point > before or self._is_full():
                        self._changed.notify_all()
                    while self._is_full() and not self._is_closed:
                        self._changed.wait()
                if self._is_closed:
                    return
        except Exception as problem:  # raised by the methods
            if isinstance(problem, MergeReset):
                problem = MergeReset(f"{problem}; {ANEW}")
            elif isinstance(problem, OutOfRange):
                problem = OutOfRange(f"{problem}; {_GO_ON}")
            with self._changed:
                self._problem = problem
                self._changed.notify_all()

    def _forget(self, before: int) -> None:
        before = min(before, self._events_read.stable_point)
        self._events_read.settle(before)
        self._events_read.forget(before)
        self._changed.notify_all()

    def _is_full(self) -> bool:
        """Whether the query has enough to read. That is never so before something is decided."""
        events = self._events_read
        return events.stable_point > events.since and events.bytes > self._options.buffer_bytes

    def _raise(self) -> None:
        if self._problem is not None:
            raise self._problem

    def _oldest(self, start: int, epoch: int | None) -> int:
        """Return where to begin if lost events may be left out: the earliest time that a server retains."""
        answers = query_servers(self._options).of_epoch(epoch)
        if not answers.found or answers.away or answers.retained_from <= start:
            return start
        self._report_gap(SubscriptionGap(start, answers.retained_from))
        return answers.retained_from

    def _report_gap(self, gap: SubscriptionGap) -> None:
        """Record that no server has the events in a gap. Raises OutOfRange if that is an error."""
        what = f"{self._options}: what ended between {show_time(gap.start)} and {show_time(gap.end)} was lost"
        if self._options.fails_on_loss:
            raise OutOfRange(f"{what}: no server has it")
        _log.warning("%s, and is left out", what)
        self.gaps.append(gap)
