"""Runs the job of one system in its own process: waits until it is ready, checks its output, times it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any

from bench.peers.job import MARK

LIMIT_S = 900
"""A job that takes longer is killed: it hangs, or its input is too large for it."""


@dataclass
class Ran:
    """The reports of one job. ``wrong``: why its times do not count; ``""`` if they do."""

    wrong: str = ""
    ready_s: float = 0.0
    first_run_s: float = 0.0
    seconds: list[float] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


def run(
    module: str, variant: str, python: Path | str, data: Path, repeats: int, verdict: Callable[[Path, Path], str]
) -> Ran:
    """Run one job: wait until it is ready, check its output, time it.

    ``verdict(output, data)`` returns what is wrong with the output, or ``""``.
    """
    ran = Ran(wrong="it reported nothing")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        command = [
            str(python),
            "-m",
            module,
            "--data",
            str(data),
            "--variant",
            variant,
            "--output",
            folder,
            "--repeats",
            str(repeats),
            "--began",
            str(time.time()),
        ]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            cwd=Path(__file__).parents[2],
        ) as process:
            limit = Timer(LIMIT_S, os.killpg, (process.pid, 9))
            limit.start()
            for facts in reports(process):
                match facts:
                    case {"ready_s": seconds, "versions": versions}:
                        ran.ready_s, ran.versions = seconds, versions
                    case {"first_run_s": seconds}:
                        ran.first_run_s, ran.wrong = seconds, verdict(Path(folder), data)
                        answer(process, "stop" if ran.wrong else "go")
                    case {"seconds": seconds}:
                        ran.seconds.append(seconds)
            limit.cancel()
        if process.returncode:
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["no message"])[-1]
            ran.wrong = f"exit {process.returncode}: {last[:200]}"
    return ran


def reports(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(MARK):
            yield json.loads(line.removeprefix(MARK))


def answer(process: subprocess.Popen[str], command: str) -> None:
    assert process.stdin is not None
    process.stdin.write(command + "\n")
    process.stdin.flush()
