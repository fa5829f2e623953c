"""Hostile clients of every kind beside good ones: nothing is lost, nothing comes twice, and the log stays bounded.

The short run is a part of the suite; ``test_half_a_million_hostile_messages`` runs with the long tests, and
``LMERGE_HOSTILE_MESSAGES`` sets how many it sends.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from random import Random
from time import monotonic

import grpc
import pytest
from hostile_world import GOOD_MERGE, NEVER, HostileCalls

from lmerge import AsyncPublisher, AsyncSubscriber
from lmerge.core.elements import INF, NEG_INF
from lmerge.service.server import Server
from lmerge.service.settings import Settings
from lmerge.wire.token import format_token

pytestmark = pytest.mark.usefixtures("transport")

CLIENTS = 3
RUN_S_MAX = 3600.0


class LogLines(logging.Handler):
    """Collects all log records, of every logger."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def check(self, starts: int, elapsed_s: float, attaches: int, settings: Settings) -> None:
        """Check that there is no traceback, and that the number of lines is bounded."""
        for record in self.records:
            assert record.exc_info is None, logging.Formatter().format(record)
            assert record.name.startswith("lmerge"), logging.Formatter().format(record)
            assert "\x1b" not in record.getMessage()
        refused = [record for record in self.records if getattr(record, "event", "") == "call refused"]
        assert len(refused) <= starts * settings.refusal_burst + elapsed_s * settings.refusal_rate_per_s + 1
        # An accepted input has one line for its start and one for its end; a merge has one or two when it begins.
        assert len(self.records) <= len(refused) + 6 * attaches + 20 * starts + elapsed_s


class HostileRun:
    """A server with a store, restarted again and again, with good clients and hostile ones."""

    def __init__(self, seed: int, messages: int, folder: Path) -> None:
        self.random = Random(seed)
        self.messages = messages
        self.settings = Settings(
            http_port=None,
            store=str(folder / "store"),
            store_sync="normal",
            attach_rate_per_s=1e6,
            attach_burst=10**6,
            peer_attach_rate_per_s=1e6,
            peer_attach_burst=10**6,
            connections_per_peer=10**4,
            open_calls_per_peer=10**4,
        )
        self.hostile = [HostileCalls(seed * CLIENTS + at) for at in range(CLIENTS)]
        self.starts = self.attached = 0
        self.faults: list[str] = []
        self.done = asyncio.Event()
        self.all_read = asyncio.Event()

    async def run(self) -> None:
        """Run it. Raises AssertionError."""
        lines = LogLines()
        logging.getLogger().addHandler(lines)
        began_s = monotonic()
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._start()
            work = [self._publish(), self._read(), self._supervise(), *map(self._attack, self.hostile)]
            tasks += map(asyncio.create_task, work)
            await asyncio.gather(*tasks)
            lines.check(self.starts, monotonic() - began_s, self._attaches(lines), self.settings)
            assert self.faults == []
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            logging.getLogger().removeHandler(lines)
            await self.server.stop(1.0)

    @staticmethod
    def _attaches(lines: LogLines) -> int:
        return sum(getattr(record, "event", "") == "input attached" for record in lines.records)

    async def _start(self) -> None:
        self.starts += 1
        self.server = Server(self.settings)
        await self.server.start()
        if not self.settings.port:  # the restarted server uses the same port
            self.settings = Settings(**{**vars(self.settings), "port": self.server.port})
            self.target = f"127.0.0.1:{self.server.port}"

    async def _supervise(self) -> None:
        """Restart the server after each share of the messages, and whenever a call of Drain has stopped it."""
        every = max(300, self.messages // 4)
        due = every
        while not self.all_read.is_set():
            ended = asyncio.ensure_future(self.server.wait_closed())
            await asyncio.wait([ended], timeout=0.05)
            is_due = sum(one.sent for one in self.hostile) >= due
            if ended.done() or is_due:
                due += every if is_due else 0
                await self.server.stop(0.2)
                await ended
                await self._start()
            ended.cancel()

    async def _attack(self, hostile: HostileCalls) -> None:
        channel = grpc.aio.insecure_channel(self.target, options=[("grpc.use_local_subchannel_pool", 1)])
        try:
            while hostile.sent < self.messages // CLIENTS:
                with suppress(asyncio.TimeoutError):  # the call waits for a merge, or watches: it is cancelled
                    code = await asyncio.wait_for(hostile.call(channel), 1.0)
                    if code in NEVER:
                        self.faults.append(f"{code} of {hostile.last}")
        finally:
            await channel.close()
        if all(one.sent >= self.messages // CLIENTS for one in self.hostile):
            self.done.set()

    async def _publish(self) -> None:
        """Publish one event after another until the attack is over, then the end of the stream."""
        publisher = await AsyncPublisher(self.target, GOOD_MERGE, "a", properties=["key"]).open()
        self.published = 0
        while not self.done.is_set():
            await publisher.insert(b"%d" % self.published, self.published, self.published + 3)
            await publisher.stable(self.published)
            self.published += 1
            await asyncio.wait([asyncio.ensure_future(self.done.wait())], timeout=0.005)
        await publisher.stable(INF)
        await publisher.flush()
        await publisher.close()

    async def _read(self) -> None:
        subscriber = AsyncSubscriber(self.target, GOOD_MERGE, resume=format_token(GOOD_MERGE, NEG_INF))
        read = [int(event.payload) async for delivery in subscriber.final() for event in delivery.changes]
        self.all_read.set()
        assert read == list(range(self.published))
        assert subscriber.gaps == []
        assert subscriber.schema is None, "a schema of another client"


@pytest.mark.parametrize("seed", range(2))
async def test_hostile_clients_harm_only_themselves(seed: int, tmp_path: Path) -> None:
    await HostileRun(seed, 1_500, tmp_path).run()


@pytest.mark.long
@pytest.mark.timeout(RUN_S_MAX)
def test_half_a_million_hostile_messages(tmp_path: Path) -> None:
    messages = int(os.environ.get("LMERGE_HOSTILE_MESSAGES", "500000"))
    each = 25_000  # messages of one seed, so that a store and a stream stay small

    async def runs() -> None:  # in one loop: gRPC's poller may still have events for an earlier loop
        for seed in range(100, 100 + max(1, messages // each)):
            folder = tmp_path / str(seed)
            folder.mkdir()
            await asyncio.wait_for(HostileRun(seed, min(messages, each), folder).run(), RUN_S_MAX)

    asyncio.run(runs())
