"""Helpers of the tests of staging: the messages of the call Stage, commits of staged parts, and waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from service_world import MERGE, RawPublisher, World, batch_message, retried_without_status

from lmerge.core.elements import Element
from lmerge.service.merge.staged_parts import Staging
from lmerge.service.server import SERVICE
from lmerge.wire.generated import lmerge_pb2 as pb

both = pytest.mark.usefixtures("engine")  # tests of reading, keeping and merging; the rest does not depend on it
QUERY = "counts"


def opened(
    batch: int,
    partition: int,
    attempt: int = 0,
    *,
    batches: int = 1,
    query: str = QUERY,
    replica: str = "a",
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
    response: pb.StageResponse = await call
    return response


async def staged(
    world: World, batch: int, partition: int, *batches: Iterable[Element], attempt: int = 0, **where: Any
) -> pb.StageResponse:
    opening = opened(batch, partition, attempt, batches=len(batches), **where)
    response: pb.StageResponse = await sent(world.channel, [opening, *part_of(*batches)])
    return response


async def commit(publisher: RawPublisher, batch: int, *parts: tuple[int, int], query: str = QUERY, **more: Any) -> None:
    publisher.sequence += 1
    listed = [pb.PublishRequest.Commit.Part(partition=partition, attempt=attempt) for partition, attempt in parts]
    fields: dict[str, Any] = {"sequence": publisher.sequence, "query": query, "batch": batch, "parts": listed}
    await publisher.write(commit=pb.PublishRequest.Commit(**fields | more))


def staging_of(world: World) -> Staging:
    return world.server._registry.staging


async def until(claim: Callable[[], Any]) -> None:
    while not claim():  # noqa: ASYNC110  # there is no event for it
        await asyncio.sleep(0.001)
