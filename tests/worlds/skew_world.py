"""Helpers of the tests of version skew: two versions of lmerge, each installed in a folder of its own.

A process runs one version: its folder stands first in PYTHONPATH, and what lmerge depends on comes from the environment
of the tests. Python runs with -S, without that environment's own .pth files: they would add the modules of the version
under test that another one does not have, such as a native core. The version of a commit is built from git's own copy
of it, without the native core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent.parent
MERGE: Final = "flights"
WAIT_S_MAX: Final = 60.0
INSTALLED: Final = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
STEP: Final = 10  # units of time from one stable to the next


@dataclass(frozen=True)
class InstalledVersion:
    """An installed version. ``folder``: the folder that contains the package ``lmerge``."""

    name: str
    folder: Path

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command of this version, in a folder without a package ``lmerge``."""
        command = [sys.executable, "-S", "-m", "lmerge", *arguments]
        return subprocess.Popen(command, cwd=self.folder.parent, env=self._environment(), text=True, **options)

    def path(self, module: str) -> str:
        """Return the path from which its processes import ``module``, which may be "None" if they have none."""
        program = f"import importlib.util as u; spec = u.find_spec({module!r}); print(spec and spec.origin)"
        command = [sys.executable, "-S", "-c", program]
        printed = subprocess.run(
            command, cwd=self.folder.parent, env=self._environment(), capture_output=True, check=True
        )
        return printed.stdout.decode().strip()

    def _environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": os.pathsep.join([str(self.folder), *INSTALLED])}


def version_of(commit: str, folder: Path) -> InstalledVersion:
    """Install the package of ``commit`` into ``folder``. Skips the test if git does not have the commit."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"git has no commit {commit} here: {archive.stderr.decode(errors='replace').strip()}")
    source, site = folder / "source", folder / "site"
    source.mkdir()
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    environment = {name: value for name, value in os.environ.items() if name != "LMERGE_REQUIRE_NATIVE"}
    built = subprocess.run(
        [*install, "--target", str(site), str(source)],
        env=environment | {"PATH": str(Path(sys.executable).parent)},  # no cargo: what is tested is the wire
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return InstalledVersion(commit, site)


def this_version() -> InstalledVersion:
    return InstalledVersion("this one", ROOT)


class SkewedServer:
    """A server process, which can be replaced by one of another version at the same address."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def run(self, version: InstalledVersion) -> None:
        """Stop the present process with SIGTERM, as an upgrade does, and start one of ``version``."""
        self.stop()
        ready = self._folder / "ready.json"
        ready.unlink(missing_ok=True)
        options = ("--port", str(self.port), "--http-port", "0", "--ready-file", str(ready))
        self._process = version.start("serve", *options, stderr=subprocess.DEVNULL)
        while not ready.exists():
            assert self._process.poll() is None, f"the server of {version.name} ended with {self._process.returncode}"
            os.sched_yield()
        self.port = json.loads(ready.read_text())["port"]

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(WAIT_S_MAX)


class SkewedReplica:
    """A publisher process that reads its stream from standard input. A new one begins at the first element."""

    def __init__(self, name: str, servers: str) -> None:
        self._name, self._servers = name, servers
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[str] = []

    def run(self, version: InstalledVersion) -> None:
        """Kill the present process, and start one of ``version`` that publishes everything again."""
        self.stop()
        options = ("--replica", self._name, "--server", self._servers, "--property", "key")
        self._process = version.start("publish", MERGE, *options, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self._write(self._lines)

    def publish(self, lines: list[str]) -> None:
        self._lines += lines
        self._write(lines)

    def end(self) -> None:
        """Publish the end of the stream and wait until everything is merged."""
        self.publish(['{"op":"stable","vc":"inf"}'])
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(WAIT_S_MAX) == 0, self._name

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_S_MAX)
            with suppress(OSError):
                assert self._process.stdin is not None
                self._process.stdin.close()

    def _write(self, lines: list[str]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.writelines(f"{line}\n" for line in lines)
        self._process.stdin.flush()


@dataclass
class SkewedReader:
    """A subscriber process that prints final events and tokens. ``events``: what came up to its last token."""

    servers: str
    events: list[str] = field(default_factory=list)
    token: str = f"{MERGE}@0"

    def __post_init__(self) -> None:
        self._changed = Condition()
        self._process: subprocess.Popen[str] | None = None
        self._thread: Thread | None = None

    def run(self, version: InstalledVersion) -> None:
        """Kill the present process, and start one of ``version`` that goes on at the last token."""
        self.stop()
        options = ("--server", self.servers, "--envelope", "final", "--resume", self.token)
        self._process = version.start("subscribe", MERGE, *options, stdout=subprocess.PIPE)
        self._thread = Thread(target=self._read, args=(self._process,), daemon=True)
        self._thread.start()

    def until(self, token: str) -> None:
        """Wait until everything before ``token`` was read."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.token == token, WAIT_S_MAX), (self.token, token)

    def stop(self) -> None:
        if self._process is not None and self._thread is not None:
            self._process.kill()
            self._process.wait(WAIT_S_MAX)
            self._thread.join(WAIT_S_MAX)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        waiting: list[str] = []
        with process.stdout:
            for line in process.stdout:
                if not line.endswith("\n"):
                    return  # the process was killed as it wrote
                printed = json.loads(line)
                if printed["op"] != "token":
                    waiting.append(printed["payload"])
                    continue
                with self._changed:
                    self.events += waiting
                    self.token, waiting = printed["token"], []
                    self._changed.notify_all()


class Skewed:
    """Two servers, two replicas and a reader."""

    def __init__(self, folder: Path) -> None:
        self.servers = [SkewedServer(folder / name) for name in "12"]
        self.replicas: list[SkewedReplica] = []
        self.reader = SkewedReader("")
        self._steps = 0

    def begin(self, version: InstalledVersion) -> None:
        """Start all processes as ones of ``version``."""
        for server in self.servers:
            server.run(version)
        addresses = ",".join(server.address for server in self.servers)
        self.replicas = [SkewedReplica(name, addresses) for name in "ab"]
        self.reader = SkewedReader(addresses)
        for client in self.clients:
            client.run(version)

    def step(self) -> None:
        """Publish one more event and wait until the reader has it."""
        self._steps += 1
        start = STEP * self._steps
        event = {"op": "insert", "payload": f"event {self._steps}", "vs": start, "ve": start + 2}
        lines = [json.dumps(event), json.dumps({"op": "stable", "vc": start + 5})]
        for replica in self.replicas:
            replica.publish(lines)
        self.reader.until(f"{MERGE}@{start + 5}")

    def end(self) -> None:
        """End all streams and wait until the reader has everything."""
        for replica in self.replicas:
            replica.end()
        self.reader.until(f"{MERGE}@inf")

    @property
    def expected(self) -> list[str]:
        return [f"event {at}" for at in range(1, self._steps + 1)]

    def stop(self) -> None:
        for part in (*self.clients, *self.servers):
            with suppress(subprocess.TimeoutExpired):
                part.stop()

    @property
    def clients(self) -> list[SkewedReplica | SkewedReader]:
        return [*self.replicas, self.reader]


@contextmanager
def skewed(version: InstalledVersion, folder: Path) -> Iterator[Skewed]:
    """Run a ``Skewed`` that begins with ``version``; all of its processes end with the test."""
    world = Skewed(folder)
    try:
        world.begin(version)
        yield world
    finally:
        world.stop()
