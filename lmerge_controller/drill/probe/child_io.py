"""How the processes of the probe talk with the drill: JSON lines on standard input and output.

A process ends when its standard input ends. So none is left behind when the drill is killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Final

from lmerge import terminal

# The truth, addresses and credentials of one process are a few kilobytes.
LINE_BYTES_MAX: Final = 1 << 20


async def standard_input() -> asyncio.StreamReader:
    """Return the standard input of this process as a stream of lines."""
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def next_message(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Return the next message. None: the drill has ended."""
    line = await reader.readline()
    if not line.endswith(b"\n"):
        return None
    message: dict[str, Any] = json.loads(line)
    return message


def send_event(event: str, **values: Any) -> None:
    """Send a message to the drill."""
    terminal.json_lines(json.dumps({"event": event, **values}) + "\n")
    terminal.flush()
