"""The child processes of `lmerge demo`: servers and replicas, which are never left behind.

Called by `servers` and `fleet`. Children run in sessions of their own, so that Ctrl-C in the terminal reaches only the
demo, which then ends them in order. If the demo itself is killed, replicas end because their standard input ends, and
servers end because Linux sends them a signal when their parent dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmerge.errors import Unavailable

READY_S_MAX = 30.0  # importing gRPC takes less than a second; a loaded CI machine may take many times as long
END_S_MAX = 10.0  # a drain takes much less than a second; after that time the process is killed
STDERR_LINES_SHOWN = 12
# PR_SET_PDEATHSIG survives exec. The child calls it itself: a hook between fork and exec would make Python fork the
# parent with the threads of gRPC in it.
_BIND = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, int(sys.argv[1])); os.execvp(sys.argv[2], sys.argv[2:])"


def bound(command: Sequence[str], number: signal.Signals = signal.SIGTERM) -> list[str]:
    """Return a command that runs ``command`` and gets a signal when the process that starts it ends (on Linux)."""
    if sys.platform != "linux":
        return [*command]
    return [sys.executable, "-S", "-c", _BIND, str(int(number)), *command]


class Child:
    """One child process.

    ``messages``: the JSON lines that it has written. ``is_bound``: it ends with its parent. ``group``: it has children
    of its own, which are killed with it.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        folder: Path,
        *,
        is_bound: bool = False,
        group: bool = False,
    ) -> None:
        self.name = name
        self._is_group = group
        self.messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._stderr = (folder / f"{name}.log").open("ab+")
        command = [sys.executable, "-m", module, *arguments]
        self._process = subprocess.Popen(
            bound(command) if is_bound else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
        )
        threading.Thread(target=self._read, name=f"output of {name}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def send(self, **message: object) -> None:
        """Write a line of JSON to its standard input. Raises Unavailable if it has ended."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self.failure("does not read its standard input") from error

    def kill(self) -> None:
        """Kill it with SIGKILL: it cannot flush or save anything."""
        self._kill()
        self._process.wait()
        self._close()

    def ask_to_end(self) -> None:
        """Send SIGTERM, without waiting."""
        if self.exit_code is None:
            self._process.terminate()

    def end(self, *, at_s: float) -> None:
        """Send SIGTERM and wait. Kill it if it still runs at monotonic time ``at_s``."""
        self.ask_to_end()
        if self.exit_code is None:
            try:
                self._process.wait(max(at_s - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                self._kill()
                self._process.wait()
        self._close()

    def failure(self, problem: str) -> Unavailable:
        """Return an error with the state of the process and the end of its log."""
        code = self.exit_code
        how = "is running" if code is None else _how_it_ended(code)
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").splitlines()[-STDERR_LINES_SHOWN:]
        log = "\n".join(f"    {line}" for line in lines) or "    (nothing)"
        return Unavailable(f"{self.name} {problem}; it {how}. The end of its log:\n{log}")

    def _kill(self) -> None:
        if self._is_group:
            os.killpg(self._process.pid, signal.SIGKILL)  # it leads a session, so its group has its process id
        else:
            self._process.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                try:
                    self.messages.put(json.loads(line))
                except ValueError:
                    continue  # a line that is no message

    def _close(self) -> None:
        for stream in (self._process.stdin, self._stderr):
            if stream is not None and not stream.closed:
                with contextlib.suppress(OSError):  # a line that was not written to a process that was killed
                    stream.close()


def _how_it_ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
