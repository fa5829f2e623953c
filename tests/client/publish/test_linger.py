"""The number of messages that a publisher makes of a steady stream, in virtual time: fewer where each takes long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from lmerge.client.publish.publisher import AsyncPublisher
from lmerge.testing.sim.loop import later, run_virtual
from lmerge.wire.generated import lmerge_pb2 as pb

ELEMENTS = 1_000  # one every millisecond


class SlowCall:
    """A call of Publish to a server that accepts everything, over a transport that takes ``write_s`` for a message."""

    def __init__(self, write_s: float) -> None:
        self.batches = 0
        self.written_s: list[float] = []  # when each batch began to be written
        self._write_s = write_s
        self._answers: asyncio.Queue[Any] = asyncio.Queue()

    async def write(self, data: bytes) -> None:
        kind = pb.PublishRequest.FromString(data).WhichOneof("message")
        if kind == "attach":
            accepted = pb.PublishResponse.Accepted(incarnation=1, algorithm="r4")
            self._answers.put_nowait(pb.PublishResponse(accepted=accepted))
        elif kind == "leave":
            self._answers.put_nowait(pb.PublishResponse(ack=pb.PublishResponse.Ack(sequence=self.batches)))
        else:
            self.batches += 1
            self.written_s.append(asyncio.get_running_loop().time())
            await later(self._write_s)

    async def read(self) -> Any:
        return await self._answers.get()

    async def done_writing(self) -> None:
        self._answers.put_nowait(grpc.aio.EOF)

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK

    async def details(self) -> str:
        return ""

    def cancel(self) -> None:
        """Do nothing: there is nothing to end."""


class Slow:
    """A connector that returns ``SlowCall``."""

    def __init__(self, write_s: float) -> None:
        self.call = SlowCall(write_s)

    @asynccontextmanager
    async def channel(self, target: str) -> AsyncIterator[Any]:
        yield self

    def stream_stream(self, *_: Any, **__: Any) -> Any:
        return lambda: self.call


async def messages(write_s: float) -> int:
    connector = Slow(write_s)
    async with AsyncPublisher("h:1", "flights", "a", security=connector) as publisher:
        for at in range(ELEMENTS):
            await publisher.insert(b"%d" % at, at, at + 10)
            await later(0.001)
    return connector.call.batches


@pytest.mark.parametrize(("write_s", "apart_ms"), [(0.0, 2), (0.001, 3), (0.003, 6), (0.050, 60)])
def test_messages_are_rarer_where_each_takes_long(write_s: float, apart_ms: int) -> None:
    """Each is apart from the next by the linger, at most ten milliseconds, and by what writing takes."""
    assert run_virtual(messages(write_s)) == pytest.approx(ELEMENTS / apart_ms, rel=0.15)


async def delays(pause_s: float) -> list[float]:
    """Return how long each of some elements, ``pause_s`` apart, waits until it is written."""
    connector = Slow(0.0)
    published_s = []
    async with AsyncPublisher("h:1", "flights", "a", security=connector) as publisher:
        for at in range(5):
            await later(pause_s)
            published_s.append(asyncio.get_running_loop().time())
            await publisher.insert(b"%d" % at, at, at + 10)
        await later(pause_s)
    return [written - published for written, published in zip(connector.call.written_s[-5:], published_s, strict=True)]


def test_what_comes_after_a_pause_is_sent_at_once() -> None:
    assert run_virtual(delays(0.5)) == pytest.approx([0.0] * 5, abs=1e-6)
