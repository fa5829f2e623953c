"""A durable server: what it has delivered is there after a restart, and it has promised nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
from service_world import MERGE, RawReader, World, adj, ins, stable

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Event, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.tdb import Tdb
from lmerge.errors import StoreFull, StoreInUse, UsageError
from lmerge.service.output.durable_merges import DurableOutput, StoreFolder
from lmerge.service.output.store import Store
from lmerge.service.server import Server
from lmerge.service.settings import Settings
from lmerge.testing.streams.merge_inputs import present, reference
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.token import format_token

pytestmark = pytest.mark.usefixtures("engine")

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def token(t: int) -> str:
    return format_token(MERGE, t)


def durable(tmp_path: Path, **settings: Any) -> World:
    return World(store=str(tmp_path / "store"), store_retry_s=0.02, **settings)


def hub(world: World) -> Any:
    return world.server._registry.hubs[MERGE]


async def until(claim: Callable[[], bool]) -> None:
    while not claim():  # noqa: ASYNC110 - the hub has no event for it
        await asyncio.sleep(0)


async def killed(world: World) -> None:
    """Leave the server as a kill does: nothing is drained, nothing is written any more."""
    registry = world.server._registry
    for one in registry.hubs.values():
        for task in filter(None, (one.task._task, one._releasing)):
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Give a function that makes commits fail, as on a full disk, while it is shut."""
    commit = Store.commit
    shut = False

    def tried(self: Store, *arguments: Any) -> None:
        if shut:
            raise StoreFull("cannot write: the disk is full")
        commit(self, *arguments)

    def set_shut(value: bool) -> None:
        nonlocal shut
        shut = value

    monkeypatch.setattr(Store, "commit", tried)
    return set_shut


async def test_a_restarted_server_goes_on_where_it_ended(tmp_path: Path) -> None:
    async with durable(tmp_path) as world:
        a = await world.publisher("a")
        reader = await world.subscriber()
        await a.merged(ins("frozen", 1, 3), ins("x", 2, 30), ins("y", 6, 9), stable(5))
        first = await reader.until_stable(5)
    async with durable(tmp_path) as world:
        assert (await world.describe()).live_events == 2
        again = await world.subscriber(resume_token=token(NEG_INF))
        assert again.tdb.events() == first
        now = await world.subscriber(resume_token=token(5))
        assert now.snapshot == [Insert(b"x", 2, 30), Insert(b"y", 6, 9), Stable(5)]
        a = await world.publisher("a", join_at=5)
        assert (a.accepted.joined, a.accepted.stable_point, a.accepted.incarnation) == (True, 5, 2)
        await a.merged(ins("x", 2, 30), ins("y", 6, 9), adj("x", 2, 30, 8), ins("z", 7, 8), stable(10))
        for reader in (again, now):
            await reader.until_stable(10)
        assert again.tdb.events() == sorted([*first[:1], Event(2, b"x", 8), Event(6, b"y", 9), Event(7, b"z", 8)])


async def test_the_fence_and_the_schema_and_what_was_kept_outlive_the_server(tmp_path: Path) -> None:
    schema = pb.Schema(columns=[pb.Schema.Column(name="id", type="int")])
    async with durable(tmp_path) as world:
        await world.publisher("a", incarnation=2**62 + 5, schema=schema)
        await hub(world).task.settled(lambda: hub(world).state.output.facts.keep("names", '["b"]'))
        await hub(world).task.settled(lambda: None)
    async with durable(tmp_path) as world:
        ending = await world.refused("a", incarnation=2**62 + 5)
        assert ending.code is grpc.StatusCode.ABORTED
        other = pb.Schema(columns=[pb.Schema.Column(name="other", type="int")])
        assert (await world.refused("b", schema=other)).code is grpc.StatusCode.INVALID_ARGUMENT
        assert (await world.describe()).schema == schema
        assert dict(hub(world).state.kept) == {"names": '["b"]'}
        assert (await world.publisher("a")).accepted.incarnation == 2**62 + 6


async def test_from_where_on_the_output_is_right_outlives_the_server(tmp_path: Path) -> None:
    async with durable(tmp_path) as world:
        a = await world.publisher("a", join_at=100)
        await a.merged(ins("x", 90, 150))
    async with durable(tmp_path) as world:
        ending = await RawReader(world.subscribe(resume_token=token(99))).ending()
        assert ending.code is grpc.StatusCode.OUT_OF_RANGE
        assert (await world.subscriber()).begin.complete_from == 100
        assert (hub(world).state.complete_from, hub(world).state.retained_from) == (100, 100)


