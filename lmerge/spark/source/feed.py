"""What a streaming query's driver knows of the merge: a thread that follows all servers ahead of the query.

It keeps what it reads in a ``DecidedEvents`` from the query's last offset on, so it can say how far a micro-batch may go, how
many rows that is, and, for a batch of ordinary size, what they are; then no task asks a server. When it holds too much,
it stops reading until the query has come after it: then the servers hold back, or cut it off and it resumes.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from lmerge.client import Subscriber, SubscriptionGap
from lmerge.client.subscribe.subscriber import ERROR, SNAPSHOT
from lmerge.core.elements import show_time
from lmerge.errors import MergeReset, OutOfRange
from lmerge.spark.source.decided_events import DecidedEvents
from lmerge.spark.source.envelope_rows import Range, fitting_end, rows
from lmerge.spark.source.merge_queries import ANEW, ask
from lmerge.spark.source.options import ReadOptions
from lmerge.wire.token import format_token

_log: Final = logging.getLogger(__name__)

# What the end of a query waits for the thread, which only has to notice.
CLOSE_S: Final = 5.0

_GO_ON: Final = "failOnDataLoss=false goes on without what was lost"


class Feed:
    """Follows the merge from ``start`` on, in ``epoch``; None: in any. ``close`` it. Methods raise what has ended the
    thread.

    Any thread may call it, one at a time.
    """

    def __init__(self, options: ReadOptions, start: int, epoch: int | None) -> None:
        self.gaps: list[SubscriptionGap] = []
        self._options = options
        self._changed = threading.Condition()
        self._tally = DecidedEvents(start)
        self._problem: Exception | None = None
        self._is_closed = False
        begin = start if options.fails_on_loss else self._oldest(start, epoch)
        self._subscriber = Subscriber(
            options.target, options.merge, name="spark", resume=format_token(options.merge, begin, epoch or 0),
            if_too_old=ERROR if options.fails_on_loss else SNAPSHOT, wait_for_merge=options.waits_for_merge,
            give_up_after_s=options.give_up_s, on_gap=self._meet, security=options.security,
        )
        self._thread = threading.Thread(target=self._run, name="lmerge feed", daemon=True)
        self._thread.start()

    @property
    def stable_point(self) -> int:
        """As far as was read."""
        return self._tally.stable_point

    @property
    def epoch(self) -> int | None:
        """Of the merge that is read; None: no server has answered yet, and nothing was read."""
        return self._subscriber.epoch

    def holds(self, asked: Range) -> bool:
        """Whether the rows of a range are here."""
        with self._changed:
            return self._tally.since <= asked.start <= asked.end <= self._tally.stable_point

    def end_for(self, envelope: str, start: int, limit: int, rows_max: int) -> int:
        """How far a range from ``start`` may go: at most to ``limit``, and so many rows; ``start`` if nothing is new.

        The query has done with what ended before ``start``.
        """
        with self._changed:
            self._raise()
            self._forget(start)
            limit = min(limit, self._tally.stable_point)
            if limit <= start:
                return start
            self._tally.settle(limit)
            return fitting_end(envelope, Range(start, limit), self._tally, rows_max)

    def goes_on_from(self, start: int) -> bool:
        """Whether a range from ``start`` can be had."""
        with self._changed:
            return self._tally.since <= start

    def wait_beyond(self, start: int, t: int, wait_s: float) -> bool:
        """Wait until the stable point is ``t``, or no more can be held, or none will come; whether it came to that.

        The query has done with what ended before ``start``.
        """
        with self._changed:
            self._forget(start)
            return self._changed.wait_for(
                lambda: self._problem is not None or self._tally.stable_point >= t or self._is_full(), wait_s
            )

    def rows(self, envelope: str, asked: Range) -> Any:
        """The rows of a range that is held."""
        with self._changed:
            self._raise()
            self._tally.settle(asked.end)
            return rows(envelope, asked, self._tally, asked.start, asked.end, is_last=True)

    def cuts(self, asked: Range, parts: int) -> list[int]:
        """Times that cut a range that is held into about equal parts: ends of events, ascending, all different."""
        with self._changed:
            self._tally.settle(asked.end)
            ends = self._tally.between(asked.start, asked.end).column("ve")
        cuts = {ends[len(ends) * part // parts].as_py() for part in range(1, parts)} if len(ends) else set()
        return sorted(t for t in cuts if asked.start < t < asked.end)

    def ahead(self) -> tuple[str, ...]:
        """The servers, those ahead first."""
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
        """The thread."""
        try:
            for batch in self._subscriber.batches():
                with self._changed:
                    before = self._tally.stable_point
                    self._tally.add(batch)
                    if self._tally.stable_point > before or self._is_full():
                        self._changed.notify_all()
                    while self._is_full() and not self._is_closed:
                        self._changed.wait()
                if self._is_closed:
                    return
        except Exception as problem:  # told to whoever asks
            if isinstance(problem, MergeReset):
                problem = MergeReset(f"{problem}; {ANEW}")
            elif isinstance(problem, OutOfRange):
                problem = OutOfRange(f"{problem}; {_GO_ON}")
            with self._changed:
                self._problem = problem
                self._changed.notify_all()

    def _forget(self, before: int) -> None:
        before = min(before, self._tally.stable_point)
        self._tally.settle(before)
        self._tally.forget(before)
        self._changed.notify_all()

    def _is_full(self) -> bool:
        """Whether the query has enough to do. As long as nothing is decided it has not."""
        tally = self._tally
        return tally.stable_point > tally.since and tally.bytes > self._options.buffer_bytes

    def _raise(self) -> None:
        if self._problem is not None:
            raise self._problem

    def _oldest(self, start: int, epoch: int | None) -> int:
        """Where to begin if what was lost may be left out: as early as somebody has it."""
        answers = ask(self._options).of_epoch(epoch)
        if not answers.known or answers.away or answers.retained_from <= start:
            return start
        self._meet(SubscriptionGap(start, answers.retained_from))
        return answers.retained_from

    def _meet(self, gap: SubscriptionGap) -> None:
        """Nobody can tell what lies between."""
        what = f"{self._options}: what ended between {show_time(gap.start)} and {show_time(gap.end)} was lost"
        if self._options.fails_on_loss:
            raise OutOfRange(f"{what}: no server has it")
        _log.warning("%s, and is left out", what)
        self.gaps.append(gap)
