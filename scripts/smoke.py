"""Tries an installed lmerge: a server, two replicas of which one dies, and a reader. Run by scripts/dist.py.

    python smoke.py [--engine native|python]

It needs no file of the project, so it can run in an empty folder, in a container, or from standard input. It prints one
line of JSON with the version, the engine and the path of the package. Exit code 1: something is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lmerge
from lmerge.client import describe_server

READY_S_MAX = 60.0
EVENTS = 1_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", help="the engine that the server must run on")
    engine = parser.parse_args().engine
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = [
            sys.executable,
            "-m",
            "lmerge",
            "serve",
            "--port",
            "0",
            "--http-port",
            "0",
            "--ready-file",
            str(ready),
        ]
        server = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        try:
            address = address_of(server, ready)
            runs_on = describe_server(address).engine
            problem = "" if engine in (None, runs_on) else f"the server runs on {runs_on}, not on {engine}"
            problem = problem or wrong(address)
        finally:
            server.terminate()
            log = server.communicate(timeout=60)[1]
    if server.returncode:
        problem = problem or f"the server ended with code {server.returncode}"
    found = {"version": lmerge.__version__, "engine": runs_on, "package": lmerge.__file__, "problem": problem}
    print(json.dumps(found))
    if problem:
        print(log, file=sys.stderr)
    return 1 if problem else 0


def address_of(server: subprocess.Popen[str], ready: Path) -> str:
    """Wait until the server is ready. Return its address."""
    deadline = time.monotonic() + READY_S_MAX
    while not ready.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the server did not start: code {server.poll()}")
        time.sleep(0.02)
    return f"127.0.0.1:{json.loads(ready.read_text())['port']}"


def wrong(address: str) -> str:
    """Publish as two replicas, abort one, and read. Return what is wrong with the stream; empty: nothing."""
    a, b = (lmerge.Publisher(address, merge="smoke", replica=name, properties=["key"]) for name in "ab")
    for at in range(EVENTS):
        for publisher in (a, b) if at < EVENTS // 2 else (b,):
            publisher.insert(f"event {at}", vs=at, ve=at + 2)
        if at == EVENTS // 2:
            a.abort()
    b.stable(2 * EVENTS)
    read = []
    with lmerge.Subscriber(address, "smoke", resume="smoke@0") as reader:
        for delivery in reader.final():
            read += [event.payload.decode() for event in delivery.changes]
            if delivery.stable_point >= 2 * EVENTS:
                break
    b.close()
    expected = [f"event {at}" for at in range(EVENTS)]
    return "" if read == expected else f"{len(read)} events came, not the {EVENTS} that were published, in order"


if __name__ == "__main__":
    sys.exit(main())
