"""`lmerge up` as a real process, on queries of ticking replicas, and always ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ticking_app
from cli_world import LMERGE

from lmerge.client import Subscriber
from lmerge.core.tdb import reconstitute
from lmerge.files import replace
from lmerge_controller.local.process_table import end_all, marked
from lmerge_controller.local.state_folder import StateFolder

SECONDS_MAX = 90.0
RATE = 50
# Far more than a replica takes to look at the file.
END_AFTER_S = 3.0
# In the folder of the description, where replicas run.
END_FILE = "end"


class Up:
    """The runs of one query below ``folder``. A context manager that ends all of it, also after a failure."""

    def __init__(self, folder: Path, name: str = "ticks") -> None:
        self.folder, self.name = folder, name
        self.state = StateFolder(folder / ".lmerge" / name)
        self.output = folder / "output.txt"
        self.process: subprocess.Popen[bytes] | None = None
        self.marks: set[str] = set()

    def __enter__(self) -> Up:
        return self

    def __exit__(self, *error: object) -> None:
        self._note_mark()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        holder = self.state.holder()
        if holder is not None:
            holder.signal(signal.SIGKILL)
        for mark in self.marks:
            end_all(mark, self.state.recorded())

    def describe(self, file: str, versions: str, **fields: str) -> Path:
        """Write a description and return its path. ``versions``: lines of YAML; ``fields``: of the spec, in YAML."""
        more = "".join(f"  {name}: {text}\n" for name, text in ({"replicas": "2"} | fields).items())
        path = self.folder / file
        path.write_text(
            "apiVersion: lmerge.dev/v1alpha1\nkind: ReplicatedQuery\n"
            f"metadata: {{name: {self.name}}}\nspec:\n"
            "  merge: {certifyInterval: 10}\n  servers: {count: 2}\n"
            "  restart: {backoffSeconds: 0.1, backoffMaxSeconds: 1}\n"
            f"  versions:\n{versions}{more}"
        )
        return path

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of lmerge in the folder to its end."""
        done = subprocess.run(
            [*LMERGE, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=3 * SECONDS_MAX,
            check=False,
            env=os.environ | {"COLUMNS": "200"},
        )
        self._note_mark()
        return done

    def start(self, file: Path) -> None:
        """Start `lmerge up` in the foreground."""
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*LMERGE, "up", str(file)], cwd=self.folder, stdout=output, stderr=output, start_new_session=True
            )
        self.until(lambda status: bool(status["processes"]))

    def until(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the status of the run when it fits."""
        until_s = time.monotonic() + SECONDS_MAX
        while True:
            self._note_mark()
            status = self.state.read("status")
            if status and fits(status):
                return status
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(self.output.read_text())
            assert time.monotonic() < until_s, json.dumps(status, indent=1) + self.logs()
            time.sleep(0.005)

    def settled(self, version: str, count: int = 2) -> dict[str, Any]:
        """Return the status when ``count`` replicas of a version have joined, and it is the only one that runs."""
        return self.until(
            lambda status: (
                status["serving"] == version
                and len(status["joined"]) == count
                and {found["version"] for found in status["processes"] if found["kind"] == "replica"} == {version}
            )
        )

    def end_stream(self) -> int:
        """Let the stream end soon, at the same event on all replicas; return that event."""
        started_s = self.state.read("record")["started_s"]
        end = int((time.time() - started_s + END_AFTER_S) * RATE)
        replace(self.folder / END_FILE, b"%d" % end, sync=False)
        return end

    def left(self) -> list[int]:
        """Return the processes of all runs that still run."""
        return [process.pid for mark in self.marks for process in marked(mark)]

    def logs(self) -> str:
        """Return the ends of all logs."""
        paths = sorted((self.state.path / "logs").glob("*.log"))
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in paths)

    def _note_mark(self) -> None:
        mark = self.state.read("run").get("mark")
        if isinstance(mark, str):
            self.marks.add(mark)


def version(name: str, **environment: object) -> str:
    """Return the lines of a version whose replicas tick. Their stream ends when ``Up.end_stream`` is called."""
    pairs = {"TICKS_S": RATE, "END_FILE": END_FILE} | environment
    env = ", ".join(f'{key}: "{value}"' for key, value in pairs.items())
    program = json.dumps([sys.executable, ticking_app.__file__])
    return f"    - name: {name}\n      run: {{command: {program}}}\n      env: {{{env}}}\n"


def process(status: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a process of a status."""
    return next(found for found in status["processes"] if found["name"] == name)


class TicksReader:
    """A subscriber in a thread, from the beginning of the stream to its end."""

    def __init__(self, addresses: list[str], merge: str) -> None:
        self._subscriber = Subscriber(",".join(addresses), merge, resume=f"{merge}@-inf")
        self._elements: list[Any] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def table(self) -> list[tuple[int, int, bytes]]:
        """Return start, end and payload of every event, in order, when the stream has ended; twice if it came twice."""
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive()
        return sorted((event.vs, event.ve, event.payload) for event in reconstitute(self._elements))

    def _read(self) -> None:
        with self._subscriber as subscriber:
            for element in subscriber:
                self._elements.append(element)
