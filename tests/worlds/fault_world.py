"""Real servers and replicas in processes of their own, which a test kills, stops, and starts again."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import paced_replica_app
from prometheus_world import Daemon

MERGE = "flights"


class Fleet:
    """The servers and replicas of one merge: ``with Fleet(folder) as fleet``. All of them end with the block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: dict[str, RunningServer] = {}
        self.replicas: dict[str, Daemon] = {}
        self._started: list[Daemon] = []
        self._epoch_s = time.time()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._started):
            daemon.kill()

    @property
    def targets(self) -> dict[str, list[str]]:
        """The HTTP ports, as Prometheus takes them."""
        return {"lmerge": [f"127.0.0.1:{server.http_port}" for server in self.servers.values()]}

    @property
    def addresses(self) -> str:
        """The servers, as a client takes them."""
        return ",".join(f"127.0.0.1:{server.port}" for server in self.servers.values())

    async def serve(self, name: str = "h1", *options: str) -> RunningServer:
        """Start a server, at its former ports if it ran before."""
        before = self.servers.get(name)
        ready = self.folder / f"{name}.ready.json"
        ready.unlink(missing_ok=True)
        ports = ["--port", str(before.port if before else 0), "--http-port", str(before.http_port if before else 0)]
        command = [sys.executable, "-m", "lmerge", "serve", *ports, "--ready-file", str(ready), *options]
        server = RunningServer(self._start(name, command))
        self.servers[name] = server
        await server.bound(ready)
        return server

    def replicate(self, name: str, *options: str, merge: str = MERGE) -> Daemon:
        """Start a replica, which publishes from the first tick on."""
        app = [sys.executable, paced_replica_app.__file__, self.addresses, merge, name, repr(self._epoch_s)]
        self.replicas[name] = daemon = self._start(name, [*app, *options])
        return daemon

    def subscribe(self, name: str, merge: str = MERGE) -> Daemon:
        """Start a subscriber that reads as fast as it can."""
        command = [sys.executable, "-m", "lmerge", "subscribe", merge, "--server", self.addresses, "--name", name]
        self.replicas[name] = daemon = self._start(name, command)
        return daemon

    def tick(self) -> int:
        """Return the tick that is due now."""
        return int((time.time() - self._epoch_s) * 1e6) // paced_replica_app.TICK_US

    def _start(self, name: str, command: list[str]) -> Daemon:
        daemon = Daemon(command, self.folder / f"{name}.log")
        self._started.append(daemon)
        return daemon


class RunningServer:
    """A server process and its ports."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.port = self.http_port = 0

    async def bound(self, ready: Path) -> None:
        """Wait until the server has written its ports."""
        ports: dict[str, Any] = json.loads(await _text_of(ready, self.daemon))
        self.port, self.http_port = ports["port"], ports["http_port"]


async def _text_of(file: Path, daemon: Daemon) -> str:
    while not (text := _text_in(file)):
        assert daemon.process.poll() is None, daemon.log.read_text()[-3000:]
        await asyncio.sleep(0.005)
    return text


def _text_in(file: Path) -> str:
    return file.read_text() if file.exists() else ""
