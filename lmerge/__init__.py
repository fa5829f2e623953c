"""lmerge: merges the streams of N replicas of a continuous query into one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmerge.client import (
        AsyncPublisher,
        AsyncSubscriber,
        AsyncView,
        FastForward,
        Heartbeat,
        Origin,
        Publisher,
        PublisherLimits,
        Security,
        Subscriber,
        SubscriberLimits,
        SubscriptionGap,
        View,
    )
    from lmerge.client.views.view import view
    from lmerge.core import adapters

__version__ = "0.1.0"

__all__ = [
    "AsyncPublisher",
    "AsyncSubscriber",
    "AsyncView",
    "FastForward",
    "Heartbeat",
    "Origin",
    "Publisher",
    "PublisherLimits",
    "Security",
    "Subscriber",
    "SubscriberLimits",
    "SubscriptionGap",
    "View",
    "__version__",
    "adapters",
    "view",
]


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: a program that needs only the core does not load gRPC."""
    if name == "view":
        from lmerge.client.views.view import view

        return view
    if name == "adapters":
        from lmerge.core import adapters

        return adapters
    if name in __all__:
        from lmerge import client

        return getattr(client, name)
    raise AttributeError(f"module 'lmerge' has no attribute {name!r}")
