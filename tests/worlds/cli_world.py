"""Helpers of the tests of the commands: a command and a server as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LMERGE = [sys.executable, "-m", "lmerge"]
READY_S_MAX = 60.0
STREAM = [
    '{"op":"insert","payload":"A","vs":6,"ve":7}',
    '{"op":"adjust","payload":"A","vs":6,"vold":7,"ve":12}',
    '{"op":"stable","vc":8}',
    '{"op":"stable","vc":"inf"}',
]


def run(
    *arguments: str, text: str = "", columns: int = 200, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LMERGE, *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=cwd,
        env=os.environ | {"COLUMNS": str(columns)},
    )


class Served:
    """A server process."""

    def __init__(self, folder: Path, *options: str) -> None:
        ready = folder / "ready.json"
        self.process = subprocess.Popen(
            [*LMERGE, "serve", "--port", "0", "--http-port", "0", "--ready-file", str(ready), *options],
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + READY_S_MAX
        while not ready.exists():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline
            os.sched_yield()
        self.ports: dict[str, Any] = json.loads(ready.read_text())
        self.target = f"127.0.0.1:{self.ports['port']}"

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        log = self.process.communicate(timeout=60)[1]
        return self.process.returncode, log
