"""A merge as an input of another: a hierarchy of merges (a reader of one that is a replica of the next).

The relay reads all servers of the one merge as a subscriber does and publishes what it reads to all servers of the
other as one replica. It has nothing to keep: after a restart it attaches again, as a newer incarnation that joins at
the point from which its own subscription is complete. A gap upstream makes it join again at the end of the gap, so the
merge below takes what lies in it from its other inputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lmerge.client.connection.streams import Connector, parse_targets
from lmerge.client.publish.arguments import Origin, PublisherLimits
from lmerge.client.publish.publisher import AsyncPublisher
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.client.subscribe.subscriber import AsyncSubscriber, SubscriberLimits
from lmerge.core.elements import INF, NEG_INF
from lmerge.wire.names import check_name, cut_name


class Relay:
    """Reads ``merge`` at ``sources`` and publishes it as ``replica`` into ``to_merge`` at ``targets``.

    ``options`` go to the publisher: its promises, such as ``properties=["key"]``, which the relay cannot derive.
    ``give_up_after_s``: after so many seconds without any server, at either end, the relay fails; None: never.
    """

    def __init__(
        self,
        sources: str | Iterable[str],
        merge: str,
        targets: str | Iterable[str],
        replica: str,
        *,
        to_merge: str | None = None,
        give_up_after_s: float | None = None,
        security: Connector | None = None,
        **options: Any,
    ) -> None:
        self.replica = replica
        self.to_merge = to_merge or merge
        for what, name in (("merge", self.to_merge), ("replica", replica)):
            check_name(what, name)
        self.subscriber = AsyncSubscriber(
            sources,
            merge,
            name=cut_name(f"relay {replica}"),
            on_gap=self._jump,
            limits=SubscriberLimits(give_up_after_s=give_up_after_s),
            security=security,
        )
        self.publisher: AsyncPublisher | None = None
        self._targets = parse_targets(targets)
        self._options = {"limits": PublisherLimits(give_up_after_s=give_up_after_s), "security": security, **options}

    async def run(self) -> None:
        """Run until the stream is complete and merged below. Raises what ended the subscriber or the publisher."""
        try:
            async for batch in self.subscriber.batches():
                if self.publisher is None:
                    self.publisher = self._attach()
                await self.publisher.publish(batch)
            if self.publisher is not None:
                await self.publisher.close()
        finally:
            self.subscriber.close()
            if self.publisher is not None:
                await self.publisher.abort()

    def _attach(self) -> AsyncPublisher:
        since = self.subscriber.follower.since
        publisher = AsyncPublisher(
            self._targets,
            self.to_merge,
            self.replica,
            origin=Origin(join_at=since if since > NEG_INF else None),
            **self._options,
        )
        publisher.start()
        return publisher

    def _jump(self, gap: SubscriptionGap) -> None:
        if self.publisher is not None:
            self.publisher.skip_now(min(gap.end, INF - 1))
