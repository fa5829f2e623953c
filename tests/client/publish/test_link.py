"""The link that the tests of the client cut leaves nothing open, whenever it is stopped."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress

import pytest
from client_world import CuttableLink

PASSES = 12  # of the loop, from connecting to both pumps waiting; the link is stopped after each


@pytest.mark.parametrize("passes", range(PASSES))
async def test_a_link_that_is_stopped_while_it_opens_a_connection_leaves_nothing_open(passes: int) -> None:
    far = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    link = CuttableLink()
    link.port_to = far.sockets[0].getsockname()[1]
    await link.start()
    host, port = link.target.split(":")
    opening = asyncio.create_task(asyncio.open_connection(host, int(port)))
    for _ in range(passes):
        await asyncio.sleep(0)
    await link.stop()
    with suppress(OSError):  # a link that is gone accepts no connection
        _, writer = await opening
        writer.transport.abort()
    far.close()
    del link, opening
    gc.collect()  # the destructor of what was left open warns, and that fails the test
