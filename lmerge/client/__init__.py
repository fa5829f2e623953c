"""The client library: publish a replica's stream, subscribe to a merged one, ask a server.

``Publisher`` and ``Subscriber`` block; ``AsyncPublisher`` and ``AsyncSubscriber`` are for asyncio.
"""

from __future__ import annotations

from lmerge.client.blocking import Publisher, Subscriber
from lmerge.client.describe import describe_merge, describe_server, list_merges
from lmerge.client.follower import SubscriptionGap
from lmerge.client.publisher import AsyncPublisher
from lmerge.client.subscriber import AsyncSubscriber, RowChange

__all__ = [
    "AsyncPublisher",
    "AsyncSubscriber",
    "Publisher",
    "RowChange",
    "Subscriber",
    "SubscriptionGap",
    "describe_merge",
    "describe_server",
    "list_merges",
]
