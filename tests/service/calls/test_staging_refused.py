"""What cannot be staged or committed is refused: bad input, a server that drains, rights, rates and room."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families
from secure_world import SecureWorld, refused
from service_world import MERGE, World, batch_message, ins
from staging_world import both, commit, numbered, opened, part_of, sent, stage_call, staged, staging_of, until

from lmerge.service.merge.staged_parts import PART_BYTES, ROOM, SUPERSEDED, TIME
from lmerge.wire.generated import lmerge_pb2 as pb

pytestmark = pytest.mark.usefixtures("transport")

INVALID, EXHAUSTED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED
UNAVAILABLE, DENIED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED

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
        [opened(1, 2), *part_of([ins("x", 1, 5)], [ins("y", 1, 5)])],
        INVALID,
        "a message came after its last batch, number 1",
    ),
    "sequence gap": (
        [opened(1, 2, batches=2), *part_of([ins("x", 1, 5)]), numbered(3, batch_message([]))],
        INVALID,
        "batch 3 came where batch 2 was due",
    ),
    "from zero": ([opened(1, 2), numbered(0, batch_message([]))], INVALID, "batch 0 came where batch 1 was due"),
    "short column": (
        [opened(1, 2), numbered(1, pb.Batch(kinds=b"\0", vs=b"1234"))],
        INVALID,
        "batch 1: column vs has 4 bytes",
    ),
    "unknown kind": ([opened(1, 2), numbered(1, pb.Batch(kinds=b"\7"))], INVALID, "element 0: unknown kind 7"),
    "large payload": (
        [opened(1, 2, batches=2), *part_of([ins("x", 1, 5)], [ins(b"p" * 1001, 1, 5)])],
        EXHAUSTED,
        "batch 2: column payloads, element 0: 1001 bytes are above the limit of 1000",
    ),
    "many elements": (
        [opened(1, 2), *part_of([ins("x", at, 99) for at in range(51)])],
        EXHAUSTED,
        "51 elements is above the limit of 50",
    ),
    "large message": (
        [opened(1, 2), *part_of([ins(b"p" * 999, at, 99) for at in range(11)])],
        EXHAUSTED,
        "bytes is above the limit of 10000",
    ),
    "large part": (
        [opened(1, 2, batches=9), *part_of(*([ins(b"p" * 999, at, 99) for at in range(6)] for _ in range(9)))],
        EXHAUSTED,
        "and the staged parts of a replica may take 50000",
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
        metadata: list[Any] = list(caught.value.trailing_metadata())
        is_payload = ("lmerge-limit", "payload") in metadata
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
