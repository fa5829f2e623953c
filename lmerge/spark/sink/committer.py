"""What the driver does with a batch whose parts are written: its manifest, its elements, a server's word for it.

One ``Committer`` is one query on its driver, in the agent's process. Its publisher belongs to one *run* of the query
and says its batches in order. Any other batch begins a new publisher: the first of a run, and one that is run again. It
is a newer incarnation, so the servers forget what the last one said; it brings the live events as they were before the
batch, and then says the batch. So a batch that was said, half said or not said before it failed is said once.

    run 1:  commit(6) said, Spark notes it      commit(7) said, the driver dies before Spark notes it
    run 2:  seed: live events after batch 6, stable(6)   commit(7), the same rows   commit(8) ...

``commit`` returns when one server has merged the batch: its errors are those of this batch, not of a later one, and
Spark's note that the batch is done is true. The other servers follow at their own pace.

What servers do not want any more (``fast_forward``) is heard at any time and counts from the next batch on: its commit
tells them (``skip``) and then writes the time into the manifest, where tasks find it (``skipping``).
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
from lmerge.client.blocking import background_loop, run_blocking
from lmerge.client.connection.faults import in_words
from lmerge.client.publish.publisher import AsyncPublisher
from lmerge.client.publish.stage import Staged
from lmerge.core.batch import AnyBatch, BatchBuilder
from lmerge.core.elements import INF, NEG_INF, STABLE, show_time
from lmerge.errors import LmergeError, ServerGone
from lmerge.spark.options import SinkOptions, schema_of_text
from lmerge.spark.sink.watermark import batch_watermark_us
from lmerge.spark.spool.manifest import Manifest
from lmerge.spark.spool.spool import Spool, SpoolPart

# How often a waiting commit looks whether its batch was merged: far below what a micro-batch costs.
_LOOK_S: Final = 0.002
# A newer incarnation than any that the last life can have come to: it adds one for each connection it makes.
_INCARNATIONS_PER_LIFE: Final = 1_000_000
# Servers that are not there are spoken of in the driver's log, first after so long, then now and again.
_SILENCE_S: Final = 10.0
_SILENCE_AGAIN_S: Final = 60.0
# A run that begins far behind is told so by then, if at all. It saves a batch of work that nobody wants.
_FEEDBACK_S: Final = 0.5
# What a server's error says to a replica whose successor was certified: the end of a cutover, which is no fault.
_SUCCEEDED: Final = " has taken its place at "
# How soon a waiting commit notices that its query has ended.
_LOOK_AGAIN_S: Final = 0.2


@dataclass(frozen=True)
class Commit:
    """A batch that Spark asks to commit. ``run``: of the query; None: no task of the batch could tell. ``stable``: the
    largest that the batch's own rows say. ``holders``: servers on which all parts are staged. ``late``: rows that were
    left out because they came below the stable point, and ``first_late`` one of them.
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
    """What came of it: the stable said up to now, and how far the merge is. ``ended``: why the query has nothing more
    to publish, after a cutover to another; the batch is in the spool and nowhere else.
    """

    stable: int
    merge_stable_point: int
    ended: str = ""


