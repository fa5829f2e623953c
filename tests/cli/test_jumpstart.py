"""checkpoint, jumpstart, relay and resume, as real processes against real servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

LMERGE = [sys.executable, "-m", "lmerge"]
READY_S_MAX = 60.0


def run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LMERGE, *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"COLUMNS": "200"},
    )


class Serving:
    """A server process and its address."""

    def __init__(self, folder: Path, name: str) -> None:
        ready = folder / f"{name}.json"
        self.process = subprocess.Popen(
            [*LMERGE, "serve", "--port", "0", "--http-port", "0", "--ready-file", str(ready)], stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + READY_S_MAX
        while not ready.exists():
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            os.sched_yield()
        self.target = f"127.0.0.1:{json.loads(ready.read_text())['port']}"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Serving]]:
    both = [Serving(tmp_path, name) for name in ("one", "other")]
    yield both
    for server in both:
        server.process.kill()
        server.process.wait()


def lines(*rows: str) -> str:
    return "".join(f"{row}\n" for row in rows)


LIVE = '{"op":"insert","payload":"live","vs":2,"ve":50}'
FIRST = lines('{"op":"insert","payload":"frozen","vs":1,"ve":5}', LIVE, '{"op":"stable","vc":20}')


def test_a_replica_jumpstarts_from_a_checkpoint_and_a_relay_and_a_token_carry_on(
    servers: list[Serving], tmp_path: Path
) -> None:
    one, other = (server.target for server in servers)
    both = f"{one},{other}"
    old = subprocess.Popen(
        [*LMERGE, "publish", "m", "--replica", "old", "--server", both],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert old.stdin is not None
    old.stdin.write(FIRST)
    old.stdin.flush()
    file = tmp_path / "checkpoint.jsonl"
    seen = ""
    while "stable" not in seen:
        done = run("checkpoint", "m", "--server", both, "-o", str(file))
        if done.returncode == 0:
            seen = file.read_text()
    assert file.read_text() == lines(LIVE, '{"op":"stable","vc":20}')
    rest = lines(
        '{"op":"insert","payload":"later","vs":25,"ve":40}', '{"op":"stable","vc":30}', '{"op":"stable","vc":"inf"}'
    )
    started = run("jumpstart", "m", "--server", both, "--replica", "new", "--checkpoint", str(file), text=rest)
    assert started.returncode == 0, started.stderr
    assert "published 2 and 3 elements to m" in started.stderr
    old.communicate(rest)
    resumed = run("subscribe", "m", "--server", both, "--resume", "m@20")
    assert resumed.returncode == 0, resumed.stderr
    rows = [json.loads(line) for line in resumed.stdout.splitlines()]
    assert sorted(row["payload"] for row in rows if row["op"] == "insert") == ["later", "live"]
    relayed = run("relay", "--from", both, "--merge", "m", "--to", other, "--as", "east", "--to-merge", "top")
    assert relayed.returncode == 0, relayed.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cut short"),
        (LIVE + "\n", "cut short"),
        ('{"op":"stable","vc":1}\n{"op":"stable","vc":2}\n', "line 2: a checkpoint ends with its stable"),
        ('{"op":"adjust","payload":"x","vs":1,"vold":2,"ve":3}\n', "line 1: a checkpoint has only inserts"),
        ("nonsense\n", "line 1: not JSON"),
    ],
)
def test_what_is_no_checkpoint_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "checkpoint.jsonl"
    file.write_text(text)
    done = run("jumpstart", "m", "--checkpoint", str(file))
    assert done.returncode == 2
    assert message in done.stderr


def test_a_token_of_another_merge_is_refused() -> None:
    done = run("subscribe", "m", "--resume", "other@5")
    assert done.returncode == 2
    assert "it is one of merge 'other'" in done.stderr
