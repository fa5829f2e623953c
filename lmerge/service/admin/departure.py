"""The planned end of a server: it announces its end, and goes on until its clients have left.

Called by ``server`` for Drain. Whatever directs new connections (a Service of Kubernetes, a load balancer, DNS) needs
some seconds until it leaves a server out. A server that ended at once would refuse what still comes to it. So the
announced server is not ready, and serves as before, also newcomers. After that the server ends as it does by SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from lmerge.errors import UsageError
from lmerge.service import log
from lmerge.service.merge.registry import Registry
from lmerge.wire.generated import lmerge_pb2 as pb

# Longer than any load balancer takes; a call that lasts for ever is a mistake.
WAIT_S_MAX: Final = 3600.0
# How often the streams are counted: short against the wait, and cheap, a sum over the merges.
_COUNT_S: Final = 0.05


class Departure:
    """The announced end of the server of ``registry``."""

    def __init__(self, registry: Registry) -> None:
        self.is_announced = False
        self._registry = registry

    def announce(self, wait_s: float, caller: str) -> None:
        """Be not ready from now on. Raises UsageError if ``wait_s`` is out of range; nothing has changed then."""
        if not 0 <= wait_s <= WAIT_S_MAX:
            raise UsageError(f"the wait of a drain must be from 0 to {WAIT_S_MAX:.0f} seconds, not {wait_s}")
        self.is_announced = True
        log.event(logging.INFO, "server leaves", wait_s=wait_s, caller=caller)

    async def wait(self, wait_s: float) -> pb.DrainResponse:
        """Wait until no stream is left, at most ``wait_s``. Return what is left."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while True:
            left = self._left()
            left.waited_seconds = loop.time() - began_s
            if left.waited_seconds >= wait_s or not (left.publishers or left.subscribers):
                return left
            await asyncio.sleep(min(_COUNT_S, wait_s - left.waited_seconds))

    def _left(self) -> pb.DrainResponse:
        hubs = self._registry.hubs.values()
        return pb.DrainResponse(
            publishers=sum(len(hub.state.observed.inputs) for hub in hubs),
            subscribers=sum(len(hub.state.subscribers) for hub in hubs),
        )
