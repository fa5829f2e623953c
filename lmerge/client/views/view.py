"""A live view of a merge: its TDB as a table, always as of one stable point, queried in SQL or returned as Arrow.

    with lmerge.view("flights") as flights:
        flights.wait_until(1357023600000000)
        print(flights.sql("select carrier, avg(delay) from flights group by 1"))

The view follows the merge in the background. A query sees every element up to the stable point ``at`` and none
after it. Columns: those of the schema (without one, ``payload``), ``vs``, ``ve`` and ``is_final``. In SQL the table
has two names: the merge's name and ``events``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from lmerge.addresses import DEFAULT_SERVER
from lmerge.client.connection.background import background_loop, run_blocking
from lmerge.client.extras import extra
from lmerge.client.subscribe.envelopes import AnySubscriber
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.client.subscribe.subscriber import AsyncSubscriber
from lmerge.client.views.view_table import ViewTable
from lmerge.core.elements import NEG_INF, show_time
from lmerge.errors import Unavailable, UsageError
from lmerge.time_limit import time_limit

# The most ended events that are kept, whatever ``keep`` is: some 300 MB with payloads of 100 bytes.
KEEP_EVENTS_MAX: Final = 1_000_000


def import_duckdb() -> Any:
    """Import duckdb. Raises UsageError, naming the extra, if it is not installed."""
    return extra("duckdb", "sql", "SQL on a view needs")


class AsyncView:
    """``async with AsyncView(subscriber) as view``; see ``View`` for the rest. Queries compute, they do not wait."""

    def __init__(self, subscriber: AsyncSubscriber, *, keep: int = 0, keep_events_max: int = KEEP_EVENTS_MAX) -> None:
        if keep < 0 or keep_events_max < 0:
            raise UsageError("what a view keeps of the past cannot be negative")
        self.subscriber = subscriber
        self.merge = subscriber.merge
        self._table = ViewTable(keep, keep_events_max)
        self._moved = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._problem: BaseException | None = None
        self._ended = False

    @property
    def at(self) -> int:
        """The stable point as of which a query answers."""
        return self._table.at

    @property
    def gaps(self) -> list[SubscriptionGap]:
        """Stretches of time in which events may be missing."""
        return self.subscriber.gaps

    def arrow(self) -> Any:
        """Return the table, as a ``pyarrow.Table`` ordered by vs. Raises what ended the view, or InvalidRow."""
        return self.snapshot()[1]

    def snapshot(self) -> tuple[int, Any]:
        """Return the stable point and the table as of it."""
        if self._problem is not None:
            raise self._problem
        return self._table.table(self.subscriber.schema)

    def sql(self, query: str, parameters: Sequence[Any] | None = None) -> Any:
        """Return DuckDB's answer, as a ``pyarrow.Table``. Raises UsageError if DuckDB refuses the query."""
        duckdb = import_duckdb()
        table = self.arrow()
        connection = duckdb.connect(config={"python_enable_replacements": "false"})  # variables of Python are no tables
        try:
            for name in dict.fromkeys((self.merge, "events")):
                connection.register(name, table)
            result = connection.sql(query, params=parameters)
            if result is None:
                raise UsageError(f"the query {query!r:.200} has no rows to answer with")
            return result.to_arrow_table()
        except duckdb.Error as problem:
            raise UsageError(f"the query {query!r:.200} cannot be answered: {problem}") from None
        finally:
            connection.close()

    async def wait_until(self, t: int, *, timeout_s: float | None = None) -> int:
        """Return ``at`` once it is ``t`` or later. Raises Unavailable after ``timeout_s``, or what ended the view."""

        async def reached() -> None:
            async with self._moved:
                await self._moved.wait_for(lambda: self.at >= t or self._ended)

        try:
            async with time_limit(timeout_s):
                await reached()
        except asyncio.TimeoutError:
            raise Unavailable(
                f"the view of {self.merge!r} is at {show_time(self.at)}, not at {show_time(t)}, after {timeout_s:g} s"
            ) from None
        if self._problem is not None:
            raise self._problem
        if self.at < t:
            raise Unavailable(f"the view of {self.merge!r} was closed at {show_time(self.at)}, before {show_time(t)}")
        return self.at

    def start(self) -> None:
        """Begin to follow."""
        if self._task is None:
            self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Stop following. The table stays as it is and can still be queried."""
        self.subscriber.close()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task

    async def __aenter__(self) -> AsyncView:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _follow(self) -> None:
        subscriber: AnySubscriber = self.subscriber
        try:
            async for batch in subscriber.batches():
                if self._table.take(batch):
                    async with self._moved:
                        self._moved.notify_all()
        except Exception as problem:  # raised by the next query
            self._problem = problem
        finally:
            self._ended = True
            async with self._moved:
                self._moved.notify_all()


class View:
    """A view for code without asyncio; ``lmerge.view`` makes one. Several threads may query it.

    ``keep``: how long events stay after their end, in units of time; 0: until they are final. ``options`` are those of
    ``AsyncSubscriber``.
    """

    def __init__(
        self,
        merge: str,
        target: str = DEFAULT_SERVER,
        *,
        keep: int = 0,
        keep_events_max: int = KEEP_EVENTS_MAX,
        **options: Any,
    ) -> None:
        self._loop = background_loop()

        async def make() -> AsyncView:
            subscriber = AsyncSubscriber(target, merge, **{"name": "view", **options})
            view = AsyncView(subscriber, keep=keep, keep_events_max=keep_events_max)
            view.start()
            return view

        self._async = run_blocking(make(), self._loop)
        self.merge = merge

    @property
    def at(self) -> int:
        """The stable point as of which a query would answer now."""
        return self._async.at

    @property
    def gaps(self) -> list[SubscriptionGap]:
        """Stretches of time in which events may be missing."""
        return self._async.gaps

    def wait_until(self, t: int = NEG_INF + 1, *, timeout_s: float | None = None) -> int:
        """Return ``at`` once it is ``t`` or later; without ``t``, once there is a stable point at all.

        Raises Unavailable after ``timeout_s``, or what ended the view.
        """
        return run_blocking(self._async.wait_until(t, timeout_s=timeout_s), self._loop)

    def arrow(self) -> Any:
        """Return the table, as a ``pyarrow.Table`` ordered by vs."""
        return self._async.arrow()

    def snapshot(self) -> tuple[int, Any]:
        """Return the stable point and the table as of it."""
        return self._async.snapshot()

    def sql(self, query: str, parameters: Sequence[Any] | None = None) -> Any:
        """Return DuckDB's answer, as a ``pyarrow.Table``. ``?`` in the query stand for ``parameters``."""
        return self._async.sql(query, parameters)

    def close(self) -> None:
        """Stop following. The table stays as it is and can still be queried."""
        run_blocking(self._async.close(), self._loop)

    def __enter__(self) -> View:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def view(merge: str, target: str = DEFAULT_SERVER, **options: Any) -> View:
    """Return a live view of a merge; see ``View``."""
    return View(merge, target, **options)
