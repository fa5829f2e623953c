"""A reset mends a spoiled merge: a new epoch, empty, durable, and reported to all clients by a named error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from secure_world import SecureWorld
from service_world import MERGE, World, ins, stable

from lmerge import AsyncPublisher, AsyncSubscriber, clock
from lmerge.client.admin import reset_merge
from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import MergeReset
from lmerge.service.output.store import Store
from lmerge.service.output.transaction import Changes
from lmerge.service.settings import Settings
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import DEFAULT_LIMITS
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema
from lmerge.wire.token import ERROR_KEY, MERGE_RESET, format_token, read_token

pytestmark = pytest.mark.usefixtures("engine")
STORES = ["memory", "durable"]
GOOD = pb.Schema(columns=[pb.Schema.Column(name="carrier", type="string")])
FAR = 10**12


def row(carrier: str) -> bytes:
    """A payload by the schema GOOD."""
    return RowCodec(Schema.from_message(GOOD)).encode({"carrier": carrier})


def settings_of(kind: str, folder: Path) -> dict[str, Any]:
    return {"store": str(folder / "store")} if kind == "durable" else {}


async def reset(world: World, merge: str = MERGE, epoch: int = 0, reason: str = "") -> int:
    asked = pb.ResetMergeRequest(merge=merge, epoch=epoch, reason=reason)
    return int((await world.stub.ResetMerge(asked)).epoch)


def is_reset(error: grpc.RpcError) -> bool:
    metadata: list[Any] = list(error.trailing_metadata())
    return (ERROR_KEY, MERGE_RESET) in metadata


async def refusal(call: Any) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        await call.read()
    return caught.value


async def ended(batches: AsyncIterator[Any]) -> None:
    async for _ in batches:
        pass


@pytest.mark.parametrize("kind", STORES)
async def test_a_merge_that_ran_far_ahead_begins_again(kind: str, tmp_path: Path) -> None:
    async with World(**settings_of(kind, tmp_path)) as world:
        a = await world.publisher("a", incarnation=7, schema=GOOD)
        await a.merged(ins(row("x"), 1, 5), stable(FAR))
        reader = await world.subscriber()
        epoch = await reset(world, reason="the year 33658")
        ended = await a.ending()
        assert (ended.code, "was reset (the year 33658)" in ended.details) == (grpc.StatusCode.UNAVAILABLE, True)
        ended = await reader.ending()
        assert (ended.code, f"epoch {epoch} of it has begun" in ended.details) == (grpc.StatusCode.OUT_OF_RANGE, True)

        described = await world.describe()
        assert (described.epoch, described.summary.stable_point, len(described.inputs)) == (epoch, NEG_INF, 0)
        assert not described.HasField("schema")
        again = await world.publisher("a", incarnation=3, join_at=0)  # lower than in the epoch before
        await again.merged(ins("y", 10, 20), stable(15))
        fresh = await world.subscriber()
        assert [event.payload for event in fresh.tdb.events()] == [b"y"]
        assert fresh.begin.epoch == epoch


@pytest.mark.parametrize("kind", STORES)
async def test_tokens_of_another_epoch_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    async with World(**settings_of(kind, tmp_path)) as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 50), stable(10))
        epoch = await reset(world)
        again = await world.publisher("a")
        await again.merged(ins("x", 1, 50), stable(10))
        for token in (format_token(MERGE, 10), format_token(MERGE, 10, epoch + 1)):
            for allowed in (False, True):  # also when a snapshot that begins later is allowed
                error = await refusal(world.subscribe(resume_token=token, snapshot_if_too_old=allowed))
                assert error.code() is grpc.StatusCode.OUT_OF_RANGE
                assert is_reset(error)
                assert f"it is in epoch {epoch} here" in (error.details() or "")
        for token in (format_token(MERGE, 10, epoch), format_token(MERGE, NEG_INF)):
            reader = await world.subscriber(resume_token=token)
            assert [event.payload for event in reader.tdb.events()] == [b"x"]


async def test_epochs_only_grow_and_have_a_range(tmp_path: Path) -> None:
    async with World(merges=(MERGE,)) as world:
        assert await reset(world, epoch=5) == 5
        for wrong in (5, 4, 1, 2**63, 2**64 - 1):
            with pytest.raises(grpc.RpcError) as caught:
                await reset(world, epoch=wrong)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await reset(world) > 10**9  # the default is the time of the clock
        with pytest.raises(grpc.RpcError) as caught:
            await reset(world, merge="nowhere")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.RpcError) as caught:
            await reset(world, reason="a\x1b[2Jb")
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_reset_outlives_the_server_and_so_does_that_nothing_is_left(tmp_path: Path) -> None:
    settings = settings_of("durable", tmp_path)
    async with World(**settings) as world:
        a = await world.publisher("a", incarnation=2**62, schema=GOOD)
        await a.merged(*(ins(row(f"secret {n}"), n, 10**6) for n in range(100)), stable(50))
        await world.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="b", quarantine=True))
        epoch = await reset(world)
    async with World(**settings) as world:
        described = await world.describe()
        assert (described.epoch, described.live_events, described.summary.stable_point) == (epoch, 0, NEG_INF)
        assert not described.HasField("schema")
        assert list(described.quarantined) == []
        reader = await world.subscriber()
        assert (reader.tdb.events(), reader.begin.epoch) == ([], epoch)
        error = await refusal(world.subscribe(resume_token=format_token(MERGE, 50)))
        assert is_reset(error)
        b = await world.publisher("b", incarnation=1)
        await b.merged(ins("x", 1, 5), stable(3))
        assert (await world.publisher("a", incarnation=1)).accepted.incarnation == 1


@pytest.mark.parametrize(
    "schema",
    [
        pb.Schema(),
        pb.Schema(columns=[pb.Schema.Column(name="a", type="no such type")]),
        pb.Schema(columns=[pb.Schema.Column(name="a\x1b[31m", type="int")]),
    ],
    ids=["empty", "unknown type", "control characters"],
)
async def test_a_store_with_an_invalid_schema_stops_no_other_merge_and_is_mended(
    schema: pb.Schema, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of("durable", tmp_path)
    async with World(**settings) as world:
        for merge in ("good", "bad"):
            a = await world.publisher("a", merge=merge, schema=GOOD)
            await a.merged(ins(row("x"), 1, 50), stable(10))
        path = world.server._registry._folder.path_of("bad")
    store = Store(path)
    store.load()
    changes = Changes(facts={"schema": b"=" + schema.SerializeToString()})
    store.commit([changes], frames_of(Settings().resolved_engine), DEFAULT_LIMITS)
    store.close()
    caplog.set_level(logging.INFO)
    async with World(**settings) as world:
        spoiled = [record for record in caplog.records if getattr(record, "event", "") == "merge spoiled"]
        assert len(spoiled) == 1
        assert "'bad'" in spoiled[0].getMessage()
        assert (await world.describe("good")).summary.stable_point == 10
        with pytest.raises(grpc.RpcError) as caught:
            await world.describe("bad")
        assert caught.value.code() is grpc.StatusCode.DATA_LOSS
        assert "lmerge reset" in (caught.value.details() or "")
        assert (await world.refused("a", merge="bad")).code is grpc.StatusCode.DATA_LOSS
        epoch = await reset(world, merge="bad")
        a = await world.publisher("a", merge="bad", schema=GOOD)
        await a.merged(ins(row("y"), 1, 50), stable(20))
    async with World(**settings) as world:
        assert (await world.describe("bad")).epoch == epoch
        assert (await world.describe("bad")).summary.stable_point == 20


@pytest.mark.parametrize("damage", ["flipped", "mark ahead"])
async def test_a_damaged_store_is_mended_too(damage: str, tmp_path: Path) -> None:
    settings = settings_of("durable", tmp_path)
    async with World(**settings) as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 50), stable(10))
        path = world.server._registry._folder.path_of(MERGE)
    if damage == "flipped":
        path.write_bytes(bytes(byte ^ 0xFF for byte in path.read_bytes()))
    else:
        path.with_suffix(".mark").write_bytes(b"1000000\n")
    async with World(**settings) as world:
        with pytest.raises(grpc.RpcError) as caught:
            await world.describe()
        assert caught.value.code() is grpc.StatusCode.DATA_LOSS
        epoch = await reset(world)
        assert (await world.describe()).epoch == epoch
    async with World(**settings) as world:
        assert (await world.describe()).epoch == epoch


async def test_a_reset_is_in_the_log_with_who_asked_for_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with SecureWorld(tmp_path) as world:
        stub = world.stub_of(world.keeper)
        keeper = await world.publisher("keeper", stub=stub)
        await keeper.merged(ins("x", 1, 5), stable(2))
        await stub.ResetMerge(pb.ResetMergeRequest(merge=MERGE, reason="spoiled"))
        line = next(record for record in caplog.records if getattr(record, "event", "") == "merge reset")
        fields: dict[str, Any] = vars(line)["fields"]
        assert "token 'keeper'" in fields["caller"]
        assert (fields["merge"], fields["reason"], fields["stable_point"]) == (MERGE, "spoiled", 2)


async def test_the_client_goes_on_publishing_and_its_reader_gets_the_error(tmp_path: Path) -> None:
    """Two servers: one is reset first, and the reader goes on with the other until that is reset as well."""
    async with World() as one, World() as two:
        targets = [f"127.0.0.1:{world.server.port}" for world in (one, two)]
        publisher = await AsyncPublisher(targets, MERGE, "a").open()
        await publisher.insert(b"x", 1, 10**15)
        await publisher.stable(5)
        await publisher.flush()
        subscriber = AsyncSubscriber(targets, MERGE, resume=format_token(MERGE, NEG_INF))
        batches = aiter(subscriber.batches())
        while subscriber.stable_point < 5:
            await anext(batches)
        assert subscriber.epoch == 0
        epoch = await asyncio.to_thread(reset_merge, targets[0], MERGE)
        await publisher.stable(6)
        while subscriber.stable_point < 6:
            await anext(batches)
        assert await asyncio.to_thread(reset_merge, targets[1], MERGE, epoch=epoch) == epoch
        with pytest.raises(MergeReset):
            await ended(batches)
        with pytest.raises(MergeReset):
            await anext(aiter(AsyncSubscriber(targets, MERGE, resume=subscriber.token).batches()))
        await publisher.stable(7)
        fresh = AsyncSubscriber(targets, MERGE)
        async for _ in fresh.batches():
            if fresh.stable_point >= 7:
                break
        assert read_token(fresh.token, MERGE).epoch == fresh.epoch == epoch
        assert [event.payload for event in fresh.tdb.live_events()] == [b"x"]
        resumed = AsyncSubscriber(targets, MERGE, resume=fresh.checkpoint())
        assert resumed.epoch == epoch
        await publisher.stable(INF)
        async for _ in resumed.batches():
            pass
        assert resumed.stable_point == INF
        for one_subscriber in (subscriber, fresh, resumed):
            one_subscriber.close()
        await publisher.close()


async def test_a_merge_is_reset_twice_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next epoch is above that of every server that answers, also where their epochs differ."""
    monkeypatch.setattr(clock, "wall_us", lambda: 5_900_000)
    async with World() as one, World() as two:
        targets = [f"127.0.0.1:{world.server.port}" for world in (one, two)]
        for world in (one, two):
            await world.publisher("a")
        assert await asyncio.to_thread(reset_merge, targets, MERGE) == 5
        assert await asyncio.to_thread(reset_merge, targets, MERGE) == 6
        assert await asyncio.to_thread(reset_merge, targets[1], MERGE) == 7
        assert await asyncio.to_thread(reset_merge, targets, MERGE) == 8


