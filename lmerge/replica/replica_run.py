"""A plan that runs as a replica: from its sources, through the plan, to the servers of a merge.

One thread takes items of the sources, in the order of their times as far as they are there, computes, and publishes.
The publisher has a thread of its own, so feedback arrives while the plan computes. Steps are so small that feedback is
taken within a few ten milliseconds, however slow the plan's functions are.

A replica joins where the merge is: it needs no event that ends before the merge's stable point, and computes none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from lmerge import clock as wall_clock
from lmerge.client import Origin, Publisher, PublisherLimits, Security
from lmerge.client.connection.streams import parse_targets
from lmerge.core.elements import INF, NEG_INF
from lmerge.core.inputs import InputRole
from lmerge.core.properties import ORDERED
from lmerge.errors import UsageError
from lmerge.replica.checkpoints import CheckpointFolder, ReplicaCheckpoint
from lmerge.replica.counts import RunCounts, counts_of
from lmerge.replica.feeds import SourceFeed, earliest, feed_of, opened_at
from lmerge.replica.idling import IdleSources
from lmerge.replica.joining import merged_to, right_from
from lmerge.replica.pacing import PaceClock, ReplayPace, SharedClock
from lmerge.replica.payloads import RawWriter
from lmerge.replica.present_step import present_step
from lmerge.replica.query import Query, settings_of, sources_of
from lmerge.replica.resuming import check_checkpoints, check_joins
from lmerge.replica.slow_steps import StepWatch
from lmerge.replica.sources.declared import EndedReader, PhysicalSource, SourceContext
from lmerge.temporal.columns import AnyDelta
from lmerge.temporal.plan.properties import derive
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.running import ElementWriter, QueryRun
from lmerge.wire.names import check_name

# A step takes about so long, and so does feedback until it has an effect.
STEP_S: Final = 0.02
STEP_ITEMS_FIRST: Final = 64
STEP_ITEMS_MAX: Final = 65_536
# By so much per step the longest time of an item is forgotten.
FORGET: Final = 0.98
# A run that waits for its sources checks so often whether one is idle, or is to be stopped.
LOOK_S: Final = 0.1
# Items that are released nearer together than this are taken together: 50 messages a second cost nothing.
TICK_S: Final = 0.02
# What a restart computes again. A checkpoint costs about as long as its state takes to be written.
CHECKPOINT_EVERY_S: Final = 10.0
# How long the figures of a run are waited for: a step takes less, unless a user's function takes long.
COUNT_S: Final = 1.0


@dataclass(frozen=True)
class ReplicaOptions:
    """How a plan runs as a replica.

    ``role``: active, or observe. ``clock``: paces the sources; None: they are read at full speed. ``join_at``:
    the sources have every event that ends then or later; None: they begin at their beginning. ``security``: how to
    connect. ``give_up_after_s``: seconds without any server after which the run fails; None: never. ``checkpoint``: the
    folder from which the run goes on, and where it keeps its place every ``checkpoint_every_s`` seconds. ``is_raw``:
    the only column, text or bytes, is the payload, and the merge has no columns.
    """

    role: str = InputRole.ACTIVE.value
    clock: PaceClock | ReplayPace | None = None
    join_at: int | None = None
    security: Security | None = None
    give_up_after_s: float | None = None
    checkpoint: Path | None = None
    checkpoint_every_s: float = CHECKPOINT_EVERY_S
    is_raw: bool = False


class ReplicaRun:
    """A plan of a query as ``replica`` of ``merge``: ``with ReplicaRun(...) as begun: begun.run()``.

    ``joined_at``: the result is right for events that end then or later; -inf: from the beginning. ``checkpoints``:
    written so far, the last of ``checkpoint_bytes``. ``steps``: how long the present one takes. The arguments are
    those of ``lmerge.replica.run``.
    """

    def __init__(
        self,
        query: Query,
        plan: str | None,
        *,
        servers: str,
        merge: str,
        replica: str,
        options: ReplicaOptions,
        stop: threading.Event | None = None,
    ) -> None:
        self.plan, self.node = query.plan(plan)
        parse_targets(servers)
        check_name("merge", merge)
        check_name("replica", replica)
        self.servers, self.merge, self.replica, self.options = servers, merge, replica, options
        self.sources = query.sources_of(self.node)
        self.query: QueryRun
        self._folder: CheckpointFolder | None = None
        self._begun: ReplicaCheckpoint | None = None
        self.promises = derive(self.node)[self.node].promises
        self.joined_at = NEG_INF
        self.checkpoints = self.checkpoint_bytes = 0
        self._state_bytes: dict[str, int] = {}  # by operator, in the last checkpoint
        self.clock: PaceClock | None = None if isinstance(options.clock, ReplayPace) else options.clock
        self.feeds: list[SourceFeed] = []
        self.publisher: Publisher | None = None
        self._writer = RawWriter(self.node) if options.is_raw else ElementWriter(self.node)
        self._stop = stop or threading.Event()
        self._wake = threading.Event()
        self._needed_from = NEG_INF  # the servers' feedback, from the publisher's thread
        self._forwarded_to = NEG_INF
        self._step_items = STEP_ITEMS_FIRST
        self._item_s = STEP_S / STEP_ITEMS_FIRST
        self._saved_s = time.monotonic()
        self._idle: IdleSources | None = None
        self._late_before = 0, 0  # late events of the runs before: dropped, moved
        self._is_running, self._thread = False, 0
        self.steps = StepWatch(self.doing)
        self._source = ""  # of the present step, or the last one
        self._counts = RunCounts()
        self._counted = threading.Event()  # not set: the figures are asked for
        self._counted.set()

    def __enter__(self) -> ReplicaRun:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(is_failed=kind is not None)

    def open(self) -> None:
        """Open the sources and connect. Raises UsageError for what does not fit, and what ends the publisher."""
        if self.options.checkpoint is not None:
            check_checkpoints(self.sources)
            self._folder = CheckpointFolder(self.options.checkpoint)
            self._begun = self._folder.load()
        self.query = self._query_run()
        self._late_before = self._late()
        by_name = {source.label: source for source in sources_of(self.node)}
        for name, source in self.sources.items():
            self.feeds.append(self._opened(by_name[name], source))
        self._set_clock()
        begins = self._right_from()
        if begins is None:
            return  # stopped before it is known where the sources begin
        merged = merged_to(self.servers, self.merge, self.options.security)
        self.joined_at = max(begins, merged)
        if self.joined_at == INF:
            return  # the merge is complete
        self.publisher = Publisher(
            self.servers,
            self.merge,
            self.replica,
            properties=self.promises,
            schema=None if self.options.is_raw else self.node.schema,
            role=self.options.role,
            origin=Origin(join_at=self.join_at),
            on_fast_forward=self._note_feedback,
            limits=PublisherLimits(give_up_after_s=self.options.give_up_after_s),
            security=self.options.security,
        )
        if self._begun is not None:
            self.publisher.publish(self._begun.published)
        if self.joined_at > NEG_INF:
            self._leave_out(min(self.joined_at, INF - 1))
        self._saved_s = time.monotonic()

    @property
    def join_at(self) -> int | None:
        """From when the result is right, as servers and parents get it; None: from the beginning."""
        return None if self.joined_at == NEG_INF else self.joined_at

    @property
    def is_merged_already(self) -> bool:
        """Whether the merge was complete when the run was opened, so there is nothing to publish."""
        return self.joined_at == INF

    def run(self) -> bool:
        """Run until the sources have ended, or the stop; return whether everything was published and merged."""
        if self.publisher is None:
            return self.is_merged_already
        self._is_running, self._thread = True, threading.get_ident()
        try:
            with self.steps:
                is_complete = self._run()
            if is_complete:
                self._connected().flush()
            self._save()
            self._count()
        finally:
            self._is_running = False
        return is_complete

    def _run(self) -> bool:
        while not self._stop.is_set():
            self.steps.mark()
            self._take_feedback()
            self._save_if_due()
            if not self._counted.is_set():
                self._count()
            self._pass_idle()
            feed, wait_s = self._next_feed()
            if feed is not None:
                self._step(feed)
            elif all(feed.has_ended for feed in self.feeds):
                self._publish(self.query.end_columns())
                return True
            else:
                self._wake.wait(wait_s)
                self._wake.clear()
        return False

    def stop(self) -> None:
        """End the run after its present step. Any thread may call it."""
        self._stop.set()
        self._wake.set()

    def doing(self) -> str:
        """Return what the run does at this moment, for people; empty: it waits. Any thread may call it."""
        step = present_step(self._thread)
        if not step:
            return ""
        at = f" at source {self._source!r}" if self._source and step.startswith("operator") else ""
        return f"in the middle of a step of {self.replica}: plan {self.plan!r}, {step}{at}"

    def counted(self) -> RunCounts:
        """Return the figures of the run, as of its next step. Any thread may call it."""
        if self._is_running:
            self._counted.clear()
            self._wake.set()
            self._counted.wait(COUNT_S)
        return self._counts

    def late(self) -> tuple[int, int]:
        """Return how many late events this run has dropped, and how many it has moved."""
        (dropped, moved), (dropped_before, moved_before) = self._late(), self._late_before
        return dropped - dropped_before, moved - moved_before

    def _late(self) -> tuple[int, int]:
        entrances = self.query.entrances.values()
        return sum(one.dropped for one in entrances), sum(one.moved for one in entrances)

    def close(self, *, is_failed: bool = False) -> None:
        """Close the sources and leave the merge."""
        for feed in self.feeds:
            feed.close()
        if self._folder is not None:
            self._folder.close()
            self._folder = None
        if self.publisher is not None:
            if is_failed:
                self.publisher.abort()
            else:
                self.publisher.close()

    def _count(self) -> None:
        self._counts = counts_of(self.query, self.feeds, self._forwarded_to, self._state_bytes)
        self._counted.set()

    # Checkpoints.

    def _query_run(self) -> QueryRun:
        """Return the run of the plan, from its beginning or a checkpoint. Raises UsageError for a foreign one."""
        settings = {name: settings_of(source) for name, source in self.sources.items()}
        if self._begun is None:
            return QueryRun({self.plan: self.node}, settings)
        assert self._folder is not None
        if (self._begun.merge, self._begun.plan) != (self.merge, self.plan):
            owner = f"plan {self._begun.plan!r} for merge {self._begun.merge!r}"
            mine = f"plan {self.plan!r} for merge {self.merge!r}"
            raise UsageError(f"{self._folder.path} is a checkpoint of {owner}, and this is {mine}")
        return QueryRun({self.plan: self.node}, settings, resume=self._begun.query)

    def checkpoint(self) -> ReplicaCheckpoint:
        """Return where the run is, between two steps."""
        outbox = self._connected().inner.outbox
        with outbox.lock:
            published = outbox.live.prelude()
            complete_from = max(outbox.complete_from, outbox.skipped, self.joined_at)
        clock = self.clock
        return ReplicaCheckpoint(
            self.merge,
            self.plan,
            self.query.snapshot(is_packed=True),
            {feed.name: feed.position for feed in self.feeds},
            published,
            complete_from,
            (clock.first, clock.start_s, clock.speed) if isinstance(clock, SharedClock) else None,
        )

    def _save_if_due(self) -> None:
        if self._folder is not None and time.monotonic() - self._saved_s >= self.options.checkpoint_every_s:
            self._save()

    def _save(self) -> None:
        if self._folder is not None and self.publisher is not None:
            checkpoint = self.checkpoint()
            self.checkpoint_bytes = self._folder.save(checkpoint)
            self._state_bytes = {part["name"]: len(part["state"]) for part in checkpoint.query["parts"]}
            self.checkpoints += 1
            self._saved_s = time.monotonic()

    def _set_clock(self) -> None:
        """Begin the clock of a replay; one of a checkpoint goes on."""
        if isinstance(self.options.clock, ReplayPace):
            releases = [release for feed in self.feeds if (release := feed.next_release()) is not None]
            self.clock = self.options.clock.clock(min(releases, default=wall_clock.wall_us()))
            if self._begun is not None and self._begun.clock is not None and self.options.clock.start_s is None:
                self.clock = SharedClock(*self._begun.clock)

    # The sources.

    def _opened(self, node: SourceNode, source: PhysicalSource) -> SourceFeed:
        may_skip = source.progress is None or source.progress.is_exact_over_gaps or ORDERED in node.promises
        position = None if self._begun is None else self._begun.positions.get(node.label)
        entrance = self.query.entrances[node.label]
        if entrance.live.stable == INF:  # of a checkpoint: all of it was taken
            return feed_of(node.label, source, EndedReader(), position, self._wake)
        live = None if position is None else entrance.live
        context = SourceContext(node.label, node.schema, may_skip, live, self.options.security, entrance.has_columns)
        reader = source.open(context, opened_at(source, position)[0])
        return feed_of(node.label, source, reader, position, self._wake)

    def _right_from(self) -> int | None:
        """Return from when the result is right, by what the sources have; None: the run was stopped before.

        Waits for sources that have to begin. Raises UsageError if there is no such time.
        """
        join_at = NEG_INF if self.options.join_at is None else self.options.join_at
        since: dict[str, int] = {}
        for feed in self.feeds:
            if self._begun is not None:
                check_joins(feed, self.query.entrances[feed.name], self.options.join_at)
            goes_on = self._begun is not None and self._begun.positions.get(feed.name) is not None
            found = NEG_INF if goes_on else self._complete_from(feed)  # the checkpoint has it of what goes on
            if found is None:
                return None
            since[feed.name] = max(found, join_at)
        begins = right_from(self.node, since)
        if begins == INF:
            raise UsageError(
                f"plan {self.plan!r} needs all of its sources, and one of them was joined later; its result would "
                "never be right"
            )
        return begins if self._begun is None else max(begins, self._begun.complete_from)

    def _complete_from(self, feed: SourceFeed) -> int | None:
        found = feed.reader.complete_from()
        while found is None and not self._stop.is_set():
            feed.next_release()  # raises what has ended the source
            self._wake.wait(LOOK_S)
            found = feed.reader.complete_from()
        return found

    def _next_feed(self) -> tuple[SourceFeed | None, float]:
        """Return the source whose next item comes first; None: there is none yet, and how long to wait at most."""
        found = earliest(self.feeds)
        if found is None:
            return None, LOOK_S
        feed, release = found
        clock = self.clock
        wait_s = 0.0 if clock is None or release == NEG_INF else clock.seconds_until(release)
        if wait_s > 0:
            return None, min(max(wait_s, TICK_S), LOOK_S)
        return feed, 0.0

    def _step(self, feed: SourceFeed) -> None:
        began_s = time.monotonic()
        self._source = feed.name
        self._idle_sources().note(feed)
        latest = feed.take_latest()
        if latest is not None:
            self._publish(self.query.advance_columns(feed.name, latest))
            return
        unneeded = feed.count_unneeded()
        if unneeded:  # the plan leaves them out, so their time tells nothing of what the others will take
            items = feed.take(min(unneeded, STEP_ITEMS_MAX), self.clock)
            self._publish(self.query.take_columns(feed.name, items))
            return
        items = feed.take(self._step_items, self.clock)
        steps = self.query.take_columns(feed.name, items)
        self._fit_step(time.monotonic() - began_s, len(items))
        self._publish(steps)

    def _fit_step(self, took_s: float, items: int) -> None:
        """Choose the size of the next step. What was slow stays slow for a while: a long step delays feedback."""
        self._item_s = max(took_s / max(items, 1), self._item_s * FORGET)
        self._step_items = max(1, min(int(STEP_S / self._item_s), 2 * self._step_items, STEP_ITEMS_MAX))

    def _pass_idle(self) -> None:
        """Let sources that have been silent for long go on without events."""
        for feed, latest in self._idle_sources().due(time.monotonic()):
            self._publish(self.query.advance_columns(feed.name, latest))

    def _idle_sources(self) -> IdleSources:
        if self._idle is None:
            self._idle = IdleSources(self.feeds, self.query.entrances, self._clock_now, is_wall=self.clock is None)
        return self._idle

    def _clock_now(self) -> int:
        return wall_clock.wall_us() if self.clock is None else self.clock.now()

    # The publisher.

    def _connected(self) -> Publisher:
        assert self.publisher is not None, "the run was not opened"
        return self.publisher

    def _publish(self, steps: Iterable[Mapping[str, AnyDelta]]) -> None:
        batch = self._writer.batch([step[self.plan] for step in steps])
        if batch.count:
            self._connected().publish(batch)

    def _note_feedback(self, until: int) -> None:
        """Store the servers' feedback. Runs in the publisher's thread."""
        self._needed_from = until
        self._wake.set()

    def _take_feedback(self) -> None:
        """Leave out what no server needs any more, if this replica is behind."""
        until = self._needed_from
        if until > self._forwarded_to and until > self._connected().inner.outbox.stable_point:
            self._fast_forward(until)

    def _fast_forward(self, until: int) -> None:
        """Leave out events that end before ``until`` from here on: the servers, the plan, then the sources."""
        until = min(until, INF - 1)
        self._connected().skip(until)
        self._leave_out(until)

    def _leave_out(self, until: int) -> None:
        self._forwarded_to = until
        needed = self.query.fast_forward(self.plan, until)
        for feed in self.feeds:
            feed.fast_forward(needed[feed.name])
