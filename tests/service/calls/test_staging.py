"""Stage and commit: staged parts wait unseen until their publisher commits them, or sends the elements itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families
from secure_world import SecureWorld, refused
from service_world import MERGE, Publisher, World, adj, batch_message, ins, replayed, retried_without_status, stable

from lmerge.core.elements import INF, Element, Event, Insert
from lmerge.service.calls.publish import PublishSession
from lmerge.service.merge.staged_parts import PART_BYTES, REPLACED, ROOM, SUPERSEDED, TIME, PartOwner, Staging
from lmerge.service.server import SERVICE
from lmerge.service.settings import Settings
from lmerge.testing.generate import present, reference
from lmerge.wire.generated import lmerge_pb2 as pb

both = pytest.mark.usefixtures("engine")  # tests of reading, keeping and merging; the rest does not depend on it
INVALID, EXHAUSTED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED
UNAVAILABLE, DENIED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED
QUERY = "counts"


def opened(
    batch: int, partition: int, attempt: int = 0, *, batches: int = 1, query: str = QUERY, replica: str = "a",
    merge: str = MERGE,
) -> bytes:
    where = pb.StageRequest.Open(
        merge=merge, replica=replica, query=query, batch=batch, partition=partition, attempt=attempt, batches=batches
    )
    return pb.StageRequest(open=where).SerializeToString()


def numbered(sequence: int, message: pb.Batch) -> bytes:
    batch = pb.PublishRequest.SequencedBatch(sequence=sequence, batch=message)
    return pb.StageRequest(batch=batch).SerializeToString()


def part_of(*batches: Iterable[Element]) -> list[bytes]:
    return [numbered(at, batch_message(elements)) for at, elements in enumerate(batches, 1)]


def stage_call(channel: Any) -> Any:
    """Return a call of Stage that sends raw bytes."""
    method = channel.stream_unary(
        f"/{SERVICE}/Stage", request_serializer=None, response_deserializer=pb.StageResponse.FromString
    )
    return method()


@retried_without_status
async def sent(channel: Any, messages: Sequence[bytes]) -> pb.StageResponse:
    """Stage these messages. Raises the error that ends the call."""
    call = stage_call(channel)
    try:
        for message in messages:
            await call.write(message)
        await call.done_writing()
    except asyncio.InvalidStateError:
        pass  # it has ended already
    return await call


async def staged(
    world: World, batch: int, partition: int, *batches: Iterable[Element], attempt: int = 0, **where: Any
) -> pb.StageResponse:
    opening = opened(batch, partition, attempt, batches=len(batches), **where)
    return await sent(world.channel, [opening, *part_of(*batches)])


async def commit(
    publisher: Publisher, batch: int, *parts: tuple[int, int], query: str = QUERY, **more: Any
) -> None:
    publisher.sequence += 1
    listed = [pb.PublishRequest.Commit.Part(partition=partition, attempt=attempt) for partition, attempt in parts]
    await publisher.write(commit=pb.PublishRequest.Commit(
        **{"sequence": publisher.sequence, "query": query, "batch": batch, "parts": listed} | more
    ))


def staging_of(world: World) -> Staging:
    return world.server._registry.staging


async def until(claim: Callable[[], Any]) -> None:
    while not claim():  # noqa: ASYNC110  # there is no event for it
        await asyncio.sleep(0.001)


# What staging and committing do.


@both
async def test_parts_staged_before_there_is_a_merge_are_seen_when_they_are_committed_and_not_before() -> None:
    async with World() as world:
        answer = await staged(world, 7, 0, [ins("x", 1, 5)], [ins("y", 2, 9), ins("z", 3)])
        assert answer.elements == 3
        assert answer.bytes > PART_BYTES
        assert answer.limits.staged_bytes == Settings().staged_bytes
        await staged(world, 7, 1, [ins("v", 1, 20)], attempt=3)
        assert not (await world.stub.ListMerges(pb.ListMergesRequest())).merges
        a = await world.publisher("a")
        described = await world.describe()
        assert (described.live_events, described.staged_parts) == (0, 2)
        assert described.staged_bytes == staging_of(world).bytes > answer.bytes
        await commit(a, 7, (0, 0), (1, 3), stable=4, elements=4, payload_bytes=4)
        ack = await a.acked()
        assert (ack.sequence, ack.stable_point) == (1, 4)
        reader = await world.subscriber()
        assert reader.snapshot == [ins("v", 1, 20), ins("x", 1, 5), ins("y", 2, 9), ins("z", 3), stable(4)]
        described = await world.describe()
        assert (described.staged_parts, described.staged_bytes, described.staged_commits) == (0, 0, 1)


@both
async def test_a_commit_has_its_place_among_the_batches_and_its_parts_the_order_of_the_commit() -> None:
    async with World(merges=(MERGE,)) as world:
        reader = await world.subscriber()
        a = await world.publisher("a", properties=["insert-only", "ordered"])
        await staged(world, 1, 0, [ins("4", 4, 9), ins("5", 5, 9)])
        await staged(world, 1, 1, [ins("2", 2, 9)], [ins("3", 3, 9)])
        await a.send(ins("1", 1, 9))
        await commit(a, 1, (1, 0), (0, 0), stable=5)
        await a.send(ins("6", 6, 9))
        await a.send(stable(7))
        assert (await a.acked(stable_point=7)).sequence == 4
        assert [e.payload for e in await reader.until_stable(7)] == [b"1", b"2", b"3", b"4", b"5", b"6"]
        assert [e for e in reader.elements if isinstance(e, Insert)] == [
            ins(str(vs), vs, 9) for vs in range(1, 7)
        ], "they promised an order, and kept it"


@both
async def test_a_commit_larger_than_a_turn_is_acked_once_and_counted_through() -> None:
    async with World(turn_elements=10, merge_queue_elements=20) as world:
        a = await world.publisher("a")
        for partition in range(3):
            await staged(world, 1, partition, *([ins(f"{partition} {at}", at, at + 50)] * 1 for at in range(35)))
        await staged(world, 1, 3, [ins(f"3 {at}", at, at + 50) for at in range(35)])
        await commit(a, 1, (0, 0), (1, 0), (2, 0), (3, 0), stable=0)
        await a.acked()
        assert a.last_ack.sequence == 1
        assert (await world.describe()).emitted.inserts == 140
        assert staging_of(world).bytes == 0


@both
async def test_a_commit_without_parts_delivers_its_stable_or_nothing_at_all() -> None:
    async with World() as world:
        a = await world.publisher("a")
        await commit(a, 1, stable=8, elements=0)
        assert (await a.acked()).stable_point == 8
        await commit(a, 2)
        assert (await a.acked()).sequence == 2
        await staged(world, 3, 0)
        await commit(a, 3, (0, 0), elements=0, payload_bytes=0)
        await a.acked()


@both
async def test_a_part_that_comes_again_replaces_the_one_before() -> None:
    async with World() as world:
        a = await world.publisher("a")
        await staged(world, 1, 0, [ins("first", 1, 5)])
        await staged(world, 1, 0, [ins("again", 1, 5), ins("more", 2, 5)])
        await commit(a, 1, (0, 0), elements=2)
        await a.acked()
        reader = await world.subscriber()
        assert reader.snapshot == [ins("again", 1, 5), ins("more", 2, 5)]
        assert staging_of(world).dropped == {REPLACED: 1}


@both
async def test_a_commit_whose_part_is_not_there_merges_nothing_and_the_publisher_sends_it_again() -> None:
    async with World() as world:
        a = await world.publisher("a", incarnation=1)
        await a.send(ins("before", 1, 20), stable(1))
        await staged(world, 4, 0, [ins("x", 2, 9)])
        await commit(a, 4, (0, 0), (1, 0), (2, 5), stable=2)
        ending = await a.ending()
        assert ending.code is UNAVAILABLE
        assert "part 1 (attempt 0) of batch 4 of query 'counts' of input 'a' of merge 'flights'" in ending.details
        assert "is not staged here (any more), nor is 1 more of its commit: attach again" in ending.details
        assert (a.last_ack.sequence, ending.detached) == (1, None)
        described = await world.describe()
        assert (described.live_events, described.missed_commits, described.staged_parts) == (1, 1, 0)
        a = await world.publisher("a", incarnation=2, join_at=1)
        await a.merged(ins("before", 1, 20), ins("x", 2, 9), ins("y", 2, 9), stable(2))
        assert (await world.subscriber()).snapshot[:3] == [ins("before", 1, 20), ins("x", 2, 9), ins("y", 2, 9)]


@both
@pytest.mark.parametrize("declared", [{"elements": 2}, {"payload_bytes": 9}, {"elements": 0, "payload_bytes": 1}])
async def test_parts_that_do_not_hold_what_the_publisher_declares_are_not_merged(declared: dict[str, int]) -> None:
    async with World() as world:
        a = await world.publisher("a")
        await staged(world, 1, 0, [ins("x", 1, 5)])
        await commit(a, 1, (0, 0), stable=1, **declared)
        ending = await a.ending()
        assert ending.code is UNAVAILABLE
        assert "the staged parts of batch 1 of query 'counts' of input 'a' of merge 'flights' hold 1 " in ending.details
        described = await world.describe()
        assert (described.live_events, described.missed_commits, staging_of(world).bytes) == (0, 1, 0)


@both
async def test_a_broken_promise_in_a_part_is_reported_by_its_index_in_the_commit() -> None:
    async with World() as world:
        a = await world.publisher("a")
        await a.merged(stable(3))
        await staged(world, 1, 0, [ins("x", 4, 9)], [ins("y", 5, 9)])
        await staged(world, 1, 1, [ins("z", 6, 9), ins("late", 2, 9), ins("never", 7, 9)])
        await commit(a, 1, (0, 0), (1, 0), stable=4)
        ending = await a.ending()
        assert ending.code is grpc.StatusCode.FAILED_PRECONDITION
        assert ending.detached is not None
        assert (ending.detached.code, ending.detached.sequence, ending.detached.index) == ("insert-below-stable", 2, 3)
        assert (await world.subscriber()).snapshot[:-1] == [ins("x", 4, 9), ins("y", 5, 9), ins("z", 6, 9)]
        assert staging_of(world).bytes == 0


@both
async def test_a_fenced_publisher_commits_nothing_and_takes_nothing_away() -> None:
    async with World() as world:
        old = await world.publisher("a", incarnation=1)
        await staged(world, 1, 0, [ins("x", 1, 5)])
        new = await world.publisher("a", incarnation=2)
        ending = await old.ending()
        assert ending.code is grpc.StatusCode.ABORTED
        assert "fenced" in ending.details
        late = PublishSession(None, world.server._registry, world.server.settings)  # its stream has not ended yet
        late._owner = PartOwner(MERGE, "a")
        listed = [pb.PublishRequest.Commit.Part(partition=0)]
        await late._commit(
            world.server._registry.hubs[MERGE], pb.PublishRequest.Commit(sequence=1, query=QUERY, batch=1, parts=listed)
        )
        await commit(new, 1, (0, 0), elements=1)
        assert (await new.acked()).sequence == 1
        assert (await world.describe()).staged_commits == 1


@both
async def test_one_replica_does_not_commit_what_another_has_staged() -> None:
    async with World() as world:
        await staged(world, 1, 0, [ins("x", 1, 5)], replica="b")
        await staged(world, 1, 0, [ins("x", 1, 5)], merge="other")
        a = await world.publisher("a")
        await commit(a, 1, (0, 0))
        assert (await a.ending()).code is UNAVAILABLE
        assert staging_of(world).parts == 2


@both
async def test_a_recorded_session_has_what_was_committed(tmp_path: Path) -> None:
    record = tmp_path / "session.jsonl"
    async with World(merges=(MERGE,), record_path=str(record), policy="eager") as world:
        reader = await world.subscriber()
        a = await world.publisher("a")
        await staged(world, 1, 0, [ins("x", 1, 5), ins("y", 2)])
        await commit(a, 1, (0, 0), stable=2)
        await a.merged(adj("y", 2, INF, 7), stable(9))
        assert await reader.until_stable(9) == [Event(1, b"x", 5), Event(2, b"y", 7)]
        assert replayed(record, "eager") == reader.elements


@both
async def test_random_parts_and_batches_give_the_table_that_plain_batches_give() -> None:
    random = Random(2026)
    events = reference(random, 300)
    async with World(merges=(MERGE,)) as world:
        reader = await world.subscriber()
        rest = {name: present(random, events) for name in "ab"}
        publishers = {name: await world.publisher(name) for name in rest}
        batch = 0
        while any(rest.values()):
            name = random.choice([name for name in rest if rest[name]])
            batch += 1
            pieces = [_some(rest[name], random) for _ in range(random.randint(1, 4))]
            if random.random() < 0.4:
                for piece in pieces:
                    await publishers[name].send(*piece)
                continue
            order = list(range(len(pieces)))
            random.shuffle(order)  # executors come in any order
            attempts = [random.randint(0, 2) for _ in pieces]
            for at in order:
                if random.random() < 0.3:  # a repeated or another attempt, which must not count
                    attempt = attempts[at] + random.randint(0, 1)
                    await staged(world, batch, at, [ins("twin", 0, 1)], replica=name, attempt=attempt)
                await staged(world, batch, at, pieces[at][:1], pieces[at][1:], replica=name, attempt=attempts[at])
            await commit(
                publishers[name], batch, *enumerate(attempts), elements=sum(map(len, pieces)),
            )
            staging_of(world).check()
        for publisher in publishers.values():
            await publisher.merged(stable(INF))
        assert await reader.until_stable(INF) == events


def _some(stream: list[Element], random: Random) -> list[Element]:
    count = random.randint(1, 9)
    taken = stream[:count]
    del stream[:count]
    return taken


# Bad input.

HOSTILE: dict[str, tuple[list[bytes], grpc.StatusCode, str]] = {
    "nothing": ([], INVALID, "the stream ended before an open came"),
    "no open": (part_of([ins("x", 1, 5)]), INVALID, "batch came where open was due"),
    "an empty message": ([b""], INVALID, "nothing known came where open was due"),
    "no message": ([b"\xff\xff\xff"], INVALID, "a message of 3 bytes is not a StageRequest"),
    "no merge": ([opened(1, 2, merge="")], INVALID, "the name of a merge must not be empty"),
    "no replica": ([opened(1, 2, replica="")], INVALID, "the name of a replica must not be empty"),
    "no query": ([opened(1, 2, query="")], INVALID, "the name of a query must not be empty"),
    "a long name": ([opened(1, 2, query="q" * 201)], INVALID, "201 bytes, above the limit of 200"),
    "opened again": ([opened(1, 2), opened(1, 2)], INVALID, "a message came that is no batch, where batch 1 was due"),
    "no batch": ([opened(1, 2), b"\xff\xff\xff"], INVALID, "a message of 3 bytes is not a StageRequest"),
    "too few": ([opened(1, 2, batches=2), *part_of([ins("x", 1, 5)])], INVALID, "it ended after 1 of 2 batches"),
    "too many": (
        [opened(1, 2), *part_of([ins("x", 1, 5)], [ins("y", 1, 5)])], INVALID,
        "a message came after its last batch, number 1",
    ),
    "sequence gap": (
        [opened(1, 2, batches=2), *part_of([ins("x", 1, 5)]), numbered(3, batch_message([]))], INVALID,
        "batch 3 came where batch 2 was due",
    ),
    "from zero": ([opened(1, 2), numbered(0, batch_message([]))], INVALID, "batch 0 came where batch 1 was due"),
    "short column": (
        [opened(1, 2), numbered(1, pb.Batch(kinds=b"\0", vs=b"1234"))], INVALID, "batch 1: column vs has 4 bytes"
    ),
    "unknown kind": ([opened(1, 2), numbered(1, pb.Batch(kinds=b"\7"))], INVALID, "element 0: unknown kind 7"),
    "large payload": (
        [opened(1, 2, batches=2), *part_of([ins("x", 1, 5)], [ins(b"p" * 1001, 1, 5)])], EXHAUSTED,
        "batch 2: column payloads, element 0: 1001 bytes are above the limit of 1000",
    ),
    "many elements": (
        [opened(1, 2), *part_of([ins("x", at, 99) for at in range(51)])], EXHAUSTED,
        "51 elements is above the limit of 50",
    ),
    "large message": (
        [opened(1, 2), *part_of([ins(b"p" * 999, at, 99) for at in range(11)])], EXHAUSTED,
        "bytes is above the limit of 10000",
    ),
    "large part": (
        [opened(1, 2, batches=9), *part_of(*([ins(b"p" * 999, at, 99) for at in range(6)] for _ in range(9)))],
        EXHAUSTED, "and the staged parts of a replica may take 50000",
    ),
}


@both
@pytest.mark.parametrize("name", HOSTILE)
async def test_what_cannot_be_staged_is_refused_and_leaves_nothing(name: str) -> None:
    messages, code, message = HOSTILE[name]
    limits = {"batch_elements": 50, "payload_bytes": 1000, "message_bytes": 10_000, "staged_bytes_per_replica": 50_000}
    async with World(**limits) as world:
        await staged(world, 1, 9, [ins("kept", 1, 5)])
        with pytest.raises(grpc.RpcError) as caught:
            await sent(world.channel, messages)
        assert caught.value.code() is code, caught.value.details()
        assert message in caught.value.details()
        if len(messages) > 1:
            where = "part 2 (attempt 0) of batch 1 of query 'counts' of input 'a' of merge 'flights'"
            assert where in caught.value.details()
        is_payload = ("lmerge-limit", "payload") in [tuple(pair) for pair in caught.value.trailing_metadata()]
        assert is_payload is (name == "large payload")
        staging_of(world).check()
        assert staging_of(world).parts == 1
        assert (await staged(world, 1, 2, [ins("x", 1, 5)])).elements == 1


@both
async def test_a_commit_that_makes_no_sense_ends_its_stream_alone() -> None:
    async with World() as world:
        keeper = await world.publisher("keeper")
        faults: list[tuple[dict[str, Any], list[tuple[int, int]], str]] = [
            ({"sequence": 5}, [], "commit 5 came where batch 1 was due"),
            ({}, [(0, 0), (1, 0), (0, 0)], "commit 1: a part of it is listed twice"),
        ]
        for more, parts, message in faults:
            a = await world.publisher("a")
            await staged(world, 1, 0, [ins("x", 1, 5)])
            await commit(a, 1, *parts, **more)
            ending = await a.ending()
            assert ending.code is INVALID
            assert message in ending.details
            assert "input 'a' of merge 'flights'" in ending.details
            assert staging_of(world).parts == 1
        await keeper.merged(ins("fine", 1, 5))


async def test_a_call_that_is_given_up_in_the_middle_has_staged_nothing() -> None:
    async with World() as world:
        call = stage_call(world.channel)
        await call.write(opened(1, 0, batches=2))
        await call.write(part_of([ins("x", 1, 5)])[0])
        await until(lambda: staging_of(world).bytes > PART_BYTES)
        assert staging_of(world).parts == 0
        call.cancel()
        await until(lambda: not staging_of(world).bytes)
        staging_of(world).check()


async def test_a_call_that_does_not_come_to_an_end_is_ended() -> None:
    async with World(stage_timeout_s=0.05) as world:
        call = stage_call(world.channel)
        await call.write(opened(1, 0))
        with refused(UNAVAILABLE, "part 0 (attempt 0) of batch 1", "has not come within 0.05 s"):
            await call
        assert staging_of(world).bytes == 0


async def test_a_server_that_drains_takes_no_parts() -> None:
    async with World() as world:
        call = stage_call(world.channel)
        await call.write(opened(1, 0, batches=0))
        await until(lambda: staging_of(world).bytes)
        stopping = asyncio.create_task(world.server.stop(5))
        await until(lambda: world.server._registry.draining)
        await call.done_writing()
        with refused(UNAVAILABLE, "the server is draining"):
            await call
        await stopping


async def test_no_part_is_taken_for_a_merge_that_publishers_cannot_make() -> None:
    async with World(allow_create=False, merges=(MERGE,)) as world:
        await staged(world, 1, 0, [ins("x", 1, 5)])
        with refused(grpc.StatusCode.NOT_FOUND, "no merge 'other'"):
            await staged(world, 1, 0, [ins("x", 1, 5)], merge="other")


async def test_a_server_can_be_set_to_keep_no_parts() -> None:
    async with World(staged_bytes=0) as world:
        with refused(EXHAUSTED, "this server keeps no staged parts"):
            await staged(world, 1, 0, [ins("x", 1, 5)])
        assert (await world.publisher("a")).accepted.limits.staged_bytes == 0


# Security and quotas.


async def test_a_worker_stages_for_the_replica_that_its_token_names_and_for_no_other(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        channel = world.new_channel(world.token("a", ["publish"], [MERGE], ["a"]))
        assert (await sent(channel, [opened(1, 0), *part_of([ins("x", 1, 5)])])).elements == 1
        with refused(DENIED, "may not stage parts for merge 'flights' as replica 'b'"):
            await sent(channel, [opened(1, 0, replica="b")])
        with refused(DENIED, "may not stage parts for merge 'other' as replica 'a'"):
            await sent(channel, [opened(1, 0, merge="other")])
        reader = world.new_channel(world.token("reader", ["subscribe", "admin", "status"]))
        with refused(DENIED, "may not stage parts"):
            await sent(reader, [opened(1, 0)])
        assert staging_of(world).parts == 1


async def test_calls_of_one_replica_are_bounded_in_rate_and_number() -> None:
    async with World(stage_burst=3, stage_rate_per_s=1e-6) as world:
        for partition in range(3):
            await staged(world, 1, partition)
        with refused(UNAVAILABLE, "parts of input 'a' of merge 'flights' are staged too often"):
            await staged(world, 1, 3)
        await staged(world, 1, 0, replica="b")
    async with World(stage_calls_per_replica=1) as world:
        call = stage_call(world.channel)
        await call.write(opened(1, 0, batches=0))
        await until(lambda: staging_of(world).bytes)
        with refused(EXHAUSTED, "calls that stage parts of input 'a' of merge 'flights': 1 at a time is the limit"):
            await staged(world, 1, 1)
        await staged(world, 1, 1, replica="b")
        await call.done_writing()
        await call
        await staged(world, 1, 1)


async def test_one_machine_stages_for_some_replicas_at_full_rate_and_not_for_any_number() -> None:
    async with World(stage_burst=1, stage_rate_per_s=1e-6) as world:
        for replica in "abcd":
            await staged(world, 1, 0, replica=replica)
        with refused(UNAVAILABLE, "127.0.0.1 stages parts too often"):
            await staged(world, 1, 0, replica="e")


async def test_parts_without_a_commit_are_dropped_after_a_while() -> None:
    async with World(staged_keep_s=0.0, check_interval_s=0.01) as world:
        await staged(world, 1, 0, [ins("x", 1, 5)])
        await until(lambda: not staging_of(world).parts)
        assert staging_of(world).dropped == {TIME: 1}


async def test_metrics_count_what_is_staged_and_what_became_of_it() -> None:
    async with World(http_port=0) as world, aiohttp.ClientSession() as http:
        a, b = await world.publisher("a"), await world.publisher("b")
        await staged(world, 1, 0, [ins("x", 1, 5)])
        await staged(world, 1, 0, [ins("x", 1, 5)], attempt=1)
        await commit(a, 1, (0, 1))
        await a.acked()
        await staged(world, 2, 0, [ins("y", 1, 5)])
        await commit(b, 2, (0, 0))
        await b.ending()
        async with http.get(f"http://127.0.0.1:{world.server.http_port}/metrics") as response:
            families = text_string_to_metric_families(await response.text())
            samples = {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}
        assert samples["lmerge_staged_parts",] == 1
        assert samples["lmerge_staged_bytes",] == staging_of(world).bytes
        assert samples["lmerge_dropped_parts_total", SUPERSEDED] == 1
        assert samples["lmerge_dropped_parts_total", ROOM] == 0
        assert samples["lmerge_staged_commits_total", MERGE] == 1
        assert samples["lmerge_missed_commits_total", MERGE] == 1
