"""Stage and commit: staged parts wait unseen until their publisher commits them, or sends the elements itself."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, cast

import grpc
import pytest
from service_world import MERGE, World, adj, ins, replayed, stable
from staging_world import QUERY, both, commit, staged, staging_of

from lmerge.core.elements import INF, Element, Event, Insert
from lmerge.service.calls.publish import PublishSession
from lmerge.service.merge.staged_parts import PART_BYTES, REPLACED, PartOwner
from lmerge.service.settings import Settings
from lmerge.testing.streams.merge_inputs import present, reference
from lmerge.wire.generated import lmerge_pb2 as pb

pytestmark = pytest.mark.usefixtures("transport")

INVALID, EXHAUSTED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED
UNAVAILABLE, DENIED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED


@both
async def test_parts_staged_before_there_is_a_merge_are_seen_when_they_are_committed_and_not_before() -> None:
    async with World() as world:
        answer = await staged(world, 7, 0, [ins("x", 1, 5)], [ins("y", 2, 9), ins("z", 3)])
        assert answer.elements == 3
        assert answer.bytes > PART_BYTES
        assert answer.limits.staged_bytes == Settings().staged_bytes
        await staged(world, 7, 1, [ins("v", 1, 20)], attempt=3)
        assert not (await world.stub.ListMerges(pb.ListMergesRequest())).merges
        a = await world.publisher("a")
        described = await world.describe()
        assert (described.live_events, described.staged_parts) == (0, 2)
        assert described.staged_bytes == staging_of(world).bytes > answer.bytes
        await commit(a, 7, (0, 0), (1, 3), stable=4, elements=4, payload_bytes=4)
        ack = await a.acked()
        assert (ack.sequence, ack.stable_point) == (1, 4)
        reader = await world.subscriber()
        assert reader.snapshot == [ins("v", 1, 20), ins("x", 1, 5), ins("y", 2, 9), ins("z", 3), stable(4)]
        described = await world.describe()
        assert (described.staged_parts, described.staged_bytes, described.staged_commits) == (0, 0, 1)


@both
async def test_a_commit_has_its_place_among_the_batches_and_its_parts_the_order_of_the_commit() -> None:
    async with World(merges=(MERGE,)) as world:
        reader = await world.subscriber()
        a = await world.publisher("a", properties=["insert-only", "ordered"])
        await staged(world, 1, 0, [ins("4", 4, 9), ins("5", 5, 9)])
        await staged(world, 1, 1, [ins("2", 2, 9)], [ins("3", 3, 9)])
        await a.send(ins("1", 1, 9))
        await commit(a, 1, (1, 0), (0, 0), stable=5)
        await a.send(ins("6", 6, 9))
        await a.send(stable(7))
        assert (await a.acked(stable_point=7)).sequence == 4
        assert [e.payload for e in await reader.until_stable(7)] == [b"1", b"2", b"3", b"4", b"5", b"6"]
        assert [e for e in reader.elements if isinstance(e, Insert)] == [ins(str(vs), vs, 9) for vs in range(1, 7)], (
            "they promised an order, and kept it"
        )


@both
async def test_a_commit_larger_than_a_turn_is_acked_once_and_counted_through() -> None:
    async with World(turn_elements=10, merge_queue_elements=20) as world:
        a = await world.publisher("a")
        for partition in range(3):
            await staged(world, 1, partition, *([ins(f"{partition} {at}", at, at + 50)] * 1 for at in range(35)))
        await staged(world, 1, 3, [ins(f"3 {at}", at, at + 50) for at in range(35)])
        await commit(a, 1, (0, 0), (1, 0), (2, 0), (3, 0), stable=0)
        await a.acked()
        assert a.last_ack.sequence == 1
        assert (await world.describe()).emitted.inserts == 140
        assert staging_of(world).bytes == 0


@both
async def test_a_commit_without_parts_delivers_its_stable_or_nothing_at_all() -> None:
    async with World() as world:
        a = await world.publisher("a")
        await commit(a, 1, stable=8, elements=0)
        assert (await a.acked()).stable_point == 8
        await commit(a, 2)
        assert (await a.acked()).sequence == 2
        await staged(world, 3, 0)
        await commit(a, 3, (0, 0), elements=0, payload_bytes=0)
        await a.acked()


@both
async def test_a_part_that_comes_again_replaces_the_one_before() -> None:
    async with World() as world:
        a = await world.publisher("a")
        await staged(world, 1, 0, [ins("first", 1, 5)])
        await staged(world, 1, 0, [ins("again", 1, 5), ins("more", 2, 5)])
        await commit(a, 1, (0, 0), elements=2)
        await a.acked()
        reader = await world.subscriber()
        assert reader.snapshot == [ins("again", 1, 5), ins("more", 2, 5)]
        assert staging_of(world).dropped == {REPLACED: 1}


@both
async def test_a_commit_whose_part_is_not_there_merges_nothing_and_the_publisher_sends_it_again() -> None:
    async with World() as world:
        a = await world.publisher("a", incarnation=1)
        await a.send(ins("before", 1, 20), stable(1))
        await staged(world, 4, 0, [ins("x", 2, 9)])
        await commit(a, 4, (0, 0), (1, 0), (2, 5), stable=2)
        ending = await a.ending()
        assert ending.code is UNAVAILABLE
        assert "part 1 (attempt 0) of batch 4 of query 'counts' of input 'a' of merge 'flights'" in ending.details
        assert "is not staged here (any more), nor is 1 more of its commit: attach again" in ending.details
        assert (a.last_ack.sequence, ending.detached) == (1, None)
        described = await world.describe()
        assert (described.live_events, described.missed_commits, described.staged_parts) == (1, 1, 0)
        a = await world.publisher("a", incarnation=2, join_at=1)
        await a.merged(ins("before", 1, 20), ins("x", 2, 9), ins("y", 2, 9), stable(2))
        assert (await world.subscriber()).snapshot[:3] == [ins("before", 1, 20), ins("x", 2, 9), ins("y", 2, 9)]


@both
@pytest.mark.parametrize("declared", [{"elements": 2}, {"payload_bytes": 9}, {"elements": 0, "payload_bytes": 1}])
async def test_parts_that_do_not_hold_what_the_publisher_declares_are_not_merged(declared: dict[str, Any]) -> None:
    async with World() as world:
        a = await world.publisher("a")
        await staged(world, 1, 0, [ins("x", 1, 5)])
        await commit(a, 1, (0, 0), stable=1, **declared)
        ending = await a.ending()
        assert ending.code is UNAVAILABLE
        assert "the staged parts of batch 1 of query 'counts' of input 'a' of merge 'flights' hold 1 " in ending.details
        described = await world.describe()
        assert (described.live_events, described.missed_commits, staging_of(world).bytes) == (0, 1, 0)


@both
async def test_a_broken_promise_in_a_part_is_reported_by_its_index_in_the_commit() -> None:
    async with World() as world:
        a = await world.publisher("a")
        await a.merged(stable(3))
        await staged(world, 1, 0, [ins("x", 4, 9)], [ins("y", 5, 9)])
        await staged(world, 1, 1, [ins("z", 6, 9), ins("late", 2, 9), ins("never", 7, 9)])
        await commit(a, 1, (0, 0), (1, 0), stable=4)
        ending = await a.ending()
        assert ending.code is grpc.StatusCode.FAILED_PRECONDITION
        assert ending.detached is not None
        assert (ending.detached.code, ending.detached.sequence, ending.detached.index) == ("insert-below-stable", 2, 3)
        assert (await world.subscriber()).snapshot[:-1] == [ins("x", 4, 9), ins("y", 5, 9), ins("z", 6, 9)]
        assert staging_of(world).bytes == 0


@both
async def test_a_fenced_publisher_commits_nothing_and_takes_nothing_away() -> None:
    async with World() as world:
        old = await world.publisher("a", incarnation=1)
        await staged(world, 1, 0, [ins("x", 1, 5)])
        new = await world.publisher("a", incarnation=2)
        ending = await old.ending()
        assert ending.code is grpc.StatusCode.ABORTED
        assert "fenced" in ending.details
        # Its stream has not ended yet; it has nothing to write to.
        late = PublishSession(cast(Any, None), world.server._registry, world.server.settings)
        late._owner = PartOwner(MERGE, "a")
        listed = [pb.PublishRequest.Commit.Part(partition=0)]
        await late._commit(
            world.server._registry.hubs[MERGE],
            pb.PublishRequest.Commit(sequence=1, query=QUERY, batch=1, parts=listed),
            received_s=0.0,
        )
        await commit(new, 1, (0, 0), elements=1)
        assert (await new.acked()).sequence == 1
        assert (await world.describe()).staged_commits == 1


@both
async def test_one_replica_does_not_commit_what_another_has_staged() -> None:
    async with World() as world:
        await staged(world, 1, 0, [ins("x", 1, 5)], replica="b")
        await staged(world, 1, 0, [ins("x", 1, 5)], merge="other")
        a = await world.publisher("a")
        await commit(a, 1, (0, 0))
        assert (await a.ending()).code is UNAVAILABLE
        assert staging_of(world).parts == 2


@both
async def test_a_recorded_session_has_what_was_committed(tmp_path: Path) -> None:
    record = tmp_path / "session.jsonl"
    async with World(merges=(MERGE,), record_path=str(record), policy="eager") as world:
        reader = await world.subscriber()
        a = await world.publisher("a")
        await staged(world, 1, 0, [ins("x", 1, 5), ins("y", 2)])
        await commit(a, 1, (0, 0), stable=2)
        await a.merged(adj("y", 2, INF, 7), stable(9))
        assert await reader.until_stable(9) == [Event(1, b"x", 5), Event(2, b"y", 7)]
        assert replayed(record, "eager") == reader.elements


@both
async def test_random_parts_and_batches_give_the_table_that_plain_batches_give() -> None:
    random = Random(2026)
    events = reference(random, 300)
    async with World(merges=(MERGE,)) as world:
        reader = await world.subscriber()
        rest = {name: present(random, events) for name in "ab"}
        publishers = {name: await world.publisher(name) for name in rest}
        batch = 0
        while any(rest.values()):
            name = random.choice([name for name in rest if rest[name]])
            batch += 1
            pieces = [_some(rest[name], random) for _ in range(random.randint(1, 4))]
            if random.random() < 0.4:
                for piece in pieces:
                    await publishers[name].send(*piece)
                continue
            order = list(range(len(pieces)))
            random.shuffle(order)  # executors come in any order
            attempts = [random.randint(0, 2) for _ in pieces]
            for at in order:
                if random.random() < 0.3:  # a repeated or another attempt, which must not count
                    attempt = attempts[at] + random.randint(0, 1)
                    await staged(world, batch, at, [ins("twin", 0, 1)], replica=name, attempt=attempt)
                await staged(world, batch, at, pieces[at][:1], pieces[at][1:], replica=name, attempt=attempts[at])
            await commit(publishers[name], batch, *enumerate(attempts), elements=sum(map(len, pieces)))
            await publishers[
                name
            ].acked()  # before this replica stages a batch for which the server would drop this one
            staging_of(world).check()
        for publisher in publishers.values():
            await publisher.merged(stable(INF))
        assert await reader.until_stable(INF) == events


def _some(stream: list[Element], random: Random) -> list[Element]:
    count = random.randint(1, 9)
    taken = stream[:count]
    del stream[:count]
    return taken
