"""Starts, breaks and restarts servers, replicas, links and the judge. ``kills`` and ``soak`` decide when.

Every client reaches every server over a link of its own. So each connection can be cut and stalled alone, and a server
that restarts on another port has the same address for its clients.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

from bench.rig import judge, links, replica
from bench.rig.judge import OutputProgress, StreamVerdict
from bench.rig.processes import RigProcess, executed, forked
from bench.rig.replica import ReplicaSpec
from bench.rig.stream import ReferenceStream
from bench.rig.wan import Wan
from lmerge.errors import LmergeError

MERGE = "bench"
READER = "reader"
READY_S_MAX = 30.0
VERDICT_S_MAX = 120.0


@dataclass(frozen=True)
class FleetSpec:
    """What to run.

    ``server_options``: further options of ``lmerge serve``, with ``{server}`` for its name. ``execute``: names of the
    processes that are started as a user would start them. ``resume``: a replica that restarts continues at the stable
    point of the merge instead of joining with the live events. A replica that is the only one must do so.
    """

    reference: ReferenceStream = field(default_factory=ReferenceStream)
    replicas: tuple[str, ...] = ("a", "b", "c")
    lags_s: tuple[float, ...] = (0.0, 0.0, 0.0)
    servers: tuple[str, ...] = ("s1", "s2")
    server_options: tuple[str, ...] = ()
    execute: tuple[str, ...] = ()
    resume: bool = False
    properties: tuple[str, ...] = ("key",)
    events_max: int = 0  # see ``judge.run``


class RigFleet:
    """The processes of a benchmark. Use it in a ``with``: at its end every process has ended.

    ``wan``: the network namespace of the replicas and the reader.
    """

    def __init__(self, spec: FleetSpec, folder: Path, wan: Wan | None = None) -> None:
        self.spec, self.folder = spec, folder
        self._host = wan.near if wan is not None else "127.0.0.1"
        self._enter = wan.enter if wan is not None else None
        self.processes: dict[str, RigProcess] = {}
        self.joined: dict[str, bool] = {}
        self.done: set[str] = set()
        self.verdict: StreamVerdict | None = None
        self.epoch_s = 0.0
        self.output = OutputProgress(0, 0, 0, 0.0)
        self._links: RigProcess
        self._ports: dict[str, int] = {}
        self._lives: dict[str, int] = dict.fromkeys((*spec.replicas, *spec.servers), 0)
        self._ends: int | None = None

    def __enter__(self) -> RigFleet:
        self._links = self.processes["links"] = forked("links", self.folder, links.run, self._host)
        for name in self.spec.servers:
            self.start_server(name)
        for name in self.spec.servers:
            self._await(lambda name=name: self.is_ready(name), f"{name} to be ready")  # type: ignore[misc]
        for client in (*self.spec.replicas, READER):
            for name in self.spec.servers:
                self._ports[f"{client}>{name}"] = self._link("open", f"{client}>{name}", self._ports[name])
        self.epoch_s = time.monotonic() + 1.0
        self.processes[READER] = forked(
            READER,
            self.folder,
            partial(judge.run, events_max=self.spec.events_max),
            self.target(READER),
            MERGE,
            self.spec.reference,
            self.epoch_s,
            before=self._enter,
        )
        for name in self.spec.replicas:
            self.start_replica(name, first=0)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in self.processes.values():
            process.kill()

    def target(self, client: str) -> str:
        """Return the addresses of the servers for a client."""
        return ",".join(f"{self._host}:{self._ports[f'{client}>{name}']}" for name in self.spec.servers)

    # Servers.

    def start_server(self, name: str) -> None:
        """Start a process of ``lmerge serve`` on a free port. ``is_ready`` returns whether it serves."""
        self._lives[name] += 1
        ready = self._ready_file(name)
        options = [option.replace("{server}", name) for option in self.spec.server_options]
        arguments = ["serve", "--port", "0", "--http-port", "-1", *options, "--ready-file", str(ready)]
        if name in self.spec.execute:
            self.processes[name] = executed(name, self.folder, "lmerge", *arguments)
        else:
            self.processes[name] = forked(name, self.folder, _serve, arguments)

    def is_ready(self, name: str) -> bool:
        """Return whether the present process of a server serves. If so, its links lead to it."""
        ready = self._ready_file(name)
        if not ready.exists():
            return False
        port = json.loads(ready.read_text())["port"]
        if self._ports.get(name) != port:
            self._ports[name] = port
            for link in [link for link in self._ports if link.endswith(f">{name}")]:
                self._link("lead", link, port)
        return True

    def _ready_file(self, name: str) -> Path:
        return self.folder / f"{name}.{self._lives[name]}.json"

    # Replicas.

    def start_replica(self, name: str, first: int | None = None) -> None:
        """Start a process that publishes; ``first`` as in ``replica.run``."""
        at = self.spec.replicas.index(name)
        self._lives[name] += 1
        spec = ReplicaSpec(
            name,
            self.target(name),
            MERGE,
            self.spec.reference,
            self.epoch_s,
            salt=at + 1 + 100 * self._lives[name],  # each process publishes another physical form
            lag_s=self.spec.lags_s[at],
            properties=self.spec.properties,
        )
        if first is None:
            first = replica.RESUME if self.spec.resume else replica.JOIN
        self.joined[name] = False
        self.done.discard(name)
        if name in self.spec.execute:
            self.processes[name] = executed(name, self.folder, "bench.rig.replica", given=(spec, first))
        else:
            self.processes[name] = forked(name, self.folder, replica.run, spec, first, before=self._enter)
        if self._ends is not None:
            self._send(name, ("end", self._ends))

    # Links.

    def cut(self, link: str) -> None:
        """Reset the connections of ``client>server``."""
        self._link("cut", link)

    def stall(self, link: str, way: str, seconds: float) -> None:
        """Stop one direction of a link for a time."""
        self._link("stall", link, way, seconds)

    def _link(self, action: str, name: str, *values: Any) -> int:
        assert self._links.pipe is not None
        self._links.pipe.send((action, name, *values))
        return int(self._links.pipe.recv()) if action == "open" else 0

    # Messages.

    def state(self) -> str:
        """Return, for an error message, which replicas have joined, and each server's description of its inputs."""
        from lmerge.client import describe_merge

        lines = [f"joined: {self.joined}, output: {self.output}"]
        for name in self.spec.servers:
            try:
                found = describe_merge(f"127.0.0.1:{self._ports[name]}", MERGE)
            except LmergeError as error:
                lines.append(f"{name}: {error}")
                continue
            inputs = [f"{i.replica} {i.state} stable {i.stable_point} join_at {i.join_at}" for i in found.inputs]
            lines.append(f"{name}: stable {found.summary.stable_point}, complete from {found.complete_from}; {inputs}")
        return "\n".join(lines)

    @property
    def is_whole(self) -> bool:
        """Whether every replica has joined, every server serves and the judge reads all of them."""
        ready = [self.is_ready(name) for name in self.spec.servers]  # of all: it also sets their links
        return (
            all(ready)
            and all(self.joined[name] for name in self.spec.replicas)
            and self.output.servers == len(self.spec.servers)
            and not any(p.is_stopped for p in self.processes.values())
        )

    def read_messages(self, seconds: float) -> None:
        """Read the messages of the processes for some time. Raises RuntimeError if one has ended by itself."""
        until = time.monotonic() + seconds
        while (wait := until - time.monotonic()) > 0:
            pipes = {
                process.pipe: name
                for name, process in self.processes.items()
                if process.pipe is not None and process is not self._links
            }
            for pipe in connection.wait(list(pipes), wait):
                assert isinstance(pipe, connection.Connection)
                name = pipes[pipe]
                try:
                    self._receive(name, pipe.recv())
                except (EOFError, OSError):
                    self.processes[name].pipe = None
        for process in self.processes.values():
            if process.exit_code is not None and self.verdict is None:
                raise process.failure()

    def ask_output(self) -> None:
        """Request the progress of the output; ``read_messages`` reads the answer."""
        self._send(READER, ("at", None))

    def finish(self) -> StreamVerdict:
        """End the streams of all replicas at one event and return the verdict."""
        behind = max(self.spec.lags_s) + 1.0
        self._ends = int((time.monotonic() + behind - self.epoch_s) * self.spec.reference.events_per_s)
        for name in (*self.spec.replicas, READER):
            self._send(name, ("end", self._ends))
        self._await(lambda: self.verdict is not None, "the verdict", VERDICT_S_MAX)
        assert self.verdict is not None
        return self.verdict

    def _receive(self, name: str, message: tuple[Any, ...]) -> None:
        kind, *values = message
        if kind == "joined":
            self.joined[name] = values[0]
        elif kind == "done":
            self.done.add(name)
        elif kind == "at":
            self.output = values[0]
        else:
            assert kind == "verdict"
            self.verdict = values[0]

    def _send(self, name: str, message: tuple[Any, ...]) -> None:
        pipe = self.processes[name].pipe
        assert pipe is not None
        pipe.send(message)

    def _await(self, reached: Callable[[], bool], what: str, seconds: float = READY_S_MAX) -> None:
        until = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > until:
                raise RuntimeError(f"waited {seconds:.0f} s for {what}; {self.state()}")
            self.read_messages(0.01)

    def await_whole(self, seconds: float = READY_S_MAX) -> None:
        """Wait until every replica has joined, every server serves and the judge reads all."""

        def reached() -> bool:
            self.ask_output()
            return self.is_whole

        self._await(reached, "all to join", seconds)


def _serve(arguments: Iterable[str], _pipe: connection.Connection) -> None:
    sys.argv = ["lmerge", *arguments]
    from lmerge.cli.main import main

    main()


def serve(name: str, folder: Path, *options: str) -> tuple[RigProcess, int]:
    """Start one server as a user would. Return its process and its port when it is ready."""
    ready = folder / f"{name}.json"
    process = executed(
        name, folder, "lmerge", "serve", "--port", "0", "--http-port", "-1", *options, "--ready-file", str(ready)
    )
    while not ready.exists():
        if process.exit_code is not None:
            raise process.failure()
        time.sleep(0.005)
    return process, int(json.loads(ready.read_text())["port"])


def import_all() -> None:
    """Import all modules that forked processes use."""
    import grpc.aio

    import lmerge.cli.main
    import lmerge.cli.serve
    import lmerge.client
    import lmerge.service.server

    assert grpc.aio
    assert lmerge