async def test_an_end_delivered_before_the_output_is_right_is_not_frozen_after_a_restart(tmp_path: Path) -> None:
    """A ended before 100. The first input is right from there on and never had it; the one that had it is not back."""
    async with durable(tmp_path) as world:
        await world.publisher("late", join_at=100)
        lags = await world.publisher("lags")
        await lags.merged(ins("A", 26, 155), stable(27))
        await killed(world)
    async with durable(tmp_path) as world:
        reader = await world.subscriber()
        again = await world.publisher("late", join_at=27)
        await again.merged(stable(158))
        assert (hub(world).state.complete_from, await reader.until_stable(158)) == (100, [Event(26, b"A", 27)])


@pytest.mark.parametrize("killed_before", ["the first input is back", "the end"])
async def test_a_merge_that_has_begun_anew_behind_a_gap_does_not_go_back_over_a_restart(
    tmp_path: Path, killed_before: str
) -> None:
    async with durable(tmp_path, gap_after_s=0.05) as world:
        a = await world.publisher("a")
        await a.merged(ins("half frozen", 1), stable(10))
        b = await world.publisher("b", join_at=50)
        await a.leave()
        assert (await b.ending()).code is UNAVAILABLE
        if killed_before == "the end":
            b = await world.publisher("b", join_at=50, incarnation=2)
            await b.merged(ins("new", 40, 90), stable(60))
        await killed(world)
    async with durable(tmp_path) as world:
        assert hub(world).state.gaps == 1
        for incarnation in {1, b.accepted.incarnation}:
            assert (await world.refused("b", incarnation=incarnation)).code is grpc.StatusCode.ABORTED
        b = await world.publisher("b", join_at=50, incarnation=3)
        await b.merged(ins("new", 40, 90), stable(70))
        assert hub(world).state.complete_from == 50
        reader = await world.subscriber(resume_token=token(10), snapshot_if_too_old=True)
        assert (reader.tdb.events(), reader.begin.complete_from) == ([Event(40, b"new", 90)], 50)
        ending = await RawReader(world.subscribe(resume_token=token(49))).ending()
        assert ending.code is grpc.StatusCode.OUT_OF_RANGE


async def test_nothing_is_shown_or_promised_before_it_is_committed(
    tmp_path: Path, gate: Callable[[bool], None]
) -> None:
    async with durable(tmp_path) as world:
        a = await world.publisher("a")
        reader = await world.subscriber()
        await a.merged(ins("x", 1, 20), stable(5))
        await reader.until_stable(5)
        gate(True)
        await a.send(ins("y", 6, 20), stable(9))
        await until(lambda: hub(world).state.store_status != "durable")
        assert "disk is full" in hub(world).state.store_status
        assert hub(world).state.merge.stable_point == 9  # merged, and not reported yet
        attached = hub(world).inputs.get("a")
        assert attached is not None
        assert (attached.merged, attached.acked, attached.acked_stable) == (2, 1, 5)
        assert (hub(world).state.output.release.stable_point, reader.tdb.stable_point) == (5, 5)
        for refused in (await world.refused("b"), await RawReader(world.subscribe()).ending()):
            assert refused.code is UNAVAILABLE
            assert "disk is full" in refused.details
        gate(False)
        assert await reader.until_stable(9) == [Event(1, b"x", 20), Event(6, b"y", 20)]
        assert (await a.acked(9)).sequence == 2
        assert hub(world).state.store_status == "durable"
        assert (await world.publisher("b")).accepted.joined


async def test_what_was_not_delivered_when_the_server_was_killed_is_published_again(
    tmp_path: Path, gate: Callable[[bool], None]
) -> None:
    async with durable(tmp_path) as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 20), stable(5))
        gate(True)
        await a.send(adj("x", 1, 20, 6), ins("y", 6, 20), stable(9))
        await until(lambda: hub(world).state.merge.stable_point == 9)
        await killed(world)
    gate(False)
    async with durable(tmp_path) as world:
        reader = await world.subscriber()
        assert reader.snapshot == [Insert(b"x", 1, 20), Stable(5)]
        a = await world.publisher("a", join_at=5)
        await a.merged(ins("x", 1, 6), ins("y", 6, 20), stable(9))
        assert await reader.until_stable(9) == [Event(1, b"x", 6), Event(6, b"y", 20)]


