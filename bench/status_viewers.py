"""Keeps status pages open: ``python -m bench.status_viewers PORT COUNT``. Prints the bytes that came in the end."""

from __future__ import annotations

import asyncio
import signal
import sys

from bench.harness import exit_on_help

_REQUEST = b"GET /status/live?merge=bench HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def view(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, came: list[int]) -> None:
    """Read one event stream until the task ends."""
    try:
        writer.write(_REQUEST)
        while data := await reader.read(2**16):
            came[0] += len(data)
    finally:
        writer.close()


async def main(port: int, count: int) -> None:
    came = [0]
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    views = [asyncio.create_task(view(reader, writer, came)) for reader, writer in opened]
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print("ready", flush=True)
    await ended.wait()
    for one in views:
        one.cancel()
    print(came[0], flush=True)


if __name__ == "__main__":
    exit_on_help(__doc__)
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