async def test_a_reader_takes_servers_of_one_epoch_only() -> None:
    async with World() as one, World() as two:
        targets = [f"127.0.0.1:{world.server.port}" for world in (one, two)]
        publisher = await AsyncPublisher(targets, MERGE, "a").open()
        await publisher.insert(b"x", 1, 10**15)
        await publisher.stable(5)
        await publisher.flush()
        await asyncio.to_thread(reset_merge, targets[0], MERGE)
        subscriber = AsyncSubscriber(targets, MERGE)  # without a token, it takes the epoch that it meets first
        sources, stable_point = subscriber.follower.sources, 5
        async for _ in subscriber.batches():
            if any(link.refusal for link in subscriber.links):
                break
            if all(sources[target].state == "joined" for target in targets):
                break
            stable_point += 1
            await publisher.stable(stable_point)
        refused = [isinstance(link.refusal, MergeReset) for link in subscriber.links]
        assert sorted(refused) == [False, True]
        assert sources[targets[refused.index(True)]].state != "joined"
        subscriber.close()
        await publisher.close()


async def test_incarnations_have_a_range_and_a_name_can_be_forgotten() -> None:
    async with World() as world:
        for wrong in (2**63, 2**64 - 1):
            ended = await world.refused("a", incarnation=wrong)
            assert (ended.code, str(wrong) in ended.details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        last = await world.publisher("a", incarnation=2**63 - 1)
        await last.merged(ins("x", 1, 5), stable(2))
        await last.leave()
        ended = await world.refused("a")  # the next incarnation, which does not exist
        assert (ended.code, "--forget" in ended.details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        assert (await world.refused("a", incarnation=5)).code is grpc.StatusCode.ABORTED
        await world.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="a", forget=True))
        assert (await world.publisher("a", incarnation=5, join_at=2)).accepted.incarnation == 5


async def test_what_was_forgotten_stays_so_after_a_restart(tmp_path: Path) -> None:
    settings = settings_of("durable", tmp_path)
    async with World(**settings) as world:
        for name in ("a", "b"):
            last = await world.publisher(name, incarnation=2**63 - 1)
            await last.merged(ins("x", 1, 5), stable(2))
        await world.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="a", forget=True))
    async with World(**settings) as world:
        assert (await world.publisher("a", join_at=2)).accepted.incarnation == 1
        assert (await world.refused("b", join_at=2)).code is grpc.StatusCode.INVALID_ARGUMENT