async def test_a_full_store_holds_the_publishers_and_loses_nothing(
    tmp_path: Path, gate: Callable[[bool], None]
) -> None:
    limits = {"store_waiting_bytes": 20_000, "merge_queue_elements": 100, "merge_queue_bytes": 20_000}
    async with durable(tmp_path, **limits) as world:
        a = await world.publisher("a")
        reader = await world.subscriber()
        gate(True)

        async def publish() -> None:
            for at in range(200):
                await a.send(ins(b"x" * 1_000, at, at + 1), stable(at))

        publishing = asyncio.create_task(publish())
        release = hub(world).state.output.release
        await until(lambda: hub(world).state.queued_elements >= 20 and release.waiting_bytes >= 20_000)
        merged = hub(world).state.merge.received.inserts
        assert merged < 100
        for _ in range(100):
            await asyncio.sleep(0)
        assert hub(world).state.merge.received.inserts == merged  # the hub takes no turn
        gate(False)
        assert len(await reader.until_stable(199)) == 200
        await publishing
        await a.acked()


async def test_a_subscription_that_waits_for_a_commit_begins_where_its_deltas_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every commit is slow, so subscriptions come between merging and delivery."""
    commit = DurableOutput.commit

    async def slow(self: DurableOutput, changes: Any) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await commit(self, changes)

    monkeypatch.setattr(DurableOutput, "commit", slow)
    for seed in range(3):
        random = Random(seed)
        events = reference(random, 120)
        async with durable(tmp_path / str(seed), segment_bytes=600, turn_interval_s=0.0001) as world:
            a, stream = await world.publisher("a"), present(random, events)
            readers: list[RawReader] = []
            while stream:
                await a.send(*stream[:7])
                del stream[:7]
                if random.random() < 0.4:
                    known = random.choice([NEG_INF, hub(world).state.merge.stable_point - random.randint(0, 40)])
                    readers.append(await world.subscriber(resume_token=token(max(NEG_INF, known))))
            for reader in readers:
                read = await reader.until_stable(INF)
                start = reader.begin.complete_from
                assert [e for e in read if e.ve >= start] == [e for e in events if e.ve >= start]


class RestartFollower:
    """A reader over restarts: each connection is an input of its own merge, as in the client library."""

    def __init__(self) -> None:
        self.tdb = Tdb("reader")
        self._merge = Merge(MergeConfig("r4", "eager", "any"))
        self._connections = 0

    async def follow(self, reader: RawReader, until: int) -> None:
        """Read one connection up to a stable point."""
        self._connections += 1
        name = str(self._connections)
        assert reader.begin.complete_from <= self.tdb.stable_point, "a gap"
        outcomes = [self._merge.attach(name, join_at=reader.begin.complete_from)]
        if self._connections > 1:
            outcomes.append(self._merge.detach(str(self._connections - 1)))
        outcomes.append(self._merge.apply(name, Batch.of(reader.snapshot)))
        while reader.tdb.stable_point < until:
            await reader.read()
        outcomes.append(self._merge.apply(name, Batch.of(reader.elements)))
        for outcome in outcomes:
            self.tdb.apply_batch(outcome.batch)


@pytest.mark.parametrize("policy", ["lazy", "eager", "final-only", "lazy+lag:5", "half-frozen-only", "quorum:2"])
async def test_random_streams_over_many_restarts_are_one_legal_stream(tmp_path: Path, policy: str) -> None:
    random = Random(policy)
    events = reference(random, 150, duplicates=True)
    streams = {name: present(random, events) for name in "ab"}
    at = dict.fromkeys(streams, 0)
    follower = RestartFollower()
    while follower.tdb.stable_point < INF:
        quick = {"segment_bytes": 500, "turn_interval_s": 0.0001}
        async with durable(tmp_path, policy=policy, merges=(MERGE,), **quick) as world:
            point = hub(world).state.merge.stable_point
            reader = await world.subscriber(resume_token=token(follower.tdb.stable_point))
            inputs = {name: await world.publisher(name, join_at=point, properties=[]) for name in streams}
            for name, publisher in inputs.items():
                replica = Tdb(name)
                for element in streams[name][: at[name]]:
                    replica.apply(element)
                alive = [e for e in replica.events() if e.ve >= min(point, replica.stable_point)]
                last = Stable(replica.stable_point)
                await publisher.send(*(Insert(e.payload, e.vs, e.ve) for e in alive), last)
            for _ in range(random.randint(1, 40)):
                name = random.choice("ab")
                if part := streams[name][at[name] : at[name] + 5]:
                    at[name] += len(part)
                    await inputs[name].send(*part)
            acks = [(await publisher.acked()).stable_point for publisher in inputs.values()]
            await follower.follow(reader, max(acks))
            if random.random() < 0.7:
                await killed(world)
    assert follower.tdb.events() == events


async def test_two_servers_cannot_have_one_store(tmp_path: Path) -> None:
    async with durable(tmp_path) as world:
        await world.publisher("a")
        second = Server(Settings(store=str(tmp_path / "store"), http_port=None))
        with pytest.raises(StoreInUse, match="another server has it"):
            await second.start()
    async with durable(tmp_path) as world:
        assert MERGE in world.server._registry.hubs


async def test_a_merge_without_an_accepted_input_leaves_no_file(tmp_path: Path) -> None:
    async with durable(tmp_path, merges=("declared",)) as world:
        assert (await world.refused("a", properties=["no such word"])).code is grpc.StatusCode.INVALID_ARGUMENT
        await world.subscriber("declared")
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["lock"]


@pytest.mark.parametrize("name", ["flights/eu", "..", "Ä" * 99, "a" * 199, "A", "%00 x", "NUL", "x.lmerge"])
async def test_any_name_of_a_merge_makes_a_file_of_its_own(tmp_path: Path, name: str) -> None:
    async with durable(tmp_path) as world:
        await (await world.publisher("a", merge=name)).merged(ins("x", 1, 9), stable(5))
        await (await world.publisher("a", merge=name.lower() + "!")).merged(stable(6))
    files = [path for path in (tmp_path / "store").iterdir() if path.suffix == ".lmerge"]
    assert len({path.name.lower() for path in files}) == 2
    assert all(len(path.name.encode()) < 250 for path in files)
    async with durable(tmp_path) as world:
        assert (await world.describe(name)).summary.stable_point == 5


async def test_retention_bounds_the_file(tmp_path: Path) -> None:
    async with durable(tmp_path, retain_bytes=200_000, segment_bytes=50_000) as world:
        a = await world.publisher("a")
        for at in range(120):  # six times what is retained
            await a.merged(ins(b"x" * 10_000, at, at + 1), stable(at))
        retained = hub(world).state.retained_from
        assert 90 < retained < 119
        path = hub(world).state.output.durable.store.path
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("SELECT sum(length(data)) FROM message").fetchone()[0]
    assert size < 250_000
    assert path.stat().st_size < 1_000_000
    async with durable(tmp_path, retain_bytes=200_000) as world:
        assert hub(world).state.retained_from == retained
        assert (await world.subscriber(resume_token=token(retained))).begin.complete_from == retained


async def test_a_history_in_the_store_is_sent_in_pieces_and_joins_the_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmerge.service.output.durable_merges._READ_BYTES", 700)
    async with durable(tmp_path, segment_bytes=3_000) as world:
        a = await world.publisher("a")
        for at in range(100):
            await a.merged(ins(b"x" * 100, at, at + 3), stable(at))
        again = await world.subscriber(resume_token=token(NEG_INF))
        assert len(again.tdb.events()) == 100
        await a.merged(ins("last", 100, 101), stable(200))
        assert len(await again.until_stable(200)) == 101


async def test_settings_that_contradict_what_was_shown_are_refused(tmp_path: Path) -> None:
    async with durable(tmp_path) as world:
        await (await world.publisher("a")).merged(ins("x", 1, 20))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"policy": "final-only"}, "not final"),
        ({"algorithm": "r0"}, "less general"),
    ]
    for settings, message in wrong:
        with pytest.raises(UsageError, match=message):
            await Server(Settings(store=str(tmp_path / "store"), http_port=None, **settings)).start()
    async with durable(tmp_path, algorithm="r4", policy="eager") as world:
        assert (await world.describe()).summary.algorithm == "r4"


async def test_a_drain_shows_everything_before_it_ends_the_streams(tmp_path: Path) -> None:
    async with durable(tmp_path) as world:
        a = await world.publisher("a")
        reader = await world.subscriber()
        await a.send(ins("x", 1, 20), stable(5))
        await world.described(lambda merge: merge.inputs[0].received.stables == 1)  # wait until it has arrived
        ending = asyncio.create_task(reader.ending())
        await world.server.stop(5.0)
        assert (await ending).code is UNAVAILABLE
        assert reader.tdb.stable_point == 5
        assert (await a.ending()).code is UNAVAILABLE
        assert (a.last_ack.sequence, a.last_ack.stable_point) == (1, 5)


async def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot use .*file"):
        StoreFolder(Settings(store=str(tmp_path / "file")))
