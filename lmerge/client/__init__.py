"""The client library: publish a replica's stream, subscribe to a merged one, ask a server.

``Publisher`` and ``Subscriber`` block; ``AsyncPublisher`` and ``AsyncSubscriber`` are for asyncio.
"""

from __future__ import annotations

from lmerge.client.blocking import Publisher, Subscriber
from lmerge.client.describe import describe_merge, describe_server, list_merges
from lmerge.client.envelopes import Delete, Delivery, FinalEvent, Retract, RowKey, Upsert
from lmerge.client.fastforward import FastForward, SkippedRange
from lmerge.client.follower import SubscriptionGap
from lmerge.client.publisher import AsyncPublisher
from lmerge.client.security import Security
from lmerge.client.streams import Connector
from lmerge.client.subscriber import AsyncSubscriber, RowChange, SourceStatus
from lmerge.client.view import AsyncView, View

__all__ = [
    "AsyncPublisher",
    "AsyncSubscriber",
    "AsyncView",
    "Connector",
    "Delete",
    "Delivery",
    "FastForward",
    "FinalEvent",
    "Publisher",
    "Retract",
    "RowChange",
    "RowKey",
    "Security",
    "SkippedRange",
    "SourceStatus",
    "Subscriber",
    "SubscriptionGap",
    "Upsert",
    "View",
    "describe_merge",
    "describe_server",
    "list_merges",
]
