"""The processes of `lmerge demo`: real servers, real replicas, started, killed, and never left behind.

Called by `demo_servers` and `demo_fleet`. Children run in sessions of their own, so that Ctrl-C in the terminal
reaches the demo alone, which then ends them in order. Should the demo itself be killed, replicas leave because their
standard input ends, and servers because Linux tells them of their parent's death.
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

READY_S_MAX = 30.0  # importing gRPC takes under a second; a loaded CI machine may need many times that
END_S_MAX = 10.0  # a drain takes well under a second; then the process is killed
STDERR_LINES_SHOWN = 12
# PR_SET_PDEATHSIG, SIGTERM: it outlives exec. Said by the child itself, because a hook between fork and exec would fork
# the parent with gRPC's threads in it.
_TIE = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
_BOUND = ("-c", _TIE) if sys.platform == "linux" else ()


class Child:
    """One child process. ``messages``: the JSON lines that it has written so far. ``bound``: it ends with its parent.
    ``group``: it has children of its own, which are killed with it.
    """

    def __init__(
        self, name: str, module: str, arguments: Sequence[str], folder: Path, *, bound: bool = False,
        group: bool = False,
    ) -> None:
        self.name = name
        self._is_group = group
        self.messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._stderr = (folder / f"{name}.log").open("ab+")
        self._process = subprocess.Popen(
            [sys.executable, *(_BOUND if bound else ()), "-m", module, *arguments], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._stderr, start_new_session=True,
        )
        threading.Thread(target=self._read, name=f"output of {name}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def tell(self, **message: object) -> None:
        """Write a line of JSON to its standard input. Raises Unavailable if it has gone."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self.failure("cannot be told anything") from error

    def kill(self) -> None:
        """SIGKILL: no goodbye, no flush, nothing saved."""
        self._kill()
        self._process.wait()
        self._close()

    def ask_to_end(self) -> None:
        """SIGTERM, without waiting."""
        if self.exit_code is None:
            self._process.terminate()

    def end(self, *, at_s: float) -> None:
        """End it politely; kill it if it is still there at monotonic time ``at_s``."""
        self.ask_to_end()
        if self.exit_code is None:
            try:
                self._process.wait(max(at_s - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                self._kill()
                self._process.wait()
        self._close()

    def failure(self, problem: str) -> Unavailable:
        """An error that says what the child said last."""
        code = self.exit_code
        how = "is running" if code is None else _how_it_ended(code)
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").splitlines()[-STDERR_LINES_SHOWN:]
        said = "\n".join(f"    {line}" for line in lines) or "    (nothing)"
        return Unavailable(f"{self.name} {problem}; it {how}. The end of its log:\n{said}")

    def _kill(self) -> None:
        if self._is_group:
            os.killpg(self._process.pid, signal.SIGKILL)  # it began a session, so the group has its number
        else:
            self._process.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self.messages.put(json.loads(line))
            except ValueError:
                continue  # something printed for people

    def _close(self) -> None:
        for stream in (self._process.stdin, self._stderr):
            if stream is not None and not stream.closed:
                with contextlib.suppress(OSError):  # an unsent line to a process that was killed
                    stream.close()


def _how_it_ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
