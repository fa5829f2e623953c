"""An input is promoted and demoted by a call: it attaches again in the other role, and the output follows."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from service_world import MERGE, World

from lmerge.client import AsyncPublisher
from lmerge.client.admin import change_role
from lmerge.errors import StaleIncarnation, UnknownMerge, UsageError
from lmerge.wire.generated import lmerge_pb2 as pb

INTERVAL = 10


def world() -> World:
    return World(divergence="alarm", certify_interval=INTERVAL, stable_ack_interval_s=0.01)


async def replica(w: World, name: str, role: str = "active") -> AsyncPublisher:
    target = f"127.0.0.1:{w.server.port}"
    return await AsyncPublisher(target, MERGE, name, properties=["key"], role=role).open()


async def publish_interval(publisher: AsyncPublisher, start: int, payload: str = "A") -> None:
    await publisher.insert(payload, start, start + 5)
    await publisher.insert("L", start + 1, start + 25)
    await publisher.stable(start + INTERVAL)
    await publisher.flush()


async def asked(w: World, name: str, role: str, **more: Any) -> bool:
    return await asyncio.to_thread(change_role, f"127.0.0.1:{w.server.port}", MERGE, name, role, **more)


async def described(w: World, name: str) -> Any:
    answer = await w.stub.DescribeMerge(pb.DescribeMergeRequest(merge=MERGE))
    return next((found for found in answer.inputs if found.replica == name), None)


async def until(w: World, name: str, state: str) -> Any:
    while True:
        found = await described(w, name)
        if found is not None and found.state == state:
            return found
        await asyncio.sleep(0.001)


async def test_a_promoted_observer_counts_and_carries_the_output_alone(engine: str) -> None:
    async with world() as w:
        v1, v2 = await replica(w, "v1"), await replica(w, "v2", "observe")
        for start in (0, 10):
            await publish_interval(v1, start)
            await publish_interval(v2, start)
        before = await until(w, "v2", "observing")
        assert await asked(w, "v2", "active", incarnation=before.incarnation)
        after = await until(w, "v2", "joined")
        assert after.incarnation > before.incarnation
        assert v2.role == "active"
        await v1.close()
        await publish_interval(v2, 20)
        answer = await w.stub.DescribeMerge(pb.DescribeMergeRequest(merge=MERGE))
        assert answer.summary.stable_point == 30
        await v2.close()


async def test_a_demoted_input_contributes_nothing_and_is_compared(engine: str) -> None:
    async with world() as w:
        v1, v2 = await replica(w, "v1"), await replica(w, "v2")
        for publisher in (v1, v2):
            await publish_interval(publisher, 0)
        assert await asked(w, "v2", "observe")
        await until(w, "v2", "observing")
        await publish_interval(v2, 10, "B")
        assert (await w.stub.DescribeMerge(pb.DescribeMergeRequest(merge=MERGE))).summary.stable_point == 10
        await publish_interval(v1, 10)
        assert (await described(w, "v2")).incarnation_unequal_intervals == 1
        assert await asked(w, "v2", "active")
        await until(w, "v2", "joined")
        for publisher in (v1, v2):
            await publisher.close()


async def test_equal_and_unequal_intervals_are_those_of_the_incarnation() -> None:
    async with world() as w:
        v1, v2 = await replica(w, "v1"), await replica(w, "v2", "observe")
        for start, payload in ((0, "B"), (10, "A"), (20, "A")):
            await publish_interval(v1, start)
            await publish_interval(v2, start, payload)
        found = await described(w, "v2")
        assert (found.incarnation_equal_intervals, found.incarnation_unequal_intervals) == (2, 1)
        await asked(w, "v2", "active")
        found = await until(w, "v2", "joined")
        assert (found.incarnation_equal_intervals, found.incarnation_unequal_intervals) == (0, 0)
        assert found.equal_intervals >= 2, "those of the name go on"
        for publisher in (v1, v2):
            await publisher.close()


async def test_a_role_that_the_input_has_is_not_asked_for() -> None:
    async with world() as w:
        v1 = await replica(w, "v1")
        incarnation = (await described(w, "v1")).incarnation
        assert not await asked(w, "v1", "active")
        await publish_interval(v1, 0)
        assert (await described(w, "v1")).incarnation == incarnation
        await v1.close()


async def test_another_incarnation_is_left_as_it_is() -> None:
    async with world() as w:
        v1 = await replica(w, "v1", "observe")
        incarnation = (await described(w, "v1")).incarnation
        with pytest.raises(StaleIncarnation, match=f"incarnation {incarnation} is attached, not {incarnation + 1}"):
            await asked(w, "v1", "active", incarnation=incarnation + 1)
        assert (await described(w, "v1")).state == "observing"
        await v1.close()


async def test_what_makes_no_sense_is_refused() -> None:
    async with world() as w:
        v1 = await replica(w, "v1")
        with pytest.raises(UnknownMerge, match="'v9' of merge 'flights' cannot be changed: it is not attached"):
            await asked(w, "v9", "active")
        with pytest.raises(UsageError, match="unknown role 'boss'"):
            await asked(w, "v1", "boss")
        with pytest.raises(grpc.RpcError) as refused:
            await w.stub.ChangeRole(pb.ChangeRoleRequest(merge=MERGE, replica="v1"))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await v1.close()
