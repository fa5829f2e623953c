"""The client library: publish a replica's stream, subscribe to a merged one, query a server.

``Publisher`` and ``Subscriber`` block; ``AsyncPublisher`` and ``AsyncSubscriber`` are for asyncio.

Called by users, replicas, the connector and the commands. Imports the wire and the core, never the service.
"""

from __future__ import annotations

from lmerge.client.blocking import Publisher, Subscriber
from lmerge.client.connection.security import Security
from lmerge.client.connection.streams import Connector
from lmerge.client.describe import describe_merge, describe_server, list_merges
from lmerge.client.publish.arguments import Heartbeat, Origin, PublisherLimits
from lmerge.client.publish.fast_forward import FastForward, SkippedRange
from lmerge.client.publish.publisher import AsyncPublisher
from lmerge.client.subscribe.envelopes import Delete, Delivery, FinalEvent, Retract, RowKey, Upsert
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.client.subscribe.subscriber import AsyncSubscriber, RowChange, SourceStatus, SubscriberLimits
from lmerge.client.views.view import AsyncView, View

__all__ = [
    "AsyncPublisher",
    "AsyncSubscriber",
    "AsyncView",
    "Connector",
    "Delete",
    "Delivery",
    "FastForward",
    "FinalEvent",
    "Heartbeat",
    "Origin",
    "Publisher",
    "PublisherLimits",
    "Retract",
    "RowChange",
    "RowKey",
    "Security",
    "SkippedRange",
    "SourceStatus",
    "Subscriber",
    "SubscriberLimits",
    "SubscriptionGap",
    "Upsert",
    "View",
    "describe_merge",
    "describe_server",
    "list_merges",
]
