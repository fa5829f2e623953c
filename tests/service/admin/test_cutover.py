"""Cutover and the admin commands, with publishers of the client library: done or rolled back, unseen by readers."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from service_world import MERGE, World, ins, stable

from lmerge.client import AsyncPublisher
from lmerge.core.elements import INF, Event
from lmerge.errors import PermissionDenied, StaleIncarnation
from lmerge.wire.generated import lmerge_pb2 as pb

pytestmark = pytest.mark.usefixtures("transport")

INTERVAL = 10


def world(policy: str = "alarm", **more: Any) -> World:
    return World(divergence=policy, certify_interval=INTERVAL, stable_ack_interval_s=0.01, **more)


async def replica(w: World, name: str, **options: Any) -> AsyncPublisher:
    return await AsyncPublisher(f"127.0.0.1:{w.server.port}", MERGE, name, properties=["key"], **options).open()


def interval_events(start: int, payload: str = "A") -> list[Event]:
    return [Event(start, payload.encode(), start + 5), Event(start + 1, b"L", start + 25)]


async def publish_interval(publisher: AsyncPublisher, start: int, payload: str = "A") -> None:
    """Publish one interval of the stream, and the stable that completes it."""
    for vs, name, ve in interval_events(start, payload):
        await publisher.insert(name, vs, ve)
    await publisher.stable(start + 10)
    await publisher.flush()


class WatchedCutover:
    """A call of Cutover, read in the background."""

    def __init__(
        self,
        w: World,
        *,
        leaves: str = "v1",
        to: str = "v2",
        intervals: int = 2,
        timeout_s: float = 60.0,
        keeps: bool = False,
    ) -> None:
        request = pb.CutoverRequest(merge=MERGE, to=to, intervals=intervals, timeout_seconds=timeout_s, keep_from=keeps)
        setattr(request, "from", leaves)
        self.call = w.stub.Cutover(request)
        self.stages: list[str] = []
        self.texts: list[str] = []

    async def until(self, stage: str) -> None:
        while stage not in self.stages:
            await self._read()

    async def end(self) -> str:
        while await self._read():
            pass
        return self.stages[-1]

    async def _read(self) -> bool:
        progress: Any = await self.call.read()
        if progress is grpc.aio.EOF:
            return False
        self.stages.append(progress.stage)
        self.texts.append(progress.words)
        return True


@pytest.mark.parametrize("policy", ["alarm", "quarantine", "majority", "hold"])
async def test_an_observer_takes_over_and_the_subscriber_sees_neither_gap_nor_duplicate(policy: str) -> None:
    async with world(policy) as w:
        v1 = await replica(w, "v1")
        reader = await w.subscriber()
        await publish_interval(v1, 0)
        v2 = await replica(w, "v2", role="observe")
        cutover = WatchedCutover(w, intervals=3)
        await cutover.until("joined")
        await publish_interval(v2, 0)
        ended, at = asyncio.ensure_future(cutover.end()), 10
        while not ended.done():
            await _goes_on(v1, v2, at)
            at += 10
        assert ended.result() == "done"
        assert list(dict.fromkeys(cutover.stages)) == [
            "waiting",
            "joined",
            "certifying",
            "promoting",
            "leaving",
            "done",
        ]
        with pytest.raises(PermissionDenied, match="v2 has taken its place"):
            await publish_interval(v1, at)
        described = await w.describe()
        assert [(i.replica, i.role) for i in described.inputs] == [("v2", pb.ROLE_ACTIVE)]
        assert (await w.refused("v1")).code is grpc.StatusCode.PERMISSION_DENIED
        await publish_interval(v2, at)
        await v2.stable(INF)
        await v2.close()
        events = [event for start in range(0, at + 10, 10) for event in interval_events(start)]
        assert await reader.until_stable(INF) == sorted(events)


async def test_the_old_replica_can_be_kept_beside_the_new_one() -> None:
    async with world() as w:
        v1, v2 = await replica(w, "v1"), await replica(w, "v2", role="observe")
        for start in (0, 10):
            await publish_interval(v1, start)
            await publish_interval(v2, start)
        cutover = WatchedCutover(w, keeps=True)
        ended, at = asyncio.ensure_future(cutover.end()), 20
        while not ended.done():
            await _goes_on(v1, v2, at)
            at += 10
        assert ended.result() == "promoted"
        assert "leaving" not in cutover.stages
        described = await w.describe()
        assert {i.replica: i.role for i in described.inputs} == {"v1": pb.ROLE_ACTIVE, "v2": pb.ROLE_ACTIVE}
        await v1.close()
        await v2.close()


async def _goes_on(v1: AsyncPublisher, v2: AsyncPublisher, start: int) -> None:
    for publisher in (v1, v2):
        try:
            await publish_interval(publisher, start)
        except PermissionDenied:
            assert publisher is v1


async def test_a_difference_rolls_back_and_nothing_has_changed() -> None:
    async with world() as w:
        v1, v2 = await replica(w, "v1"), await replica(w, "v2", role="observe")
        cutover = WatchedCutover(w, intervals=3)
        await cutover.until("joined")
        await publish_interval(v1, 0)
        await publish_interval(v2, 0)
        await publish_interval(v1, 10)
        await publish_interval(v2, 10, "other")
        assert await cutover.end() == "rolled-back"
        assert "promoting" not in cutover.stages
        assert "v2 and v1 differ in [10, 20): A [10, 15)" in cutover.texts[-1]
        described = await w.describe()
        assert {i.replica: i.role for i in described.inputs} == {"v1": pb.ROLE_ACTIVE, "v2": pb.ROLE_OBSERVE}
        for publisher in (v1, v2):
            await publisher.close()


async def test_a_difference_from_before_the_cutover_only_starts_the_count_again() -> None:
    async with world() as w:
        v1, v2 = await replica(w, "v1"), await replica(w, "v2")
        for start, payload in ((0, "other"), (10, "A"), (20, "A")):
            await publish_interval(v1, start)
            await publish_interval(v2, start, payload)
        cutover = WatchedCutover(w, intervals=2)
        assert await cutover.end() == "done"
        assert "promoting" not in cutover.stages
        await v1.abort()
        await v2.close()


async def test_the_time_out_rolls_back() -> None:
    async with world() as w:
        v1 = await replica(w, "v1")
        cutover = WatchedCutover(w, timeout_s=0.05)
        assert await cutover.end() == "rolled-back"
        assert cutover.texts[-1] == "not done within 0.05 s; nothing has changed"
        await publish_interval(v1, 0)
        await v1.close()


@pytest.mark.parametrize("lost", ["v1", "v2"])
async def test_the_loss_of_either_rolls_back(lost: str) -> None:
    async with world() as w:
        publishers = {"v1": await replica(w, "v1"), "v2": await replica(w, "v2", role="observe")}
        cutover = WatchedCutover(w)
        await cutover.until("certifying")
        await publishers.pop(lost).close()
        assert await cutover.end() == "rolled-back"
        assert f"{lost} has gone" in cutover.texts[-1]
        await publishers.popitem()[1].close()


async def test_a_promotion_that_does_not_end_in_time_is_taken_back() -> None:
    async with world() as w:
        v1 = await replica(w, "v1")
        bare = await w.publisher("v2", role=pb.ROLE_OBSERVE)  # it ignores the request, and stays an observer
        cutover = WatchedCutover(w, intervals=1, timeout_s=0.5)
        await cutover.until("joined")
        await publish_interval(v1, 0)
        for vs, payload, ve in interval_events(0):
            await bare.send(ins(payload, vs, ve))
        await bare.send(stable(10))
        assert await cutover.end() == "rolled-back"
        assert cutover.stages[-2] == "promoting"
        roles: list[Any] = []
        while len(roles) < 2:
            message = await bare.call.read()
            if message.WhichOneof("message") == "change_role":
                roles.append(message.change_role.role)
        assert roles == [pb.ROLE_ACTIVE, pb.ROLE_OBSERVE]
        await publish_interval(v1, 10)
        await v1.close()


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        ({"from": "v1", "to": "v1"}, grpc.StatusCode.INVALID_ARGUMENT, "to itself changes nothing"),
        ({"from": "nobody", "to": "v1"}, grpc.StatusCode.NOT_FOUND, "cannot cut merge 'flights' over from 'nobody'"),
        ({"from": "v1", "to": "v2", "timeout_seconds": -1.0}, grpc.StatusCode.INVALID_ARGUMENT, "above 0, not -1.0"),
        ({"from": "v1", "to": "v2", "merge": "none"}, grpc.StatusCode.NOT_FOUND, "there is no merge 'none'"),
    ],
)
async def test_a_cutover_that_makes_no_sense_is_refused(
    request_: dict[str, Any], code: grpc.StatusCode, message: str
) -> None:
    async with world() as w:
        v1 = await replica(w, "v1")
        call = w.stub.Cutover(pb.CutoverRequest(**({"merge": MERGE} | request_)))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is code
        assert message in (refused.value.details() or "")
        await v1.close()


async def test_one_cutover_at_a_time() -> None:
    async with world() as w:
        v1 = await replica(w, "v1")
        first = WatchedCutover(w)
        await first.until("waiting")
        with pytest.raises(grpc.aio.AioRpcError, match="being cut over to 'v2' already"):
            await WatchedCutover(w).end()
        first.call.cancel()
        hub = w.server._registry.get(MERGE)
        while hub.state.certifier.cutover_to:  # a cancelled call ends its cutover
            await w.describe()
        assert await WatchedCutover(w, timeout_s=0.05).end() == "rolled-back"
        await v1.close()


async def test_a_detached_publisher_fails_for_good_and_a_new_process_may_come() -> None:
    async with world() as w:
        v1 = await replica(w, "v1")
        await w.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="v1", reason="maintenance"))
        with pytest.raises(StaleIncarnation, match="maintenance; a new process may take its place"):
            await publish_interval(v1, 0)
        again = await replica(w, "v1")
        await publish_interval(again, 0)
        await again.close()


async def test_a_name_can_be_quarantined_before_it_comes() -> None:
    async with world() as w:
        v1 = await replica(w, "v1")
        detach = pb.DetachInputRequest(merge=MERGE, replica="v9", quarantine=True, reason="an old build")
        await w.stub.DetachInput(detach)
        assert "an old build" in (await w.refused("v9")).details
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await w.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="v9"))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await w.stub.ReleaseInput(pb.ReleaseInputRequest(merge=MERGE, replica="v1"))
        assert refused.value.details() == "input 'v1' of merge 'flights' cannot be released: it is not quarantined"
        await v1.close()


async def test_a_reason_that_is_a_document_is_refused() -> None:
    async with world() as w:
        v1 = await replica(w, "v1")
        for reason in ("x" * 1001, "two\nlines"):
            with pytest.raises(grpc.aio.AioRpcError, match="must be printable and have at most 1000 bytes"):
                await w.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="v1", reason=reason))
        await v1.close()
