"""The local backend on real servers and real replicas, without a plan: each action has its effect once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from local_world import described, joined

from lmerge.errors import UsageError
from lmerge_controller.local.backend import LocalBackend
from lmerge_controller.local.process_table import end_all
from lmerge_controller.local.spawn import LocalSpawner
from lmerge_controller.local.state_folder import StateFolder
from lmerge_controller.plan.actions import ReplaceReplica, StartReplica, StartServer, StopReplica, StopServer
from lmerge_controller.plan.observed import ObservedProcess, ProcessPhase, RunningParts
from lmerge_controller.plan.record import Record


@asynccontextmanager
async def backend(folder: Path, *, bound: bool = True, run: str = "") -> AsyncIterator[LocalBackend]:
    """Yield the backend of a query of two servers; everything is ended afterwards."""
    state = StateFolder(folder / "state" / "q")
    state.make()
    mark = run or state.run_mark()
    try:
        async with LocalBackend(described(folder), state, LocalSpawner(mark, bound), lambda status: None) as made:
            yield made
    finally:
        if not run:
            end_all(mark)


async def until(made: LocalBackend, fits: Callable[[RunningParts], bool]) -> RunningParts:
    """Return what runs when it fits."""
    while not fits(parts := await made.running()):
        await made.wait(60.0)
    return parts


def process(parts: RunningParts, name: str) -> ObservedProcess | None:
    return next((found for found in (*parts.servers, *parts.replicas) if found.name == name), None)


def phase(parts: RunningParts, name: str) -> ProcessPhase | None:
    found = process(parts, name)
    return None if found is None else found.phase


def start(index: int = 0) -> StartReplica:
    return StartReplica(f"q-v1-{index}", "v1", index, "active", "f1", "missing")


RECORD = Record(time.time(), "v1")


async def test_servers_and_replicas_start_and_the_stream_is_merged(tmp_path: Path) -> None:
    async with backend(tmp_path) as made:
        await made.persist(RECORD)
        for action in (StartServer(0, "s1", "missing"), StartServer(1, "s1", "missing"), start(0), start(1)):
            await made.act(action)
            await made.act(action)
        parts = await until(
            made, lambda parts: {found.phase for found in (*parts.servers, *parts.replicas)} == {ProcessPhase.RUNNING}
        )
        assert [found.name for found in parts.servers] == ["server-0", "server-1"]
        assert [(found.name, found.version, found.index, found.fingerprint) for found in parts.replicas] == [
            ("q-v1-0", "v1", 0, "f1"),
            ("q-v1-1", "v1", 1, "f1"),
        ]
        assert len(set(parts.addresses)) == 2
        for address in parts.addresses:
            await joined(address, "q", {"q-v1-0", "q-v1-1"})
        assert parts.record == RECORD


async def test_a_killed_replica_has_a_new_life_and_actions_on_the_old_one_do_nothing(tmp_path: Path) -> None:
    async with backend(tmp_path) as made:
        await made.act(start())
        old = process(await until(made, lambda parts: phase(parts, "q-v1-0") is ProcessPhase.RUNNING), "q-v1-0")
        assert old is not None
        os.kill(int(old.uid.partition(".")[0]), signal.SIGKILL)
        parts = await until(made, lambda parts: phase(parts, "q-v1-0") is ProcessPhase.RESTARTING)
        ended = process(parts, "q-v1-0")
        assert ended is not None
        assert (ended.uid, ended.exits, ended.exit_code) == (old.uid, 1, -signal.SIGKILL)
        assert ended.problem.startswith("it was ended by SIGKILL")
        new = process(await until(made, lambda parts: phase(parts, "q-v1-0") is ProcessPhase.RUNNING), "q-v1-0")
        assert new is not None
        assert new.uid != old.uid
        await made.act(StopReplica("q-v1-0", old.uid, "late"))
        await made.act(ReplaceReplica("q-v1-0", old.uid, "v1", 0, "active", "f2", "late"))
        assert process(await made.running(), "q-v1-0") == new
        await made.act(ReplaceReplica("q-v1-0", new.uid, "v1", 0, "observe", "f2", "it lags"))
        parts = await until(
            made,
            lambda parts: (
                (found := process(parts, "q-v1-0")) is not None
                and found.uid != new.uid
                and found.phase is ProcessPhase.RUNNING
            ),
        )
        replaced = process(parts, "q-v1-0")
        assert replaced is not None
        assert (replaced.fingerprint, replaced.role, replaced.exits) == ("f2", "observe", 0)
        await made.act(StopReplica("q-v1-0", replaced.uid, "not needed"))
        await until(made, lambda parts: process(parts, "q-v1-0") is None)


async def test_a_stopped_server_starts_again_at_its_address(tmp_path: Path) -> None:
    async with backend(tmp_path) as made:
        await made.act(StartServer(0, "s1", "missing"))
        parts = await until(made, lambda parts: phase(parts, "server-0") is ProcessPhase.RUNNING)
        first = process(parts, "server-0")
        assert first is not None
        await made.act(StopServer(0, first.uid, "another version"))
        assert phase(await made.running(), "server-0") in (ProcessPhase.STOPPING, ProcessPhase.RUNNING)
        await until(made, lambda parts: process(parts, "server-0") is None)
        await made.act(StartServer(0, "s2", "missing"))
        again = await until(made, lambda parts: phase(parts, "server-0") is ProcessPhase.RUNNING)
        assert again.addresses == parts.addresses


async def test_a_version_that_is_not_described_or_whose_program_is_gone_is_an_error(tmp_path: Path) -> None:
    async with backend(tmp_path) as made:
        with pytest.raises(UsageError, match="there is no version 'v9' in q"):
            await made.act(StartReplica("q-v9-0", "v9", 0, "active", "f", "missing"))
        with pytest.raises(UsageError, match="no-such-program"):
            await made.act(StartReplica("q-gone-0", "gone", 0, "active", "f", "missing"))
        assert (await made.running()).replicas == ()


async def test_a_completed_replica_has_exited_and_a_new_action_starts_it_again(tmp_path: Path) -> None:
    async with backend(tmp_path) as made:
        done = StartReplica("q-done-0", "done", 0, "active", "f", "missing")
        await made.act(done)
        parts = await until(made, lambda parts: phase(parts, "q-done-0") is ProcessPhase.EXITED)
        found = process(parts, "q-done-0")
        assert found is not None
        assert found.exit_code == 0
        await made.act(done)
        await until(made, lambda parts: (p := process(parts, "q-done-0")) is not None and p.uid != found.uid)


async def test_a_later_supervisor_adopts_what_runs_and_ends_the_rest(tmp_path: Path) -> None:
    run = StateFolder(tmp_path / "state" / "q")
    run.make()
    mark = run.run_mark()
    try:
        async with backend(tmp_path, bound=False, run=mark) as earlier:
            await earlier.persist(RECORD)
            await earlier.act(start())
            await earlier.act(start(1))
            parts = await until(earlier, lambda parts: {p.phase for p in parts.replicas} == {ProcessPhase.RUNNING})
            kept = [process(parts, name) for name in ("q-v1-0", "q-v1-1")]
            assert kept[0] is not None
            assert kept[1] is not None
            os.kill(int(kept[1].uid.partition(".")[0]), signal.SIGKILL)
            await until(earlier, lambda parts: phase(parts, "q-v1-1") is ProcessPhase.RESTARTING)
            async with backend(tmp_path, bound=False, run=mark) as later:
                assert await later.adopt(mark) == ("q-v1-0",)
                parts = await until(later, lambda parts: phase(parts, "q-v1-0") is ProcessPhase.RUNNING)
                found = process(parts, "q-v1-0")
                assert found is not None
                assert (found.uid, found.fingerprint) == (kept[0].uid, "f1")
                assert parts.record == RECORD
            await until(earlier, lambda parts: phase(parts, "q-v1-0") is ProcessPhase.RESTARTING)
    finally:
        end_all(mark)