class Committer:
    """See above. ``commit`` is called by one thread at a time, ``interrupt`` and ``close`` by any."""

    def __init__(self) -> None:
        self.run: str | None = None
        self._lock = threading.Lock()
        self._batch = -1  # the last one committed
        self._options: SinkOptions | None = None
        self._spool: Spool | None = None
        self._publisher: AsyncPublisher | None = None
        self._interrupted = False
        self._wanted_from = NEG_INF  # servers want nothing that ends before, as last heard
        self._is_skipping = False

    def commit(self, commit: Commit) -> Committed:
        """Make the batch durable, say it, and wait until a server has merged it. Raises what ended the publisher, or
        UsageError if the spool belongs to another stream; the words name the batch.
        """
        with self._lock:
            try:
                if not self._goes_on_with(commit):
                    self._begin(commit)
                return self._commit(commit)
            except LmergeError as error:
                words = f"cannot commit batch {commit.batch} of {commit.options}: {error}"
                raise in_words(type(error), words) from error

    def interrupt(self) -> None:
        """Whoever waits for a server waits no longer."""
        self._interrupted = True

    def close(self) -> None:
        """Say what was committed, leave, and wait until it is merged. Raises what ended the publisher, if that was no
        cutover.
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

    def _begin(self, commit: Commit) -> None:
        """A publisher that has said all batches before this one, as far as they still matter."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            run_blocking(publisher.abort(), background_loop())
        self._spool = spool = Spool(commit.options.spool)
        self._options, self.run = commit.options, commit.run
        self._wanted_from, self._is_skipping = NEG_INF, False
        spool.check(origin_of(commit))
        live = spool.live_before(commit.batch)
        complete_from = spool.complete_from(commit.batch)
        opened = self._opened(commit.options, _incarnation_after(spool, commit.batch), live, complete_from)
        self._publisher = run_blocking(opened, background_loop())

    async def _opened(
        self, options: SinkOptions, incarnation: int, live: AnyBatch | None, complete_from: int
    ) -> AsyncPublisher:
        """A publisher that a server has accepted, or refused because another replica has taken its place (``_end_of``).
        Raises whatever else ended it.
        """
        seed, said = seed_of(live, complete_from)
        publisher = AsyncPublisher(
            options.servers, options.merge, options.replica, properties=options.properties,
            schema=schema_of_text(options.schema), join_at=options.join_at, role=options.role,
            incarnation=incarnation, seed=seed, give_up_after_s=options.give_up_after_s,
            security=options.security, on_fast_forward=self._hear,
        )
        if said is not None:
            publisher.outbox.put_batch(said)
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
        wanted = stable_of(commit)
        meta = origin_of(commit) | {"incarnation": str(publisher.incarnation)}
        skipped = NEG_INF if ended else self._skip(publisher, max(last, wanted))
        # After a cutover as well: a replica that is let in again goes on where Spark does.
        manifest = spool.commit(commit.batch, commit.parts, wanted if wanted > last else None, meta, skipped)
        if not ended:
            ended = self._publish(publisher, commit, manifest)
        self._batch = commit.batch
        if commit.late:
            left_out = f"{commit.late} rows below the stable point were left out, such as {commit.first_late}"
            complain(f"{commit.options}, batch {commit.batch}: {left_out}")
        if not ended:
            spool.trim(publisher.merge_stable_point)
        return Committed(publisher.outbox.stable_point, publisher.merge_stable_point, ended)

    def _publish(self, publisher: AsyncPublisher, commit: Commit, manifest: Manifest) -> str:
        """Publish the batch and wait until a server has merged it. Why nothing is published any more, or ""."""
        assert self._spool is not None
        parts = [part for part in manifest.parts if part.elements]
        batches = [batch for part in parts for batch in self._spool.read_part(part)]
        staged = None
        if commit.run is not None and commit.holders:
            numbers = tuple((part.partition, part.attempt) for part in parts)
            staged = Staged(commit.run, commit.batch, numbers, commit.holders)
        if not batches and manifest.stable is None:
            return ""
        work = _say(publisher, batches, staged, manifest.stable)
        try:
            run_blocking(self._patiently(publisher, work), background_loop())
        except LmergeError:
            ended = _end_of(publisher, commit.options)
            if not ended:
                raise
            return ended
        return ""

    async def _patiently(self, publisher: AsyncPublisher, work: Coroutine[Any, Any, None]) -> None:
        """Wait for ``work`` as long as it takes, and say what it waits for. Raises ServerGone when interrupted."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        began_s = loop.time()
        speaks_s = began_s + _SILENCE_S
        try:
            while not (await asyncio.wait([task], timeout=_LOOK_AGAIN_S))[0]:
                if self._interrupted:
                    raise ServerGone("the query has ended")
                if loop.time() >= speaks_s:
                    waits_for = "has not merged it" if is_connected(publisher) else "cannot be reached"
                    complain(f"{self._options} has waited {loop.time() - began_s:.0f} s: a server {waits_for}")
                    speaks_s = loop.time() + _SILENCE_AGAIN_S
        finally:
            task.cancel()
        task.result()

    def _hear(self, until: int) -> None:
        """The servers' feedback: what all that are there have let go of. Called in the client's loop."""
        self._wanted_from = until

    async def _await_feedback(self, publisher: AsyncPublisher) -> None:
        """Wait a moment for the feedback of servers that are ahead."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _FEEDBACK_S
        while self._wanted_from == NEG_INF and publisher.outbox.stable_point < publisher.merge_stable_point:
            if loop.time() >= end_s:
                return
            await asyncio.sleep(_LOOK_S)

    def _skip(self, publisher: AsyncPublisher, stable: int) -> int:
        """Before which end the batches after this one, which says ``stable``, leave events out; -inf: no news. The
        servers are told before the first is left out.
        """
        assert self._options is not None
        until = self._wanted_from if self._options.skips else NEG_INF
        was_skipping, self._is_skipping = self._is_skipping, until > stable
        if not self._is_skipping:
            return NEG_INF
        publisher.skip_now(until)
        if not was_skipping:
            behind = f"{self._options} is behind, at {show_time(stable)}"
            complain(f"{behind}: from here on it leaves out what ends before {show_time(until)}")
        return until


