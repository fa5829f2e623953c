"""Full disks: for every file that the server writes, the streams go on or get an error in time.

Nothing can be written to ``/dev/full``. With a bound of the size of files (``RLIMIT_FSIZE``) the operating system
refuses any later write, until the bound is removed.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from service_world import MERGE, World, ins, replayed, stable

from lmerge.core.elements import Event
from lmerge.core.tdb import reconstitute
from lmerge.service.output.session_recorder import RECORDING, Recorder

pytestmark = pytest.mark.usefixtures("engine")


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond ``size`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def page(world: World, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{world.server.http_port}{path}") as answer,
    ):
        return answer.status, await answer.text()


async def test_a_full_disk_ends_the_recording_and_not_the_stream() -> None:
    async with World(record_path="/dev/full", http_port=0) as world:
        a = await world.publisher("a")
        reader = await world.subscriber()
        await a.merged(ins("x", 1, 5), stable(10))
        await a.merged(ins("y", 11, 15), stable(20))
        assert await reader.until_stable(20) == [Event(1, b"x", 5), Event(11, b"y", 15)]
        assert (await world.describe()).recording == "recording has stopped: No space left on device"
        _, text = await page(world, "/metrics")
        assert f'lmerge_recording_stopped_bool{{merge="{MERGE}"}} 1.0' in text
        assert (await page(world, "/readyz"))[0] == 200


async def test_a_recording_can_go_into_a_pipe(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    with os.fdopen(read, "rb") as reading, os.fdopen(write, "wb"):
        async with World(record_path=f"/dev/fd/{write}", merges=(MERGE,)) as world:
            a = await world.publisher("a")
            reader = await world.subscriber()
            await a.merged(ins("x", 1, 5), stable(10))
            assert await reader.until_stable(10) == [Event(1, b"x", 5)]
            assert (await world.describe()).recording == RECORDING
        (tmp_path / "session").write_bytes(reading.read())
    assert replayed(tmp_path / "session", "lazy") == reader.elements


@pytest.mark.parametrize("room", [0, 1, 90, 200, 1_000, 5_000])
async def test_what_was_recorded_until_then_is_whole_and_can_be_replayed(tmp_path: Path, room: int) -> None:
    path = tmp_path / "session"
    async with World(record_path=str(path), merges=(MERGE,)) as world:
        reader = await world.subscriber()
        with room_for(room):
            a = await world.publisher("a")
            for at in range(1, 40):
                await a.merged(ins("x" * 50, at, at + 2), stable(at))
        events = await reader.until_stable(39)
        assert (await world.describe()).recording.startswith("recording has stopped")
        elements = reader.elements
    assert len(events) == 39
    output = replayed(path, "lazy")
    assert output == elements[: len(output)]
    assert path.stat().st_size <= room
    assert bool(output) == (room >= 1_000)


def test_a_recording_begins_again_with_a_fresh_merge(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "session")
    with room_for(10):
        recorder.attached("a", (), None, "active")
        recorder.flush()
    assert recorder.status != RECORDING
    recorder.detached("a")
    recorder.flush()
    assert (tmp_path / "session").read_bytes() == b""
    recorder.begin_anew()
    recorder.attached("b", (), None, "active")
    recorder.flush()
    recorder.close()
    assert recorder.status == RECORDING
    assert b'"input":"b"' in (tmp_path / "session.1").read_bytes()


@pytest.mark.parametrize("room", [0, 1, 4_096, 32_768, 65_536])
async def test_the_first_publisher_of_a_merge_and_probes_get_the_error_of_a_full_disk(
    tmp_path: Path, room: int
) -> None:
    async with World(store=str(tmp_path / "store"), store_retry_s=0.02, http_port=0) as world:
        with room_for(room):
            refused = await asyncio.wait_for(world.refused("a"), 30)
            assert refused.code is grpc.StatusCode.UNAVAILABLE
            assert f"cannot attach to merge '{MERGE}' now: cannot write" in refused.details
            code, text = await page(world, "/readyz")
            assert code == 503
            assert "cannot write" in text
            assert (await world.refused("b")).code is grpc.StatusCode.UNAVAILABLE
            call = world.subscribe()
            with pytest.raises(grpc.RpcError, match="cannot subscribe to merge"):
                await call.read()
            assert (await page(world, "/healthz"))[0] == 200
        while (await page(world, "/readyz"))[0] != 200:
            pass
        a = await world.publisher("a")
        reader = await world.subscriber()
        await a.merged(ins("x", 1, 5), stable(10))
        assert await reader.until_stable(10) == [Event(1, b"x", 5)]


@pytest.mark.parametrize("room", [131_072, 200_000, 400_000, 800_000])
async def test_wherever_the_disk_ends_nothing_is_lost_and_the_stream_goes_on_when_there_is_room(
    tmp_path: Path, room: int
) -> None:
    settings: dict[str, Any] = {"store_retry_s": 0.02, "store_waiting_bytes": 50_000, "http_port": 0}
    async with World(store=str(tmp_path / "store"), **settings) as world:
        a = await world.publisher("a")
        reader = await world.subscriber()

        async def publish() -> None:
            for at in range(1, 101):
                await a.send(ins(b"%03d" % at * 4_000, at, at + 1), stable(at))

        with room_for(room):
            publishing = asyncio.create_task(publish())
            while (await page(world, "/readyz"))[0] == 200:
                pass
            refused = await world.refused("b")
            assert (refused.code, MERGE in refused.details) == (grpc.StatusCode.UNAVAILABLE, True)
        events = await reader.until_stable(100)
        assert [event.vs for event in events] == list(range(1, 101))
        assert reconstitute(reader.snapshot + reader.elements) == events
        await publishing
        await a.acked()
