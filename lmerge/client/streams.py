"""The two streaming calls, with the messages that carry batches as bytes: ``lmerge.wire.frames`` reads and writes them.

Generated stubs would parse every batch into protobuf's objects first.
"""

from __future__ import annotations

from typing import Any, Final

from lmerge.wire.generated import lmerge_pb2 as pb

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Lmerge"].full_name


def publish(channel: Any) -> Any:
    """A call of Publish: write bytes of PublishRequest, read PublishResponse."""
    open_call = channel.stream_stream(
        f"/{_SERVICE}/Publish", request_serializer=None, response_deserializer=pb.PublishResponse.FromString
    )
    return open_call()


def subscribe(channel: Any, request: pb.SubscribeRequest) -> Any:
    """A call of Subscribe: an iterator over bytes of SubscribeResponse."""
    open_call = channel.unary_stream(
        f"/{_SERVICE}/Subscribe", request_serializer=pb.SubscribeRequest.SerializeToString, response_deserializer=None
    )
    return open_call(request)
