"""The two servers of `lmerge demo`: independent of each other, one of them killed and started again.

Called by `run`. Replicas publish to both and the subscriber reads both, so that neither is a single point of failure.
The demo reads the state of the merge from the first server. The second one is killed.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from lmerge.demo.processes import READY_S_MAX, Child

POLL_S = 0.02
SERVERS = 2


class Servers:
    """Two processes of ``lmerge serve`` on free ports.

    ``addresses``: of both, in the form that clients take. ``closing``: which inputs must have ended for the output to
    end.
    """

    def __init__(self, folder: Path, *, closing: str = "all") -> None:
        """Start both. Raises Unavailable, with its log, if one does not start; then none is left behind."""
        self._folder = folder
        self._closing = closing
        self._ports = [0] * SERVERS
        self._lives = [0] * SERVERS
        self._children: list[Child | None] = [None] * SERVERS
        try:
            for number in range(SERVERS):
                self.start(number)
            for number in range(SERVERS):
                self._wait(number)
        except BaseException:
            self.end(at_s=time.monotonic())
            raise

    @property
    def addresses(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    @property
    def first(self) -> str:
        """The address of the server that is not killed."""
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def up(self) -> int:
        """The number of servers that run."""
        return sum(child is not None for child in self._children)

    def start(self, number: int) -> None:
        """Start a process without waiting, on the port of its earlier life if there was one."""
        self._lives[number] += 1
        self._ready(number).unlink(missing_ok=True)
        port = str(self._ports[number])
        arguments = [
            "serve",
            "--host",
            "127.0.0.1",
            "--port",
            port,
            "--http-port",
            "-1",
            "--closing",
            self._closing,
            "--ready-file",
            str(self._ready(number)),
        ]
        name = f"server-{number + 1}-{self._lives[number]}"
        self._children[number] = Child(name, "lmerge", arguments, self._folder, is_bound=True)

    def check(self) -> None:
        """Raise Unavailable, with its log, if one has ended by itself."""
        for child in self._children:
            if child is not None and child.exit_code is not None:
                raise child.failure("has ended by itself")

    def kill(self, number: int) -> int:
        """Kill a server with SIGKILL. Return the process id that it had."""
        child = self._children[number]
        assert child is not None
        child.kill()
        self._children[number] = None
        return child.pid

    def end(self, *, at_s: float) -> None:
        """End all. Those that still run at monotonic time ``at_s`` are killed."""
        children = [child for child in self._children if child is not None]
        for child in children:
            child.ask_to_end()
        for child in children:
            child.end(at_s=at_s)

    def _ready(self, number: int) -> Path:
        return self._folder / f"server-{number + 1}.json"

    def _wait(self, number: int) -> None:
        child = self._children[number]
        assert child is not None
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline:
            if child.exit_code is not None:
                raise child.failure("did not start")
            port = _port(self._ready(number))
            if port is not None:
                self._ports[number] = port
                return
            time.sleep(POLL_S)
        raise child.failure(f"was not ready after {READY_S_MAX:.0f} s")


def _port(ready: Path) -> int | None:
    """Return the port in a server's ready file, or None if there is no such file yet."""
    try:
        return int(json.loads(ready.read_text())["port"])
    except (OSError, ValueError):
        return None
