"""The stream of one subscriber: snapshot or history, then deltas and progress (SUBSCRIBE in ``lmerge.proto``).

The snapshot or history is taken, and the queue registered, at one point of the merge's output. It is encoded, or read
from the store, piece by piece while it is sent. So a large one takes no room in the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from lmerge.service.call_context import CallContext
from lmerge.service.merge.hub import Hub
from lmerge.service.merge.registry import Registry
from lmerge.service.output.fanout import Message, SubscriberQueue, encoded
from lmerge.service.output.pipeline import Beginning
from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.names import check_name
from lmerge.wire.token import read_token


async def serve_subscriber(
    request: pb.SubscribeRequest, context: CallContext, registry: Registry, settings: Settings
) -> None:
    """Serve one call of Subscribe. Raises the LmergeError that ended it."""
    check_name("merge", request.merge)
    name = request.subscriber or f"anonymous at {context.peer()}"
    check_name("subscriber", name)
    hub = await registry.wait_for(request.merge) if request.wait_for_merge else registry.get(request.merge)
    token = read_token(request.resume_token, request.merge) if request.resume_token else None
    subscriber = SubscriberQueue(
        name,
        context.peer(),
        settings.subscriber_queue_bytes,
        takes_marks=request.marks,
        epoch=None if token is None else token.epoch,
    )
    resume_at = None if token is None else token.time
    try:
        beginning = await hub.subscriptions.subscribe(
            subscriber, resume_at, snapshot_if_too_old=request.snapshot_if_too_old
        )
        # Sent first: a subscriber that is cut off at once has been accepted, and may subscribe again.
        await context.write(pb.SubscribeResponse(snapshot_begin=_begin(beginning)).SerializeToString())
        sender = asyncio.create_task(_send(context, subscriber, beginning, hub, settings))
        try:
            await asyncio.wait((sender, subscriber.cut), return_when=asyncio.FIRST_COMPLETED)
            if subscriber.cut.done():
                raise subscriber.cut.result()
            sender.result()
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
    finally:
        hub.subscriptions.unsubscribe(subscriber)


async def _send(
    context: CallContext, subscriber: SubscriberQueue, beginning: Beginning, hub: Hub, settings: Settings
) -> None:
    """Send until the subscription ends. Raises the LmergeError that ended it."""
    write, take = context.write, subscriber.take
    async for message in _past(beginning, hub, settings):
        await write(message.data)
        subscriber.sent_elements += message.elements
    del beginning
    await write(pb.SubscribeResponse(snapshot_end=pb.SubscribeResponse.SnapshotEnd()).SerializeToString())
    written = hub.subscriptions.written
    while True:
        data = await take()
        await write(data)
        written(subscriber, len(data))


def _begin(beginning: Beginning) -> pb.SubscribeResponse.SnapshotBegin:
    begin = pb.SubscribeResponse.SnapshotBegin(
        stable_point=beginning.stable_point,
        events=beginning.events,
        complete_from=beginning.complete_from,
        epoch=beginning.epoch,
    )
    if beginning.schema is not None:
        begin.schema.CopyFrom(beginning.schema)
    return begin


async def _past(beginning: Beginning, hub: Hub, settings: Settings) -> AsyncIterator[Message]:
    """Give the live events of now, or those of an earlier time and everything emitted since."""
    live, history = beginning.live, beginning.history
    if history is not None:
        live = history.snapshot
    if live is not None:
        for message in encoded([live], hub.frames, settings.batch_limits):
            yield message
    if history is not None:
        for message in history.messages:
            yield message
        if history.snapshot is None:
            async for message in hub.subscriptions.past(history):
                yield message
