"""The loop with the local backend in virtual time: processes die, supervisors die, versions change, from one seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from machine_model import Machine, ModelServers, ModelSpawner

from lmerge import clock
from lmerge.testing.sim.loop import later, run_virtual
from lmerge_controller.local import state_folder
from lmerge_controller.local.backend import LocalBackend
from lmerge_controller.local.state_folder import StateFolder
from lmerge_controller.local.status_file import LocalStatus
from lmerge_controller.loop import QueryLoop
from lmerge_controller.model.query import (
    CutoverSpec,
    HealthSpec,
    MergeSpec,
    ReplicatedQuery,
    RestartSpec,
    RunSpec,
    ServersSpec,
    VersionSpec,
)

FAULTS_S = 120.0
QUIET_S = 400.0
WALL_S = 1_700_000_000.0


def described(random: Random) -> ReplicatedQuery:
    versions = tuple(VersionSpec(name, RunSpec(command=("true",))) for name in ("v1", "v2", "v3"))
    return ReplicatedQuery(
        "q",
        MergeSpec("q"),
        ServersSpec(count=random.randint(1, 3)),
        versions,
        "v1",
        replicas=random.randint(2, 3),
        cutover=CutoverSpec(intervals=3, timeout_s=60.0),
        health=HealthSpec(join_within_s=20.0),
        restart=RestartSpec(0.2, 5.0, 60),
    )


class Run:
    """A machine, and the supervisor that works on it at present."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = Random(seed)
        self.query = described(self.random)
        self.machine = Machine(self.random, wrong=("v3",))
        self.state = StateFolder(folder / "q")
        self.state.make()
        self.status = LocalStatus("q")
        self.history: list[str] = []
        self._backend: LocalBackend | None = None
        self._task: asyncio.Task[Any] | None = None

    async def begin(self) -> None:
        """Start a supervisor, which takes what an earlier one has left."""
        spawner = ModelSpawner(self.machine, self.machine.supervisors)
        self.status = LocalStatus("q")
        self._backend = LocalBackend(self.query, self.state, spawner, self._note)
        await self._backend.__aenter__()
        await self._backend.adopt("the mark of no process")
        loop = QueryLoop(lambda: self.query, self._backend, ModelServers(self.machine))
        self._task = asyncio.create_task(loop.run())

    async def crash(self) -> None:
        """Kill the supervisor: from here on nothing of it has an effect."""
        self.machine.supervisors += 1
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def end(self) -> None:
        """Stop the loop and end everything."""
        assert self._task is not None
        assert self._backend is not None
        self.machine.is_ending = True
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._backend.__aexit__(None, None, None)

    async def disturb(self) -> None:
        """Do one thing that happens to a machine."""
        kind = self.random.choice(("replica", "replica", "server", "supervisor", "version", "count"))
        names = sorted(self.machine.living)
        if kind == "supervisor":
            await self.crash()
            await later(self.random.uniform(0.0, 5.0))
            await self.begin()
        elif kind == "version":
            self.query = replace(self.query, active=self.random.choice(("v1", "v2", "v3")))
        elif kind == "count":
            self.query = replace(self.query, replicas=self.random.randint(2, 3))
        elif found := [name for name in names if name.startswith("server-") is (kind == "server")]:
            self.machine.kill(self.random.choice(found))

    async def settled(self) -> None:
        """Wait until the stream has all of its replicas, none is too many, and the supervisor shows so."""
        await asyncio.wait_for(self._until_settled(), QUIET_S)

    async def _until_settled(self) -> None:
        while not self._is_settled():
            await later(0.1)

    def _is_settled(self) -> bool:
        replicas = {name for name in self.machine.living if not name.startswith("server-")}
        return (
            len(self.machine.servers()) == self.query.servers.count
            and len(replicas) == self.query.replicas
            and self.machine.joined() == replicas == set(self.status.joined)
            and self.status.is_true("Available")
        )

    def _note(self, status: LocalStatus) -> None:
        self.history += [event.text for event in status.events_after(self.status)]
        self.status = status
        if status.serving == "v3":
            self.machine.harm.append("a version that differs serves")


async def played(seed: int, folder: Path) -> Run:
    """Play a seed: faults for some time, then quiet, then the end."""
    run = Run(seed, folder)
    await run.begin()
    await run.settled()
    until_s = asyncio.get_running_loop().time() + FAULTS_S
    while asyncio.get_running_loop().time() < until_s:
        await later(run.random.expovariate(1 / 8.0))
        await run.disturb()
    run.query = replace(run.query, active="v1" if run.query.active == "v3" else run.query.active)
    await run.settled()
    await run.end()
    return run


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Run]:
    """Return a function that plays a seed in virtual time, with a wall clock of the same time."""

    def wall_us() -> int:
        return int((WALL_S + asyncio.get_running_loop().time()) * 1e6)

    monkeypatch.setattr(clock, "wall_us", wall_us)
    # No process of the model listens. Free ports of this machine would come into the history.
    monkeypatch.setattr(state_folder, "free_port", lambda taken: max(taken, default=0) + 1)
    return lambda seed: run_virtual(played(seed, tmp_path / str(seed)))


def assert_unharmed(run: Run) -> None:
    assert run.machine.harm == []
    assert run.machine.living == {}


@pytest.mark.parametrize("seed", range(12))
def test_after_faults_the_stream_has_all_of_its_replicas_again(play: Callable[[int], Run], seed: int) -> None:
    assert_unharmed(play(seed))


@pytest.mark.long
def test_after_faults_of_many_seeds_the_stream_has_all_of_its_replicas_again(
    play: Callable[[int], Run], long_seeds: range
) -> None:
    for seed in long_seeds:
        assert_unharmed(play(seed))


def test_one_seed_is_one_run(play: Callable[[int], Run], tmp_path: Path) -> None:
    first, second = (run_virtual(played(3, tmp_path / name)) for name in ("a", "b"))
    assert first.history == second.history
    assert len(first.history) > 20
