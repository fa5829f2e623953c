"""Keeps a PostgreSQL table equal to the merge's TDB (extra ``postgres``).

One transaction writes the rows that have changed up to a stable point and the token of that stable point, into
``lmerge_progress`` beside the table. So the table is always as of one stable point. A sink that was killed at any
moment goes on from the token that its last transaction left: nothing is lost, nothing is there twice. Changes that come
while a transaction runs are gathered into the next one.

Every start of a sink takes the next epoch; a transaction of an older one changes nothing and ends that sink. So a
second sink on the same table, or one that hangs and wakes up again, does no harm.

Columns: those of the schema (without one: ``payload``), ``vs``, ``ve``, ``is_final``, and the key ``vs``,
``event_key``, ``ordinal``. A row that is final is never written again. Lists and structs are jsonb.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from lmerge.client.connection.backoff import Backoff
from lmerge.client.sinks import SinkProgress, SinkSubscriber, Subscribe, ignore_progress
from lmerge.client.sinks.pgtable import PgTable, import_psycopg, is_passing, refusal_of
from lmerge.client.sinks.rows import Key, Leftovers, key_of
from lmerge.client.subscribe.envelopes import Delete, Delivery, Upsert, Upserts, deliveries
from lmerge.core.elements import NEG_INF
from lmerge.errors import Unavailable
from lmerge.wire.token import format_token, parse_token

# The most changes that wait for the running transaction; beyond, the sink stops reading: some 100 MB with rows of 1 KB.
PENDING_MAX: Final = 100_000


class Pending:
    """Changes up to the newest stable point, by key, that are in no transaction yet."""

    def __init__(self) -> None:
        self.changes: dict[Key, Upsert | Delete] = {}
        self.gaps: list[Any] = []
        self.token: str | None = None
        self.stable_point = NEG_INF
        self._unfinished: list[Upsert | Delete] = []

    def add(self, delivery: Delivery[Upsert | Delete]) -> None:
        """Take a delivery; changes before its stable point wait for it."""
        self._unfinished += delivery.changes
        if delivery.token is None:
            return
        for change in self._unfinished:
            self.changes[key_of(change.key)] = change
        self._unfinished = []
        self.gaps += delivery.gaps
        self.token, self.stable_point = delivery.token, delivery.stable_point

    def take(self) -> Pending:
        """Remove and return everything up to the newest stable point."""
        taken = Pending()
        taken.changes, taken.gaps, taken.token, taken.stable_point = (
            self.changes,
            self.gaps,
            self.token,
            self.stable_point,
        )
        self.changes, self.gaps, self.token = {}, [], None
        return taken

    def __len__(self) -> int:
        return len(self.changes) + len(self._unfinished)


class PostgresSink:
    """``await PostgresSink(dsn, "flights", "flights").run(subscribe)``; ``stop()`` ends it after its transaction.

    ``table``: a name, or schema and name with a point between; it is made if it is not there. ``give_up_after_s``: how
    long the database may be away; None: without a limit. ``on_progress`` is called after each transaction.
    Raises UsageError, StaleIncarnation if another sink has taken over, Unavailable.
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        merge: str,
        *,
        give_up_after_s: float | None = None,
        on_progress: Callable[[SinkProgress], None] = ignore_progress,
    ) -> None:
        import_psycopg()
        self.merge = merge
        self.progress = SinkProgress(format_token(merge, NEG_INF))
        self.table = PgTable(dsn, table, merge)
        self._give_up_after_s = give_up_after_s
        self._on_progress = on_progress
        self._leftovers = Leftovers()
        self._pending = Pending()
        self._changed = asyncio.Event()  # there is something to commit, or the stream has ended
        self._room = asyncio.Event()
        self._subscriber: SinkSubscriber | None = None
        self._ended = self._stopped = False

    async def run(self, subscribe: Subscribe) -> SinkProgress:
        """Follow the merge until its stream is complete or ``stop`` is called. Returns what was done."""
        try:
            since = await self._open()
            if self._stopped:
                return self.progress
            token = None if since == NEG_INF else self.progress.token
            self._subscriber = subscriber = subscribe(token)
            envelope = Upserts(self.merge, since=since, epoch=lambda: subscriber.epoch or 0)
            reading = asyncio.create_task(self._read(subscriber, envelope))
            try:
                await self._write(subscriber)
            finally:
                subscriber.close()
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            if not reading.cancelled():
                reading.result()
            return self.progress
        finally:
            await self.table.close()

    def stop(self) -> None:
        """End after the running transaction; the next start goes on after it."""
        self._stopped = True
        if self._subscriber is not None:
            self._subscriber.close()
        self._changed.set()

    async def _open(self) -> int:
        """Take over the table; return the time to resume from."""

        async def take_over() -> None:
            self.progress.token, rows = await self.table.take_over()
            self._leftovers = Leftovers(rows, parse_token(self.progress.token, self.merge))

        await self._retry(take_over)
        return parse_token(self.progress.token, self.merge)

    async def _read(self, subscriber: SinkSubscriber, envelope: Upserts) -> None:
        try:
            async for delivery in deliveries(subscriber, envelope):
                self._pending.add(delivery)
                if delivery.token is not None:
                    self._changed.set()
                while len(self._pending) > PENDING_MAX and self._pending.token is not None:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._ended = True
            self._changed.set()

    async def _write(self, subscriber: SinkSubscriber) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._pending.token is not None and not self._stopped:
                pending = self._pending.take()
                self._room.set()
                await self._commit(pending, subscriber)
            elif self._ended or self._stopped:
                return
            if self._ended:
                self._changed.set()

    async def _commit(self, pending: Pending, subscriber: SinkSubscriber) -> None:
        is_unchanged = self._leftovers.is_unchanged
        changes = {key: change for key, change in pending.changes.items() if not is_unchanged(key, change)}
        deleted, ended = self._leftovers.settle(pending.stable_point, pending.gaps)
        upserts = [(key, change) for key, change in changes.items() if isinstance(change, Upsert)]
        deleted += [key for key, change in changes.items() if isinstance(change, Delete)]
        token = pending.token
        assert token is not None

        async def write() -> None:
            await self.table.write(token, subscriber.schema, upserts, deleted, ended, len(pending.gaps))

        await self._retry(write)
        progress = self.progress
        progress.token = token
        progress.written += len(upserts) + len(ended)
        progress.deleted += len(deleted)
        progress.steps += 1
        progress.gaps += pending.gaps
        self._on_progress(progress)

    async def _retry(self, attempt: Callable[[], Any]) -> None:
        """Try until the database is there. A commit without an answer is tried again: it changes nothing then."""
        loop = asyncio.get_running_loop()
        backoff, lost_s = Backoff(), loop.time()
        while True:
            try:
                await attempt()
                return
            except import_psycopg().Error as problem:
                await self.table.close()
                if not is_passing(problem):
                    raise refusal_of(problem, self.table.name) from None
                if self._stopped or (
                    self._give_up_after_s is not None and loop.time() - lost_s >= self._give_up_after_s
                ):
                    raise Unavailable(f"cannot write to table {self.table.name}: {str(problem).strip()}") from None
            await asyncio.sleep(backoff.next_s())