def _end_of(publisher: AsyncPublisher, options: SinkOptions) -> str:
    """Why a publisher that has failed only makes the query end; "": it has not failed. Raises any other failure."""
    if publisher.failure is None:
        return ""
    words = str(publisher.failure)
    if options.ends_after_cutover and _SUCCEEDED in words:
        return words
    raise publisher.failure


def stable_of(commit: Commit) -> int:
    """What the batch's rows and its watermark say together; NEG_INF: nothing. Raises UsageError."""
    options = commit.options
    stable = NEG_INF if commit.stable is None else commit.stable
    if options.stable_lag_us is not None:
        watermark_us = batch_watermark_us(options.checkpoint, commit.batch)
        if watermark_us is not None:
            stable = max(stable, watermark_us - options.stable_lag_us)
    return stable


def origin_of(commit: Commit) -> dict[str, str]:
    """Whose stream a manifest belongs to."""
    options = commit.options
    return {"query": commit.query, "merge": options.merge, "replica": options.replica, "mode": options.mode,
            "schema": options.schema or "", "keys": ",".join(options.keys)}


def is_connected(publisher: AsyncPublisher) -> bool:
    """Whether a server is there."""
    return any(link.is_connected for link in publisher.links)


def seed_of(live: AnyBatch | None, complete_from: int) -> tuple[AnyBatch | None, AnyBatch | None]:
    """What a publisher begins with, and what it says next: the live events, then the own stable point.

    The stream is right from ``complete_from``, which may lie below its own stable point: a replica that was ahead of
    the merge joins where the merge still is, or it would not count until the merge has come as far. For one that skips
    it lies above, and what begins below is still to be said.
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
    """Newer than that of any life before, even if its clock went ahead of this one's."""
    lives = [spool.manifest(number) for number in (batch - 1, batch)]
    before = [int(life.meta.get("incarnation", "0")) for life in lives if life is not None]
    return max(clock.wall_us(), *(number + _INCARNATIONS_PER_LIFE for number in before), 0)


async def _say(
    publisher: AsyncPublisher, batches: Sequence[AnyBatch], staged: Staged | None, stable: int | None
) -> None:
    """Say the batches and the stable, and wait until a server has merged them."""
    await publisher.publish(list(batches), staged, stable=stable)
    said = publisher.outbox.said
    await _reached(publisher, lambda: publisher.outbox.acked >= said)


async def _reached(publisher: AsyncPublisher, claim: Callable[[], bool]) -> None:
    """Look until ``claim`` holds. Raises what ended the publisher."""
    while not claim():
        if publisher.failure is not None:
            raise publisher.failure
        await asyncio.sleep(_LOOK_S)


def complain(words: str) -> None:
    """A line in the driver's log, if that is still there."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"lmerge: {words}\n")
        sys.stderr.flush()
