"""Attaches on the driver, and commits batches: the manifest, then the elements, then a server's acknowledgement.

One ``BatchCommitter`` serves one query, in the agent's process. Its publisher belongs to one *run* of the query and
publishes the run's batches in order. Any other batch begins a new publisher: the first batch of a run, and one that is
run again. The new publisher is a newer incarnation, so the servers drop the live events of the last one. It first
publishes the live events as they were before the batch, and then the batch. So a batch is published once, whether it
was published, half published or not published before it failed.

    run 1:  commit(6) published, Spark records it   commit(7) published, the driver dies before Spark records it
    run 2:  seed: live events after batch 6, stable(6)   commit(7), the same rows   commit(8) ...

``attach`` begins the publisher of a run before there is a batch, with the state before the batch that Spark runs next.
So a replica whose source is silent takes part in the merge. The first batch then continues with this publisher.

``commit`` returns when one server has merged the batch. So its errors are those of this batch, not of a later one, and
the batch is done when Spark records it as done. The other servers follow at their own pace.

Feedback (``fast_forward``) arrives at any time and counts from the next batch on. The commit of that batch announces
the skip to the servers (``skip``) and then writes the time into the manifest, where tasks read it (``skipping``).
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lmerge import clock
from lmerge.client.connection.background import background_loop, run_blocking
from lmerge.client.connection.faults import error_of_kind
from lmerge.client.publish.arguments import Origin, PublisherLimits
from lmerge.client.publish.publisher import AsyncPublisher
from lmerge.client.publish.stage import Staged
from lmerge.core.batch import AnyBatch, BatchBuilder
from lmerge.core.elements import INF, NEG_INF, STABLE, show_time
from lmerge.errors import LmergeError, ServerGone
from lmerge.spark.options import SinkOptions, schema_of_text
from lmerge.spark.sink.watermark import batch_watermark_us, next_batch
from lmerge.spark.spool.manifest import Manifest, SpoolPart
from lmerge.spark.spool.spool import Spool

# How often a waiting commit checks whether its batch was merged: far less than a micro-batch takes.
_LOOK_S: Final = 0.002
# More than the incarnations that one life of a publisher can use: it adds one for each connection.
_INCARNATIONS_PER_LIFE: Final = 1_000_000
# Unreachable servers are reported in the driver's log, first after this time, then at intervals.
_SILENCE_S: Final = 10.0
_SILENCE_AGAIN_S: Final = 60.0
# A run that begins far behind gets its feedback within this time, if at all. It saves a batch of unneeded work.
_FEEDBACK_S: Final = 0.5
# The text by which a server's error shows that another replica was cut over to. That is no failure.
_SUCCEEDED: Final = " has taken its place at "
# How often a waiting commit checks whether its query has ended.
_LOOK_AGAIN_S: Final = 0.2


@dataclass(frozen=True)
class RunStart:
    """A run of a query that has started, and that may have no rows for a long time."""

    options: SinkOptions
    query: str
    run: str


@dataclass(frozen=True)
class Commit:
    """A batch that Spark asks to commit.

    ``run``: of the query; None: no task of the batch reported it. ``stable``: the largest stable among the batch's own
    rows. ``holders``: servers on which all parts are staged. ``late``: the number of rows left out because they came
    below the stable point, ``first_late`` one of them.
    """

    options: SinkOptions
    query: str
    run: str | None
    batch: int
    parts: tuple[SpoolPart, ...]
    stable: int | None = None
    holders: frozenset[str] = frozenset()
    late: int = 0
    first_late: str = ""


@dataclass(frozen=True)
class Committed:
    """The result of a commit, or of an attach: the stable point published up to now, and the merge's.

    ``ended``: why the query has nothing more to publish, after a cutover to another replica. The batch is then in the
    spool and nowhere else.
    """

    stable: int
    merge_stable_point: int
    ended: str = ""


class BatchCommitter:
    """Commits the batches of one query. ``commit`` is for one thread, the other methods are for any."""

    def __init__(self) -> None:
        self.run: str | None = None
        self._lock = threading.Lock()
        self._batch = -1  # the last one committed
        self._options: SinkOptions | None = None
        self._spool: Spool | None = None
        self._publisher: AsyncPublisher | None = None
        self._interrupted = False
        self._needed_from = NEG_INF  # from the last feedback: servers do not need what ends before
        self._is_skipping = False

    def attach(self, start: RunStart) -> Committed:
        """Begin the publisher of a run, and wait until a server has accepted it. It may have begun already.

        Raises what ended the publisher, or UsageError if the spool belongs to another stream.
        """
        options = start.options
        with self._lock:
            try:
                publisher = self._publisher
                if publisher is None or self.run != start.run:
                    batch = next_batch(options.checkpoint)
                    publisher = self._begin(options, start.query, start.run, batch)
                    self._batch = batch - 1
                ended = _end_of(publisher, options)
            except LmergeError as error:
                raise error_of_kind(type(error), f"cannot attach {options}: {error}") from error
            return Committed(publisher.outbox.stable_point, publisher.merge_stable_point, ended)

    def commit(self, commit: Commit) -> Committed:
        """Make the batch durable, publish it, and wait until a server has merged it.

        Raises what ended the publisher, or UsageError if the spool belongs to another stream. The message names the
        batch.
        """
        with self._lock:
            try:
                if not self._goes_on_with(commit):
                    self._begin(commit.options, commit.query, commit.run, commit.batch)
                return self._commit(commit)
            except LmergeError as error:
                message = f"cannot commit batch {commit.batch} of {commit.options}: {error}"
                raise error_of_kind(type(error), message) from error

    def interrupt(self) -> None:
        """End every wait for a server."""
        self._interrupted = True

    def close(self) -> None:
        """Publish what was committed, wait until it is merged, and leave.

        Raises what ended the publisher, unless that was a cutover.
        """
        with self._lock:
            publisher, self._publisher = self._publisher, None
            if publisher is None:
                return
            assert self._options is not None
            try:
                run_blocking(publisher.close(), background_loop())
            except LmergeError:
                if not _end_of(publisher, self._options):
                    raise

    def _goes_on_with(self, commit: Commit) -> bool:
        """Whether the batch is the next one of the publisher's run."""
        is_run = commit.run in (None, self.run)
        return self._publisher is not None and is_run and commit.batch == self._batch + 1

    def _begin(self, options: SinkOptions, query: str, run: str | None, batch: int) -> AsyncPublisher:
        """Begin a publisher that has published all batches before this one, as far as they still matter."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            run_blocking(publisher.abort(), background_loop())
        self._spool = spool = Spool(options.spool)
        self._options, self.run = options, run
        self._needed_from, self._is_skipping = NEG_INF, False
        spool.check(origin_of(options, query))
        live = spool.live_before(batch)
        incarnation = _incarnation_after(spool, batch)
        spool.begin_life(incarnation)
        opened = self._opened(options, incarnation, live, spool.complete_from(batch))
        self._publisher = begun = run_blocking(opened, background_loop())
        return begun

    async def _opened(
        self, options: SinkOptions, incarnation: int, live: AnyBatch | None, complete_from: int
    ) -> AsyncPublisher:
        """Return a publisher that a server has accepted, or refused because of a cutover (``_end_of``).

        Raises any other error that ended it.
        """
        seed, rest = seed_of(live, complete_from)
        publisher = AsyncPublisher(
            options.servers,
            options.merge,
            options.replica,
            properties=options.properties,
            schema=schema_of_text(options.schema),
            role=options.role,
            origin=Origin(options.join_at, incarnation, seed),
            on_fast_forward=self._note_feedback,
            limits=PublisherLimits(give_up_after_s=options.give_up_after_s),
            security=options.security,
        )
        if rest is not None:
            publisher.outbox.put_batch(rest)
        if publisher.outbox.skipped < complete_from < INF:
            publisher.skip_now(complete_from)
        publisher.start()
        try:
            await self._patiently(publisher, _reached(publisher, lambda: is_connected(publisher)))
            if options.skips:
                await self._await_feedback(publisher)
        except BaseException:
            await publisher.abort()
            if not _end_of(publisher, options):
                raise
        return publisher

    def _commit(self, commit: Commit) -> Committed:
        assert self._publisher is not None
        assert self._spool is not None
        publisher, spool = self._publisher, self._spool
        ended = _end_of(publisher, commit.options)
        last = publisher.outbox.stable_point
        stable = stable_of(commit)
        meta = origin_of(commit.options, commit.query) | {"incarnation": str(publisher.incarnation)}
        skipped = NEG_INF if ended else self._skip(publisher, max(last, stable))
        # After a cutover as well: a replica that is released again continues where Spark does.
        manifest = spool.commit(commit.batch, commit.parts, stable if stable > last else None, meta, skipped)
        if not ended:
            ended = self._publish(publisher, commit, manifest)
        self._batch = commit.batch
        if commit.late:
            left_out = f"{commit.late} rows below the stable point were left out, such as {commit.first_late}"
            write_log(f"{commit.options}, batch {commit.batch}: {left_out}")
        if not ended:
            spool.trim(publisher.merge_stable_point)
        return Committed(publisher.outbox.stable_point, publisher.merge_stable_point, ended)

    def _publish(self, publisher: AsyncPublisher, commit: Commit, manifest: Manifest) -> str:
        """Publish the batch and wait until a server has merged it. Return why no more is published, or ""."""
        assert self._spool is not None
        parts = [part for part in manifest.parts if part.elements]
        batches = [batch for part in parts for batch in self._spool.read_part(part)]
        staged = None
        if commit.run is not None and commit.holders:
            numbers = tuple((part.partition, part.attempt) for part in parts)
            staged = Staged(commit.run, commit.batch, numbers, commit.holders)
        if not batches and manifest.stable is None:
            return ""
        work = _publish_elements(publisher, batches, staged, manifest.stable)
        try:
            run_blocking(self._patiently(publisher, work), background_loop())
        except LmergeError:
            ended = _end_of(publisher, commit.options)
            if not ended:
                raise
            return ended
        return ""

    async def _patiently(self, publisher: AsyncPublisher, work: Coroutine[Any, Any, None]) -> None:
        """Wait for ``work`` without limit, and log what it waits for. Raises ServerGone when interrupted."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        began_s = loop.time()
        reports_s = began_s + _SILENCE_S
        try:
            while not (await asyncio.wait([task], timeout=_LOOK_AGAIN_S))[0]:
                if self._interrupted:
                    raise ServerGone("the query has ended")
                if loop.time() >= reports_s:
                    waits_for = "has not merged it" if is_connected(publisher) else "cannot be reached"
                    write_log(f"{self._options} has waited {loop.time() - began_s:.0f} s: a server {waits_for}")
                    reports_s = loop.time() + _SILENCE_AGAIN_S
        finally:
            task.cancel()
        task.result()

    def _note_feedback(self, until: int) -> None:
        """Store the servers' feedback: the time up to which none of them needs events. Runs in the client's loop."""
        self._needed_from = until

    async def _await_feedback(self, publisher: AsyncPublisher) -> None:
        """Wait a moment for the feedback of servers that are ahead."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _FEEDBACK_S
        while self._needed_from == NEG_INF and publisher.outbox.stable_point < publisher.merge_stable_point:
            if loop.time() >= end_s:
                return
            await asyncio.sleep(_LOOK_S)

    def _skip(self, publisher: AsyncPublisher, stable: int) -> int:
        """Announce the time before which the batches after this one leave out ended events, and return it.

        -inf: no events are left out. ``stable``: of this batch. The servers learn of it before the first event is left
        out.
        """
        assert self._options is not None
        until = self._needed_from if self._options.skips else NEG_INF
        was_skipping, self._is_skipping = self._is_skipping, until > stable
        if not self._is_skipping:
            return NEG_INF
        publisher.skip_now(until)
        if not was_skipping:
            behind = f"{self._options} is behind, at {show_time(stable)}"
            write_log(f"{behind}: from here on it leaves out what ends before {show_time(until)}")
        return until


def _end_of(publisher: AsyncPublisher, options: SinkOptions) -> str:
    """Return why a failed publisher ends the query without an error; "": it has not failed. Raises other failures."""
    if publisher.failure is None:
        return ""
    reason = str(publisher.failure)
    if options.ends_after_cutover and _SUCCEEDED in reason:
        return reason
    raise publisher.failure


def stable_of(commit: Commit) -> int:
    """Return the batch's stable, from its rows and its watermark; NEG_INF: there is none. Raises UsageError."""
    options = commit.options
    stable = NEG_INF if commit.stable is None else commit.stable
    if options.stable_lag_us is not None:
        watermark_us = batch_watermark_us(options.checkpoint, commit.batch)
        if watermark_us is not None:
            stable = max(stable, watermark_us - options.stable_lag_us)
    return stable


