"""Files are private to their owner, whatever the umask: every file that a server or a command writes is checked."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from service_world import MERGE, World, ins, stable

from lmerge.client.sinks.parquet import ParquetSink
from lmerge.core.elements import INF
from lmerge.files import PUBLIC_FILE, make_folder, replace
from lmerge.service.output.store import Store
from lmerge.service.security import tokens

# The file that others may read, and has no secret: the ports of a server. A sink's data files follow the umask.
PUBLIC = {"ready.json"}


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def must_be_private(folder: Path) -> list[str]:
    """Check everything below ``folder``; return the names of the files."""
    names = []
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        expected = 0o700 if path.is_dir() else PUBLIC_FILE if path.name in PUBLIC else 0o600
        assert mode == expected, f"{path}: {mode:o}"
        names.append(path.name)
    return names


async def test_what_a_server_writes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir(0o700)
    folder = tmp_path / "in"
    record = str(folder / "{merge}.jsonl")
    async with World(store=str(folder / "new" / "store"), record_path=record) as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 50), stable(10))
        names = must_be_private(folder)
        assert {name.rpartition(".")[2] for name in names} >= {"lmerge", "lmerge-wal", "mark", "jsonl"}
    must_be_private(folder)


async def test_what_a_sink_writes_beside_its_data(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    async with World() as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 5), stable(INF))
        from lmerge import AsyncSubscriber

        out = tmp_path / "a" / "b"
        await asyncio.wait_for(
            ParquetSink(out, MERGE).run(
                lambda token: AsyncSubscriber(f"127.0.0.1:{world.server.port}", MERGE, resume=f"{MERGE}@-inf")
            ),
            30.0,
        )
    (data,) = out.glob("*.parquet")
    data.unlink()
    must_be_private(tmp_path)


def test_what_commands_write(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    make_folder(folder)
    tokens.make(folder / "access.json", "a", ["status"], ["*"])
    tokens.revoke(folder / "access.json", "a")
    run = [sys.executable, "-m", "lmerge"]
    made = [*run, "token", "make", "b", "--file", str(folder / "access.json"), "--role", "status", "--merge", "*"]
    subprocess.run([*made, "--out", str(folder / "b.token")], check=True, capture_output=True, timeout=120)
    server = subprocess.Popen(
        [
            *run,
            "serve",
            "--port",
            "0",
            "--http-port",
            "-1",
            "--merge",
            MERGE,
            "--ready-file",
            str(folder / "ready.json"),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        while not (folder / "ready.json").exists():
            assert server.poll() is None
            time.sleep(0.005)
        target = f"127.0.0.1:{json.loads((folder / 'ready.json').read_text())['port']}"
        subprocess.run(
            [*run, "publish", MERGE, "-s", target],
            input='{"op":"stable","vc":5}',
            check=True,
            text=True,
            capture_output=True,
            timeout=120,
        )
        subprocess.run(
            [*run, "checkpoint", MERGE, "-s", target, "-o", str(folder / "checkpoint.jsonl")],
            check=True,
            capture_output=True,
            timeout=120,
        )
    finally:
        server.kill()
        server.wait()
    assert {"access.json", "b.token", "ready.json", "checkpoint.jsonl"} <= set(must_be_private(folder))


def test_a_replaced_file_is_whole_or_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mark"
    replace(path, b"1")

    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space"):
        replace(path, b"2")
    assert path.read_bytes() == b"1"


@pytest.mark.parametrize("loss", ["deleted", "empty", "no number"])
async def test_a_mark_that_was_lost_is_reported(loss: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings: dict[str, Any] = {"store": str(tmp_path / "store")}
    async with World(**settings) as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 50), stable(10))
        mark = Store(world.server._registry._folder.path_of(MERGE)).mark
    if loss == "deleted":
        mark.unlink()
    else:
        mark.write_bytes(b"" if loss == "empty" else b"x")
    async with World(**settings) as world:
        lost = [record for record in caplog.records if getattr(record, "event", "") == "store mark lost"]
        assert len(lost) == 1
        assert str(mark) in lost[0].getMessage()
        assert (await world.describe()).summary.stable_point == 10
    caplog.clear()
    async with World(**settings) as world:  # the mark was written again
        assert [record for record in caplog.records if getattr(record, "event", "") == "store mark lost"] == []
