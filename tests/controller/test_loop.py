"""The loop on a real server: it sees what is attached, acts on it, and survives what fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from controller_world import described
from service_world import MERGE, World

from lmerge.client import AsyncPublisher
from lmerge.errors import ServerGone
from lmerge_controller.backend import ActionOutcome
from lmerge_controller.loop import QueryLoop, observe
from lmerge_controller.model.query import MergeSpec, ReplicatedQuery, ServersSpec
from lmerge_controller.observe.server_calls import ServerCalls
from lmerge_controller.plan.actions import DemoteInput, DetachInput, ProcessAction, PromoteInput, ReleaseInput
from lmerge_controller.plan.conditions import ConditionStatus, ConditionType, QueryPlan
from lmerge_controller.plan.observed import ObservedProcess, ProcessPhase, RunningParts
from lmerge_controller.plan.record import Record


class BackendInMemory:
    """A backend whose processes are a table; the publishers of a test are what runs in them."""

    def __init__(self, query: ReplicatedQuery, addresses: tuple[str, ...]) -> None:
        self.parts = RunningParts(addresses)
        self.query = query
        self.persisted: list[Record] = []
        self.acted: list[ProcessAction] = []
        self.reports: list[tuple[QueryPlan, Sequence[ActionOutcome]]] = []
        self.failing = ""
        self.rounds = asyncio.Event()
        self.changed = asyncio.Event()

    def runs(self, name: str, version: str, index: int) -> None:
        described_version = self.query.version(version)
        assert described_version is not None
        process = ObservedProcess(name, name, ProcessPhase.RUNNING, version, index, described_version.fingerprint)
        self.parts = replace(self.parts, replicas=(*self.parts.replicas, process))

    async def running(self) -> RunningParts:
        if self.failing == "running":
            raise ServerGone("there is no API server")
        return self.parts

    async def persist(self, record: Record) -> None:
        self.persisted.append(record)
        self.parts = replace(self.parts, record=record)

    async def act(self, action: ProcessAction) -> None:
        if self.failing == "act":
            raise ServerGone("it cannot be started")
        self.acted.append(action)

    async def report(self, plan: QueryPlan, outcomes: Sequence[ActionOutcome]) -> None:
        self.reports.append((plan, outcomes))
        self.rounds.set()

    async def wait(self, timeout_s: float) -> None:
        self.rounds.set()
        await self.changed.wait()
        self.changed.clear()


def address_of(world: World) -> str:
    return f"127.0.0.1:{world.server.port}"


def query_at(*addresses: str, replicas: int = 2) -> ReplicatedQuery:
    return replace(described(replicas), merge=MergeSpec(MERGE), servers=ServersSpec(addresses=addresses))


async def publisher(world: World, name: str, role: str = "active") -> AsyncPublisher:
    return await AsyncPublisher(address_of(world), MERGE, name, properties=["key"], role=role).open()


async def test_what_is_attached_is_seen_and_a_silent_server_is_a_fact() -> None:
    async with World(divergence="alarm") as world, ServerCalls(timeout_s=5.0) as servers:
        query = query_at(address_of(world), "unix:/nowhere")
        first = await observe(query, BackendInMemory(query, query.servers.addresses), servers)
        assert [server.is_reachable for server in first.servers] == [True, False]
        assert not first.servers[0].has_merge
        assert "unix:/nowhere cannot be reached" in first.servers[1].problem
        a, b = await publisher(world, "q-v1-0"), await publisher(world, "q-v1-1", "observe")
        (server, _) = await servers.observe(query.servers.addresses, MERGE)
        seen = {found.replica: (found.role, found.state) for found in server.inputs}
        assert seen == {"q-v1-0": ("active", "joined"), "q-v1-1": ("observe", "observing")}
        (absent,) = await servers.observe((address_of(world),), "another")
        assert (absent.is_reachable, absent.has_merge) == (True, False)
        for one in (a, b):
            await one.close()


async def test_an_observer_of_the_serving_version_is_promoted_by_a_round() -> None:
    async with World(divergence="alarm") as world, ServerCalls() as servers:
        query = query_at(address_of(world))
        backend = BackendInMemory(query, query.servers.addresses)
        a, b = await publisher(world, "q-v1-0"), await publisher(world, "q-v1-1", "observe")
        backend.runs("q-v1-0", "v1", 0)
        backend.runs("q-v1-1", "v1", 1)
        loop = QueryLoop(lambda: query, backend, servers)
        made = await loop.round()
        assert [type(action) for action in made.actions] == [PromoteInput]
        assert [outcome.error for outcome in backend.reports[-1][1]] == [""]
        while len(made.joined) < 2:
            made = await loop.round()
        assert made.condition(ConditionType.AVAILABLE).status is ConditionStatus.TRUE
        for one in (a, b):
            await one.close()


async def test_actions_on_inputs_have_their_effect_once_and_only_while_their_fact_is_so() -> None:
    async with World(divergence="alarm") as world, ServerCalls() as servers:
        address = address_of(world)
        a, b = await publisher(world, "a"), await publisher(world, "b")

        async def incarnation(name: str) -> int:
            (server,) = await servers.observe((address,), MERGE)
            found = server.input(name)
            return 0 if found is None else found.incarnation

        first = await incarnation("b")
        await servers.act(MERGE, DemoteInput(address, "b", first, "test"))
        while await incarnation("b") in (0, first):
            pass
        second = await incarnation("b")
        await servers.act(MERGE, DemoteInput(address, "b", first, "test"))
        await servers.act(MERGE, PromoteInput(address, "nobody", 1, "test"))
        assert await incarnation("b") == second
        await servers.act(MERGE, DetachInput(address, "b", second, "test"))
        assert await incarnation("b") == 0
        await a.close()
        await b.abort()


async def test_an_error_of_one_action_is_reported_and_does_not_stop_the_others() -> None:
    async with World() as world, ServerCalls() as servers:
        query = query_at(address_of(world))
        backend = BackendInMemory(query, query.servers.addresses)
        backend.failing = "act"
        made = await QueryLoop(lambda: query, backend, servers).round()
        assert [outcome.error for outcome in backend.reports[-1][1]] == ["it cannot be started"] * len(made.actions)
        assert len(made.actions) == 2
        assert backend.persisted == [made.record], "persisted before it was acted upon"


async def test_a_controller_that_does_not_lead_neither_persists_nor_acts() -> None:
    async with World() as world, ServerCalls() as servers:
        query = query_at(address_of(world))
        backend = BackendInMemory(query, query.servers.addresses)
        await QueryLoop(lambda: query, backend, servers, may_act=lambda: False).round()
        assert (backend.persisted, backend.acted) == ([], [])


async def test_a_round_that_fails_is_followed_by_another_and_a_cancelled_loop_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with World() as world, ServerCalls() as servers:
        query = query_at(address_of(world))
        backend = BackendInMemory(query, query.servers.addresses)
        backend.failing = "running"
        task = asyncio.ensure_future(QueryLoop(lambda: query, backend, servers).run())
        await backend.rounds.wait()
        assert "q: nothing was done: there is no API server" in caplog.text
        backend.failing = ""
        backend.rounds.clear()
        backend.changed.set()
        await backend.rounds.wait()
        assert len(backend.acted) == 2
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_released_name_may_attach_again() -> None:
    async with World(divergence="alarm") as world, ServerCalls() as servers:
        a = await publisher(world, "a")
        (server,) = await servers.observe((address_of(world),), MERGE)
        await asyncio.to_thread(_quarantine, address_of(world), "b")
        (server,) = await servers.observe((address_of(world),), MERGE)
        assert server.quarantined == ("b",)
        await servers.act(MERGE, ReleaseInput(server.address, "b", "test"))
        (server,) = await servers.observe((address_of(world),), MERGE)
        assert server.quarantined == ()
        await a.close()


def _quarantine(address: str, name: str) -> None:
    from lmerge.client.admin import detach_input

    detach_input(address, MERGE, name, quarantine=True)
