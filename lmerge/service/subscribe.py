"""One subscriber's stream: snapshot, then deltas and progress (SUBSCRIBE of the wire document).

The snapshot is taken and the queue registered in one step of the hub; the snapshot is encoded piece by piece while
it is sent, so a large one costs no queue.
"""

from __future__ import annotations

import asyncio
from typing import Any

from lmerge.core.batch import AnyBatch
from lmerge.service.fanout import Subscriber, encoded
from lmerge.service.publish import check_name
from lmerge.service.registry import Registry
from lmerge.service.settings import Settings
from lmerge.wire.frames import Frames
from lmerge.wire.generated import lmerge_pb2 as pb


async def serve_subscriber(
    request: pb.SubscribeRequest, context: Any, registry: Registry, settings: Settings
) -> None:
    """Serve one call of Subscribe; ends by raising the LmergeError that ended it."""
    check_name("merge", request.merge, settings.name_bytes)
    name = request.subscriber or f"anonymous at {context.peer()}"
    check_name("subscriber", name, settings.name_bytes)
    hub = await registry.wait_for(request.merge) if request.wait_for_merge else registry.get(request.merge)
    subscriber = Subscriber(name, context.peer(), settings.subscriber_queue_bytes)
    try:
        snapshot, stable_point, schema = await hub.subscribe(subscriber)
        sender = asyncio.create_task(_send(context, subscriber, snapshot, stable_point, schema, hub.frames, settings))
        try:
            await asyncio.wait((sender, subscriber.cut), return_when=asyncio.FIRST_COMPLETED)
            if subscriber.cut.done():
                raise subscriber.cut.result()
            sender.result()
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
    finally:
        hub.unsubscribe(subscriber)


async def _send(
    context: Any, subscriber: Subscriber, snapshot: AnyBatch, stable_point: int, schema: pb.Schema | None,
    frames: Frames, settings: Settings,
) -> None:
    """Until the subscriber is finished: raises LmergeError then."""
    write, take = context.write, subscriber.take
    begin = pb.SubscribeResponse.SnapshotBegin(stable_point=stable_point, events=snapshot.counts(snapshot.count)[0])
    if schema is not None:
        begin.schema.CopyFrom(schema)
    await write(pb.SubscribeResponse(snapshot_begin=begin).SerializeToString())
    for message, elements in encoded([snapshot], frames, settings.batch_limits):
        await write(message)
        subscriber.sent_elements += elements
    del snapshot
    await write(pb.SubscribeResponse(snapshot_end=pb.SubscribeResponse.SnapshotEnd()).SerializeToString())
    while True:
        await write(await take())


