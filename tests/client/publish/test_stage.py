"""Stager and the publisher's commit: what workers stage is committed where it is staged, and sent where it is not."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
from client_world import MERGE, Cluster, Reading, World, threaded_world, until
from secure_world import SecureWorld

from lmerge import Origin, Publisher, PublisherLimits, Security
from lmerge.client import AsyncPublisher, AsyncSubscriber, describe_merge
from lmerge.client.publish.link import DISTRUST_MAX, Trust
from lmerge.client.publish.outbox import ROW_BYTES, Outbox, Skip, StagedBatches
from lmerge.client.publish.stage import Staged, StageKey, Stager
from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Insert, Stable
from lmerge.errors import InputViolation, InvalidBatch, LimitExceeded, PermissionDenied, StaleIncarnation, UsageError
from lmerge.testing.streams.merge_inputs import present, reference
from lmerge.wire.frames import PYTHON_FRAMES

both = pytest.mark.usefixtures("engine")
QUERY = "counts"


def ins(payload: str, vs: int, ve: int = INF) -> Insert:
    return Insert(payload.encode(), vs, ve)


def messages_of(*batches: Sequence[Element]) -> list[bytes]:
    return [PYTHON_FRAMES.encode_publish(at, [Batch.of(elements)]) for at, elements in enumerate(batches, 1)]


async def stage(
    targets: str, batch: int, partition: int, elements: Sequence[Element], attempt: int = 0, **more: Any
) -> list[str]:
    """Stage from a thread, as a worker does; return the targets that hold the part."""
    stager = Stager(targets, MERGE, "a")
    key = StageKey(QUERY, batch, partition, attempt)
    return await asyncio.to_thread(stager.stage, key, messages_of(elements), **more)


def staged(batch: int, holders: Iterable[str], *parts: tuple[int, int]) -> Staged:
    return Staged(QUERY, batch, parts or ((0, 0),), frozenset(holders))


async def described(world: World) -> Any:
    return await asyncio.to_thread(describe_merge, world.target, MERGE)


async def commits(world: World) -> tuple[int, int]:
    """Return the commits whose parts were there, and those that missed some."""
    merge = await described(world)
    return merge.staged_commits, merge.missed_commits


# Where it is staged, and where it is not.


@both
async def test_what_is_staged_is_committed_with_its_stable_among_batches_that_are_sent() -> None:
    async with World() as world, world.publisher() as a:
        reading = await Reading(world.subscriber()).begun()
        one, two = [ins("x", 1, 5), ins("y", 2)], [ins("z", 3, 8)]
        assert await stage(world.link.target, 7, 0, one) == [world.link.target]
        assert await stage(world.link.target, 7, 1, two, attempt=2) == [world.link.target]
        await a.insert("before", 0, 9)
        await a.publish([Batch.of(one), Batch.of(two)], staged(7, [world.link.target], (0, 0), (1, 2)), stable=3)
        await a.publish(Batch.of([Adjust(b"y", 2, INF, 6)]))
        await a.stable(9)
        await a.flush()
        assert a.outbox.acked == a.outbox.published == 7
        assert (await commits(world), a.reconnects) == ((1, 0), 0)
        await reading.until_events(("before", 0, 9), ("x", 1, 5), ("y", 2, 6), ("z", 3, 8))
        await reading.until(lambda tdb: tdb.stable_point == 9)
        await reading.stop()


def test_the_blocking_publisher_commits_what_a_stager_has_brought() -> None:
    with threaded_world() as world, Publisher(world.target, MERGE, "a") as publisher:
        stager = Stager(world.target, MERGE, "a")
        elements = [[ins(f"{batch} {at}", batch, batch + 9) for at in range(100)] for batch in range(5)]
        for batch in range(5):
            holders = stager.stage(StageKey(QUERY, batch, 0, 0), messages_of(elements[batch]))
            publisher.publish(Batch.of(elements[batch]), staged(batch, holders), stable=batch)
        publisher.flush()
        merge = describe_merge(world.target, MERGE)
        assert (merge.staged_commits, merge.staged_parts, merge.emitted.inserts) == (5, 0, 500)
        assert publisher.merge_stable_point == 4


@both
async def test_servers_that_do_not_hold_all_of_it_receive_the_elements() -> None:
    async with Cluster(2) as cluster:
        one, _ = cluster.worlds
        async with cluster.publisher("a", limits=PublisherLimits(buffer_bytes_max=1000)) as a:
            for batch in range(4):
                elements = [ins(f"{batch} {at}" * 50, batch, batch + 9) for at in range(300)]
                holders = await stage(one.link.target, batch, 0, elements)
                assert holders == [one.link.target]
                await a.publish(Batch.of(elements), staged(batch, holders), stable=batch)
                await a.flush()
            assert [await commits(world) for world in cluster.worlds] == [(4, 0), (0, 0)]
            assert [(await described(world)).emitted.inserts for world in cluster.worlds] == [1200, 1200]
            assert a.reconnects == 0, "a server that is sent elements is not dropped for that"


@both
async def test_a_server_that_lacks_a_part_after_all_gets_it_with_the_next_connection() -> None:
    async with World() as world, world.publisher() as a:
        reading = await Reading(AsyncSubscriber(world.target, MERGE)).begun()
        await a.insert("before", 0, 9)
        await a.publish(Batch.of([ins("x", 1, 5)]), staged(1, [world.link.target]), stable=1)
        await a.insert("after", 2, 9)
        await a.flush()
        assert (await commits(world), a.reconnects) == ((0, 1), 1)
        await reading.until_events(("before", 0, 9), ("x", 1, 5), ("after", 2, 9))
        await reading.stop()


@both
async def test_a_server_that_was_restarted_in_between_has_lost_nothing() -> None:
    async with World() as world, world.publisher() as a:
        await a.insert("before", 0, 9)
        await a.flush()
        holders = await stage(world.link.target, 1, 0, [ins("x", 1, 5)])
        await world.restart()
        await a.publish(Batch.of([ins("x", 1, 5)]), staged(1, holders), stable=1)
        await a.insert("after", 2, 9)
        await a.flush()
        reading = await Reading(AsyncSubscriber(world.target, MERGE)).begun()
        await reading.until_events(("before", 0, 9), ("x", 1, 5), ("after", 2, 9))
        await reading.stop()
        assert (await commits(world))[0] == 0


@both
async def test_a_connection_that_breaks_between_staging_and_commit_brings_it_back_once() -> None:
    async with World() as world, world.publisher() as a:
        reading = await Reading(AsyncSubscriber(world.target, MERGE)).begun()
        holders = await stage(world.link.target, 1, 0, [ins("x", 1, 5)])
        world.link.cut()
        await until(lambda: not a.links[0].is_connected)
        await a.publish(Batch.of([ins("x", 1, 5)]), staged(1, holders), stable=1)
        world.link.mend()
        await a.flush()
        assert await commits(world) == (0, 0), "the prelude holds it"
        await reading.until_events(("x", 1, 5))
        await reading.stop()


async def test_a_replaced_twin_that_holds_something_else_is_not_committed() -> None:
    async with World() as world, world.publisher() as a:
        holders = await stage(world.link.target, 1, 0, [ins("x", 1, 5)])
        await stage(world.link.target, 1, 0, [ins("another run", 1, 5)])
        await a.publish(Batch.of([ins("x", 1, 5)]), staged(1, holders), stable=1)
        await a.flush()
        assert await commits(world) == (0, 1)
        reading = await Reading(AsyncSubscriber(world.target, MERGE)).begun()
        await reading.until_events(("x", 1, 5))
        await reading.stop()


async def test_a_fenced_publisher_commits_nothing() -> None:
    async with World() as world:
        old = await world.publisher(origin=Origin(incarnation=1)).open()
        holders = await stage(world.link.target, 1, 0, [ins("x", 1, 5)])
        new = await world.publisher(origin=Origin(incarnation=2)).open()
        await until(lambda: old.failure is not None)
        with pytest.raises(StaleIncarnation, match="fenced"):
            await old.publish(Batch.of([ins("x", 1, 5)]), staged(1, holders))
        await new.publish(Batch.of([ins("x", 1, 5)]), staged(1, holders))
        await new.flush()
        assert await commits(world) == (1, 0)
        await new.close()
        await old.abort()


async def test_a_server_that_loses_what_was_staged_again_and_again_is_sent_more_and_more() -> None:
    async with World() as world, world.publisher() as a:
        for batch in range(12):
            await a.publish(Batch.of([ins(str(batch), batch, batch + 2)]), staged(batch, [world.link.target]))
            await a.flush()
        assert await commits(world) == (0, 4)
        for batch in range(12, 30):
            elements = [ins(str(batch), batch, batch + 2)]
            holders = await stage(world.link.target, batch, 0, elements)
            await a.publish(Batch.of(elements), staged(batch, holders), stable=batch)
            await a.flush()
        assert await commits(world) == (30 - 15, 4)


def test_one_commit_restores_trust_at_once() -> None:
    trust = Trust()
    sent_between = []
    for _ in range(12):
        trust.broken()
        sent_between.append(next(sent for sent in count() if trust.may_commit()))
    assert sent_between[:7] == [0, 1, 3, 7, 15, 31, 63]
    assert set(sent_between[7:]) == {DISTRUST_MAX}
    trust.kept()
    trust.broken()
    assert trust.may_commit()


@both
async def test_random_batches_parts_twins_lies_and_cuts_give_the_table_that_was_published() -> None:
    for seed in range(2):
        random = Random(f"stage {seed}")
        events = reference(random, 80)
        async with World() as world, world.publisher() as a:
            reading = await Reading(AsyncSubscriber(world.target, MERGE)).begun()
            stream = present(random, events)
            for batch in count():
                if not stream:
                    break
                await _publish_somehow(world, a, stream, batch, random)
            await a.stable(INF)
            await a.flush()
            await reading.until(lambda tdb: tdb.stable_point == INF)
            assert reading.tdb.events() == events
            await reading.stop()
        assert a.reconnects > 0


async def _publish_somehow(world: World, a: AsyncPublisher, stream: list[Element], batch: int, random: Random) -> None:
    """Publish some of the stream as the next batch: staged, half staged, wrongly declared as staged, or sent."""
    pieces = []
    for _ in range(random.randint(1, 3)):
        size = random.randint(1, 8)
        pieces.append(stream[:size])
        del stream[:size]
    attempts = [random.randint(0, 2) for _ in pieces]
    parts = tuple(enumerate(attempts))
    holders = {world.link.target}
    way = random.choice(("stage", "stage", "stage", "lie", "half", "send"))
    for at, piece in enumerate(pieces):
        if way == "stage" or (way == "half" and at == 0):
            if random.random() < 0.2:
                attempt = attempts[at] + random.randint(0, 1)
                await stage(world.link.target, batch, at, [ins("twin", 0, 1)], attempt=attempt)
            holders &= set(await stage(world.link.target, batch, at, piece, attempt=attempts[at]))
    if random.random() < 0.15:
        world.link.cut()
        world.link.mend()
    batches = [Batch.of(piece) for piece in pieces]
    await a.publish(batches, None if way == "send" else Staged(QUERY, batch, parts, frozenset(holders)))
    if random.random() < 0.4:
        await a.flush()


# The stager.


async def test_a_server_that_is_away_is_no_error_and_the_others_get_it() -> None:
    async with Cluster(3) as cluster:
        await cluster.kill(1)
        targets = cluster.targets.split(",")
        stager = Stager(targets, MERGE, "a")
        for batch in range(2):
            key = StageKey(QUERY, batch, 0, 0)
            holders = await asyncio.to_thread(stager.stage, key, messages_of([ins("x", 1, 5)]))
            assert holders == [targets[0], targets[2]]
            assert list(stager.refusals) == [targets[1]]
        await cluster.revive(1)
        while await stage(targets[1], 1, 0, [ins("x", 1, 5)]) != [targets[1]]:
            pass


async def test_a_server_that_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmerge.client.publish.stage.AWAY_S", 60.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        stager = Stager(target, MERGE, "a")
        for reason in ("in time", "has not answered lately", "has not answered lately"):
            assert await asyncio.to_thread(stager.stage, StageKey(QUERY, 0, 0, 0), [], 0.05) == []
            assert reason in stager.refusals[target]


async def test_a_part_that_cannot_be_kept_is_no_error() -> None:
    async with World(staged_bytes_per_replica=2000) as world:
        stager = Stager(world.target, MERGE, "a")
        large = messages_of([ins("x" * 2000, 1, 5)])
        assert await asyncio.to_thread(stager.stage, StageKey(QUERY, 1, 0, 0), large) == []
        assert "the staged parts of a replica may take 2000" in stager.refusals[world.target]
        assert await asyncio.to_thread(stager.stage, StageKey(QUERY, 1, 0, 0), []) == [world.target]
        assert stager.refusals == {}


async def test_what_a_publisher_could_not_send_either_is_an_error_that_names_server_and_part() -> None:
    async with World(payload_bytes=1000) as world:
        where = rf"part 3 \(attempt 0\) of batch 1 of query 'counts'.* \(server {world.target}\)"
        stager, key = Stager(world.target, MERGE, "a"), StageKey(QUERY, 1, 3, 0)
        with pytest.raises(LimitExceeded, match=f"{where}"):
            await asyncio.to_thread(stager.stage, key, messages_of([ins("x" * 1001, 1, 5)]))
        with pytest.raises(InvalidBatch, match=where):
            await asyncio.to_thread(stager.stage, key, [b"nonsense"])
        with pytest.raises(InvalidBatch, match="batch 2 came where batch 1 was due"):
            await asyncio.to_thread(stager.stage, key, messages_of([], [])[1:])
        with pytest.raises(UsageError, match="HOST:PORT"):
            Stager("", MERGE, "a")


async def test_a_worker_stages_over_tls_with_its_token_and_only_for_its_replica(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        token = world.token("a", ["publish"], [MERGE], ["a"])
        security = Security(ca=world.authority.path, token=token)
        key, messages = StageKey(QUERY, 1, 0, 0), messages_of([ins("x", 1, 5)])
        mine = Stager(world.target, MERGE, "a", security)
        assert await asyncio.to_thread(mine.stage, key, messages) == [world.target]
        other = Stager(world.target, MERGE, "b", security)
        with pytest.raises(PermissionDenied, match="may not stage parts for merge 'flights' as replica 'b'"):
            await asyncio.to_thread(other.stage, key, messages)
        stranger = Stager(world.target, MERGE, "a", Security(ca=world.authority.path))
        assert await asyncio.to_thread(stranger.stage, key, messages) == [], "credentials are renewed one day"
        assert list(stranger.refusals) == [world.target]


async def test_a_server_without_staging_holds_nothing() -> None:
    server = grpc.aio.server()
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    assert await stage(target, 1, 0, [ins("x", 1, 5)]) == []
    await server.stop(None)


@pytest.mark.parametrize("has_staged", [False, True])
def test_workers_stage_if_they_were_forked_before_anything_was(has_staged: bool) -> None:
    parent = "print(stager.stage(StageKey('q', 1, 0, 0), []) == [sys.argv[1]], flush=True)\n"
    code = (
        "import os, sys\n"
        "from lmerge.client.publish.stage import StageKey, Stager\n"
        "stager = Stager(sys.argv[1], 'flights', 'a')\n"
        f"{parent if has_staged else ''}"
        "if os.fork() == 0:\n"
        "    print(stager.stage(StageKey('q', 1, 1, 0), []) == [sys.argv[1]], flush=True)\n"
        "    print(*stager.refusals.values(), flush=True)\n"
        "    os._exit(0)\n"
        "assert os.wait()[1] == 0\n"
        f"{parent}"
    )
    with threaded_world() as world:
        command = [sys.executable, "-c", code, world.target]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        reason = "this process was forked from one that had staged already"
        expected = ["True", "False", reason, "True"] if has_staged else ["True", "", "True"]
        assert done.stdout.splitlines() == expected, done.stderr
        assert describe_merge(world.target, MERGE).staged_parts == (1 if has_staged else 2)


# The outbox.


def items_of(outbox: Outbox) -> list[Any]:
    """Return what the only lane has to send."""
    taken = outbox.lanes[0].take()
    return [] if taken is None else taken.items


def connected(outbox: Outbox) -> None:
    lane = outbox.lane()
    lane.join_at()
    assert lane.restart() is not None
    lane.note_stable(2)
    assert lane.take() is None


def test_staged_batches_and_their_stable_are_one_item_in_the_order_of_publishing(engine: str) -> None:
    outbox = Outbox("a")
    connected(outbox)
    outbox.put_row((0, 1, 5, 0, b"row"))
    batches: list[AnyBatch] = [Batch.of([ins("x", 2, 5)]), Batch.of([ins("yy", 3, 5)])]
    outbox.put_batches(batches, 3, staged(1, ["h:1"], (0, 0), (1, 0)))
    outbox.skip(2)
    outbox.put_batches(batches[:0], 4)
    row, item, skip, last = items_of(outbox)
    assert list(row.elements()) == [ins("row", 1, 5)]
    assert isinstance(item, StagedBatches)
    assert (item.elements, item.payload_bytes, outbox.published) == (2, 3, 5)
    assert [list(batch.elements()) for batch in item.all_batches] == [[ins("x", 2, 5)], [ins("yy", 3, 5)], [Stable(3)]]
    assert skip == Skip(2)
    assert list(last.elements()) == [Stable(4)]
    assert outbox.stable_point == 4


def test_batches_that_break_a_promise_are_not_committed_and_what_came_before_is_published(engine: str) -> None:
    outbox = Outbox("a")
    connected(outbox)
    batches: list[AnyBatch] = [Batch.of([ins("x", 2, 5)]), Batch.of([ins("y", 3, 5), ins("bad", 3, 1), ins("z", 3, 5)])]
    with pytest.raises(InputViolation) as caught:
        outbox.put_batches(batches, 9, staged(1, ["h:1"]))
    assert caught.value.index == 1
    assert [element for batch in items_of(outbox) for element in batch.elements()] == [ins("x", 2, 5), ins("y", 3, 5)]
    with pytest.raises(LimitExceeded, match="element 1"):
        outbox.put_batches([batches[0], Batch.of([ins("y", 3, 5), ins("z" * 2**21, 3, 5)])], 9)
    with pytest.raises(InvalidBatch):
        outbox.put_batches([batches[0]], 2**63)
    assert (items_of(outbox), outbox.published, outbox.stable_point) == ([], 2, NEG_INF)
    with pytest.raises(UsageError, match="a part comes twice"):
        staged(1, [], (0, 0), (0, 0))


def test_a_lane_that_must_send_what_others_commit_is_dropped_only_when_it_is_behind_by_more(engine: str) -> None:
    outbox = Outbox("a", bytes_max=10 * ROW_BYTES)
    connected(outbox)
    first, slow = outbox.lanes[0], outbox.lane()
    slow.join_at()
    assert slow.restart() is not None
    for batch in range(2):
        outbox.put_batches([Batch.of([ins("", at, at + 9) for at in range(50)])], None, staged(batch, ["h:1"]))
        assert first.take() is not None
        assert slow.was_dropped is (batch == 1)
    assert not first.was_dropped