def origin_of(options: SinkOptions, query: str) -> dict[str, str]:
    """Return what identifies the stream of a manifest."""
    return {
        "query": query,
        "merge": options.merge,
        "replica": options.replica,
        "mode": options.mode,
        "schema": options.schema or "",
        "keys": ",".join(options.keys),
    }


def is_connected(publisher: AsyncPublisher) -> bool:
    """Whether at least one server is connected."""
    return any(link.is_connected for link in publisher.links)


def seed_of(live: AnyBatch | None, complete_from: int) -> tuple[AnyBatch | None, AnyBatch | None]:
    """Return the seed of a publisher (the live events) and what it publishes next (its own stable point).

    The stream is right from ``complete_from``, which may lie below its own stable point: a replica that was ahead of
    the merge joins where the merge still is, as otherwise it would not count until the merge has come that far. For a
    replica that skips, ``complete_from`` lies above its stable point, and events that begin below are still to be
    published.
    """
    if live is None:
        return None, None
    rows = list(live.rows())
    inserts = [row for row in rows if row[0] != STABLE]
    stables = [row for row in rows if row[0] == STABLE]
    complete_from = min(complete_from, max((row[1] for row in stables), default=NEG_INF))
    builder, rest = BatchBuilder(), BatchBuilder()
    builder.rows = inserts
    if complete_from == NEG_INF:
        builder.rows = rows
        return None, builder.build()
    builder.stable(complete_from)
    rest.rows = [row for row in stables if row[1] > complete_from]
    return builder.build(), rest.build() if rest.rows else None


def _incarnation_after(spool: Spool, batch: int) -> int:
    """Return an incarnation newer than those of all lives before, even if their clocks were ahead of this one."""
    lives = [spool.record.manifest(number) for number in (batch - 1, batch)]
    before = [int(life.meta.get("incarnation", "0")) for life in lives if life is not None]
    before.append(spool.newest_life())
    return max(clock.wall_us(), *(number + _INCARNATIONS_PER_LIFE for number in before), 0)


async def _publish_elements(
    publisher: AsyncPublisher, batches: Sequence[AnyBatch], staged: Staged | None, stable: int | None
) -> None:
    """Publish the batches and the stable, and wait until a server has merged them."""
    await publisher.publish(list(batches), staged, stable=stable)
    published = publisher.outbox.published
    await _reached(publisher, lambda: publisher.outbox.acked >= published)


async def _reached(publisher: AsyncPublisher, claim: Callable[[], bool]) -> None:
    """Wait until ``claim`` holds. Raises what ended the publisher."""
    while not claim():
        if publisher.failure is not None:
            raise publisher.failure
        await asyncio.sleep(_LOOK_S)


def write_log(message: str) -> None:
    """Write a line to the driver's log, if the log still exists."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"lmerge: {message}\n")
        sys.stderr.flush()
