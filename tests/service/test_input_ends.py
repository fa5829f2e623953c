"""Every end of an input is logged once and counted once, under the label of its cause, whatever ended it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from service_world import MERGE, RawPublisher, World, ins, stable

from lmerge.client import AsyncPublisher
from lmerge.errors import StaleIncarnation
from lmerge.wire.generated import lmerge_pb2 as pb

pytestmark = pytest.mark.usefixtures("engine")

ROWS = pb.Schema(columns=[pb.Schema.Column(name="id", type="int")])
Ends = Callable[[World, RawPublisher], Awaitable[object]]


async def leaves(_world: World, a: RawPublisher) -> None:
    await a.leave()


async def loses_its_connection(world: World, a: RawPublisher) -> None:
    a.call.cancel()
    await world.described(lambda merge: len(merge.inputs) == 1)


async def is_replaced(world: World, a: RawPublisher) -> None:
    newer = await world.publisher("a", incarnation=7)
    await a.ending()
    await newer.merged(ins("y", 5, 9))


async def breaks_a_promise(_world: World, a: RawPublisher) -> None:
    await a.send(ins("bad", 9, 8))
    await a.ending()


async def breaks_its_stable(_world: World, a: RawPublisher) -> None:
    await a.send(stable(10), ins("late", 1, 2))
    await a.ending()


async def breaks_the_protocol(_world: World, a: RawPublisher) -> None:
    await a.write(attach=pb.Attach(merge=MERGE, replica="a"))
    await a.ending()


async def delivers_no_rows(_world: World, a: RawPublisher) -> None:
    await a.send(ins("no row", 1, 2))
    await a.ending()


async def is_detached(world: World, a: RawPublisher) -> None:
    await world.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="a", reason="maintenance"))
    await a.ending()


async def is_quarantined(world: World, a: RawPublisher) -> None:
    await world.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="a", quarantine=True))
    await a.ending()


@pytest.mark.parametrize("divergence", ["none", "majority"])
@pytest.mark.parametrize(
    ("end", "label"),
    [
        (leaves, "left"),
        (loses_its_connection, "connection-ended"),
        (is_replaced, "replaced"),
        (breaks_a_promise, "end-before-start"),
        (breaks_its_stable, "insert-below-stable"),
        (breaks_the_protocol, "refused"),
        (delivers_no_rows, "invalid-row"),
        (is_detached, "detached"),
        (is_quarantined, "quarantined"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_an_end_is_logged_once_and_counted_once_by_its_cause(
    end: Ends, label: str, divergence: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lmerge.service")
    schema = ROWS if end is delivers_no_rows else None
    async with World(divergence=divergence) as world:
        a, _ = await world.publisher("a", schema=schema), await world.publisher("b")
        await end(world, a)
        described = await world.describe()
        ends: list[dict[str, Any]] = [
            vars(record)["fields"] for record in caplog.records if getattr(record, "event", "") == "input detached"
        ]
        assert [fields["input"] for fields in ends] == ["a"]
        assert world.server._registry.get(MERGE).state.detached_counts == {label: 1}
        (gone,) = described.detached
        assert (gone.replica, gone.reason) == ("a", ends[0]["reason"])


async def test_the_reason_of_an_end_is_a_message_and_the_call_waits_until_it_was_read() -> None:
    async with World() as world:
        a = await world.publisher("a")
        await world.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="a", reason="maintenance"))
        for time in range(50):  # what a publisher writes meanwhile is dropped
            await a.send(ins("x", time, time + 1))
        while (message := await a.call.read()).WhichOneof("message") != "detached":
            pass
        assert message.detached.status == grpc.StatusCode.ABORTED.value[0]
        assert "maintenance" in message.detached.message
        await a.send(ins("x", 50, 51))
        assert not a.call.done()
        assert (await world.describe()).inputs == []
        await a.call.done_writing()
        ended = await a.ending()
        assert (ended.code, ended.details) == (grpc.StatusCode.ABORTED, message.detached.message)


async def test_a_publisher_that_does_not_close_its_side_is_not_waited_for_for_ever() -> None:
    async with World(end_read_timeout_s=0.05) as world:
        a = await world.publisher("a")
        await world.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="a"))
        while (await a.call.read()).WhichOneof("message") != "detached":
            pass
        assert await a.call.code() is grpc.StatusCode.ABORTED


async def insert_for_ever(publisher: AsyncPublisher) -> None:
    for time in itertools.count():
        await publisher.insert("x", time, time + 1)
        await asyncio.sleep(0)


async def test_a_detached_publisher_that_writes_all_the_time_never_comes_back() -> None:
    async with World() as world:
        for _ in range(30):
            a = await AsyncPublisher(f"127.0.0.1:{world.server.port}", MERGE, "a", properties=["key"]).open()
            detach = asyncio.ensure_future(
                world.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="a", reason="maintenance"))
            )
            with pytest.raises(StaleIncarnation, match="maintenance"):
                await insert_for_ever(a)
            await detach
            assert a.reconnects == 0
            await a.abort()
