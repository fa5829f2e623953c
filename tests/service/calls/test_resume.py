"""Resume tokens at the server: what was missed comes first, once; a token that is too old is refused or reported."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import grpc
import pytest
from service_world import MERGE, RawReader, World, adj, ins, stable

from lmerge.core.elements import INF, NEG_INF, Event, Insert, Stable
from lmerge.core.tdb import Tdb
from lmerge.service import offload
from lmerge.testing.streams.merge_inputs import present, reference
from lmerge.wire.codec import decode_batch
from lmerge.wire.token import format_token

pytestmark = pytest.mark.usefixtures("engine")


def token(t: int) -> str:
    return format_token(MERGE, t)


async def refused(world: World, **request: Any) -> Any:
    return await RawReader(world.subscribe(**request)).ending()


async def test_a_reader_that_resumes_gets_the_events_that_were_frozen_while_it_was_away() -> None:
    async with World() as world:
        a = await world.publisher("a")
        await a.merged(ins("before", 1, 3), ins("x", 2, 30), stable(5))
        reader = await world.subscriber()
        assert reader.begin.complete_from == 5
        await a.merged(ins("missed", 6, 8), adj("x", 2, 30, 9), ins("long", 7, 50), stable(20))
        again = await world.subscriber(resume_token=token(5))
        assert (again.begin.complete_from, again.begin.stable_point) == (NEG_INF, 20)
        events = [e for e in again.tdb.events() if e.ve >= 5]
        assert events == [Event(2, b"x", 9), Event(6, b"missed", 8), Event(7, b"long", 50)]
        assert again.begin.events == sum(isinstance(e, Insert) for e in again.snapshot)
        await a.merged(ins("after", 21, 22), stable(60))
        assert await again.until_stable(60) == [*again.tdb.events()]
        assert Event(21, b"after", 22) in again.tdb.events()


async def test_a_reader_that_has_everything_up_to_now_gets_the_live_events_only() -> None:
    async with World() as world:
        a = await world.publisher("a")
        await a.merged(ins("gone", 1, 3), ins("x", 2, 30), stable(5))
        for known in (5, 6, 2**63 - 1):
            again = await world.subscriber(resume_token=token(known))
            assert again.snapshot == [Insert(b"x", 2, 30), Stable(5)]
            assert again.begin.complete_from == 5


async def test_from_the_beginning_is_a_token_too() -> None:
    async with World() as world:
        a = await world.publisher("a")
        await a.merged(ins("gone", 1, 3), stable(5))
        again = await world.subscriber(resume_token=token(NEG_INF))
        assert again.tdb.events() == [Event(1, b"gone", 3)]


async def test_a_token_that_is_too_old_is_refused_with_what_is_retained() -> None:
    async with World(retain_bytes=4_000, segment_bytes=1_000) as world:
        a = await world.publisher("a")
        for at in range(100):
            await a.merged(ins(b"x" * 50, at, at + 1), stable(at))
        ending = await refused(world, resume_token=token(3))
        assert ending.code is grpc.StatusCode.OUT_OF_RANGE
        described = world.server._registry.get(MERGE).state
        assert 50 < described.retained_from < 99
        assert f"retains times from {described.retained_from} to 99" in ending.details
        assert "resume merge 'flights' at 3" in ending.details
        later = await world.subscriber(resume_token=token(3), snapshot_if_too_old=True)
        assert later.begin.complete_from == described.retained_from, "all that is kept, not a snapshot of now"
        assert [event.ve for event in later.tdb.events()][-1] == 100
        oldest = await world.subscriber(resume_token=token(described.retained_from))
        assert next(e.ve for e in oldest.tdb.events() if e.ve >= described.retained_from) == described.retained_from


async def test_a_token_of_another_merge_or_a_damaged_one_is_refused() -> None:
    async with World(merges=(MERGE,)) as world:
        for bad in ("trains@5", "5", "flights@", "flights@soon", "flights@99999999999999999999", "@5"):
            ending = await refused(world, resume_token=bad)
            assert ending.code is grpc.StatusCode.INVALID_ARGUMENT
            assert repr(bad) in ending.details


async def test_retention_by_time_forgets_what_is_older() -> None:
    async with World(retain_time=20, segment_bytes=100) as world:
        a = await world.publisher("a")
        for at in range(100):
            await a.merged(ins(b"x" * 50, at, at + 1), stable(at))
        assert 60 <= world.server._registry.get(MERGE).state.retained_from <= 79
        assert (await refused(world, resume_token=token(40))).code is grpc.StatusCode.OUT_OF_RANGE
        assert (await world.subscriber(resume_token=token(79))).begin.complete_from <= 79


async def test_a_merge_too_large_to_be_retained_can_still_be_followed() -> None:
    async with World(retain_bytes=500) as world:
        a = await world.publisher("a")
        for at in range(40):
            await a.merged(ins(b"x" * 50, at), stable(at))
        hub = world.server._registry.get(MERGE)
        assert hub.state.retained_from == 39
        assert (await refused(world, resume_token=token(38))).code is grpc.StatusCode.OUT_OF_RANGE
        assert len((await world.subscriber(resume_token=token(39))).tdb.events()) == 40


async def test_readers_that_resume_anywhere_in_a_random_stream_end_with_the_reference() -> None:
    for seed in range(6):
        random = Random(seed)
        events = reference(random, 150)
        async with World(retain_bytes=20_000, segment_bytes=500, turn_interval_s=0.0001, policy="eager") as world:
            inputs = [(await world.publisher(name), present(random, events)) for name in "ab"]
            readers: list[tuple[int, RawReader]] = []
            while any(stream for _, stream in inputs):
                publisher, stream = random.choice([one for one in inputs if one[1]])
                await publisher.send(*stream[:9])
                del stream[:9]
                if random.random() < 0.3:
                    hub = world.server._registry.get(MERGE)
                    now = hub.state.merge.stable_point
                    first = hub.state.retained_from
                    known = random.choice([first, now, max(first, now - random.randint(0, 50))])
                    readers.append((known, await world.subscriber(resume_token=token(known), snapshot_if_too_old=True)))
            for known, reader in readers:
                assert reader.begin.complete_from <= max(known, reader.begin.complete_from)
                events_read = await reader.until_stable(2**63 - 1)
                start = reader.begin.complete_from
                assert [e for e in events_read if e.ve >= start] == [e for e in events if e.ve >= start]


@pytest.mark.parametrize("large_from", [0, offload.LIVE_EVENTS_MIN])
async def test_a_subscriber_gets_the_time_from_which_a_merge_is_complete(
    large_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first replica of a fresh server joins at 100: no input here can deliver what ended before that.

    The journal of a merge with ``large_from`` live events begins at the end of a turn.
    """
    monkeypatch.setattr(offload, "LIVE_EVENTS_MIN", large_from)
    async with World(merges=(MERGE,)) as world:
        readers = {known: await world.subscriber(resume_token=token(known)) for known in (50, 100)}
        innocent = await world.subscriber()
        assert innocent.begin.complete_from == NEG_INF
        a = await world.publisher("a", join_at=100)
        assert a.accepted.joined
        await a.merged(ins("x", 90, 120), stable(110))
        for reader in (innocent, readers[50]):
            ending = await reader.ending()
            assert ending.code is grpc.StatusCode.UNAVAILABLE
            assert "before 100 may be missing" in ending.details
        assert await readers[100].until_stable(110) == [Event(90, b"x", 120)]
        assert (await refused(world, resume_token=token(50))).code is grpc.StatusCode.OUT_OF_RANGE
        reader = await world.subscriber(resume_token=token(100))
        assert (reader.begin.complete_from, reader.tdb.events()) == (100, [Event(90, b"x", 120)])


async def test_a_stalled_merge_goes_on_behind_a_gap_and_reports_it() -> None:
    """a has ended; b and c have nothing before 200 and 150; no input can move the merge from 10 to there."""
    async with World(gap_after_s=0.05) as world:
        a = await world.publisher("a")
        await a.merged(ins("old", 1, 160), ins("gone wrong", 5, 120), stable(10))
        reader = await world.subscriber()
        b = await world.publisher("b", join_at=200)
        c = await world.publisher("c", join_at=150)
        assert not b.accepted.joined
        await b.merged(ins("new", 190, 260), stable(205))
        await c.merged(ins("old", 1, 160), ins("new", 190, 260), stable(195))
        hub = world.server._registry.get(MERGE)
        assert (hub.state.gaps, hub.state.merge.stable_point) == (0, 10)
        await a.leave()
        for ending in (await reader.ending(), await b.ending(), await c.ending()):
            assert ending.code is grpc.StatusCode.UNAVAILABLE
            assert "between 10 and 150 may be missing" in ending.details
        assert (hub.state.gaps, hub.state.merge.stable_point, hub.state.merge.inputs()) == (1, NEG_INF, [])
        early = await world.subscriber(resume_token=token(10), snapshot_if_too_old=True)
        assert (early.begin.complete_from, early.snapshot) == (150, [])
        c = await world.publisher("c", join_at=150, incarnation=c.accepted.incarnation + 1)
        assert c.accepted.joined
        await c.merged(ins("old", 1, 160), ins("new", 190, 260), stable(195))
        assert await early.until_stable(195) == [Event(1, b"old", 160), Event(190, b"new", 260)]
        assert (hub.state.complete_from, hub.state.retained_from) == (150, 150)
        assert (await refused(world, resume_token=token(10))).code is grpc.StatusCode.OUT_OF_RANGE
        again = await world.subscriber(resume_token=token(10), snapshot_if_too_old=True)
        assert again.begin.complete_from == 150
        assert again.tdb.events() == [Event(1, b"old", 160), Event(190, b"new", 260)]
        b = await world.publisher("b", join_at=200, incarnation=b.accepted.incarnation + 1)
        await b.merged(ins("new", 190, 260), stable(300))
        await c.merged(stable(200))
        assert await again.until_stable(300)


async def test_a_reader_that_waited_for_an_input_in_the_middle_gets_all_that_it_delivers() -> None:
    """Its stream ends, as what is older is missing; that it is late with the next one costs nothing."""
    async with World(merges=(MERGE,)) as world:
        reader = await world.subscriber()
        a = await world.publisher("a", join_at=100)
        await a.merged(ins("early", 90, 110), ins("late", 120, 130), stable(INF))
        assert (await reader.ending()).code is grpc.StatusCode.UNAVAILABLE
        again = await world.subscriber(resume_token=token(NEG_INF), snapshot_if_too_old=True)
        assert again.begin.complete_from == 100
        assert await again.until_stable(INF) == [Event(90, b"early", 110), Event(120, b"late", 130)]


async def test_behind_a_gap_no_event_keeps_an_end_that_it_had_before() -> None:
    """``open`` and ``held`` were half frozen, and ended in the gap, when no input was there to deliver the ends."""
    async with World(gap_after_s=0.05) as world:
        a = await world.publisher("a", properties=[])
        await a.merged(ins("open", 5), ins("held", 6, 90), ins("long", 7, 80), stable(10))
        b = await world.publisher("b", properties=[], join_at=61)
        await b.merged(ins("long", 7, 80), ins("new", 60, 90), stable(70))
        await a.leave()
        assert (await b.ending()).code is grpc.StatusCode.UNAVAILABLE
        assert (await world.refused("b", properties=[], incarnation=1)).code is grpc.StatusCode.ABORTED
        b = await world.publisher("b", properties=[], join_at=61)
        await b.merged(ins("long", 7, 80), ins("new", 60, 90), stable(70))
        reader = await world.subscriber(resume_token=token(10), snapshot_if_too_old=True)
        assert reader.tdb.events() == [Event(7, b"long", 80), Event(60, b"new", 90)]
        past = await world.subscriber(resume_token=token(61))
        assert [e for e in past.tdb.events() if e.ve >= 61] == reader.tdb.events()


async def test_a_merge_whose_first_input_goes_again_before_its_join_at_is_not_stuck() -> None:
    """The first input of a fresh server begins at 50, and the merge is at 20 when no input is joined any more."""
    async with World(gap_after_s=0.05) as world:
        a = await world.publisher("a", join_at=50)
        await a.merged(ins("x", 40, 60), stable(20))
        b = await world.publisher("b", join_at=50)
        a = await world.publisher("a", join_at=50, incarnation=a.accepted.incarnation + 1)
        assert not a.accepted.joined
        for waiting in (a, b):
            assert (await waiting.ending()).code is grpc.StatusCode.UNAVAILABLE
        assert (await world.publisher("b", join_at=50)).accepted.joined


async def test_an_input_that_has_the_missing_time_prevents_the_gap() -> None:
    async with World(gap_after_s=0.2) as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 20), stable(10))
        late = await world.publisher("late", join_at=50)
        await a.leave()
        a = await world.publisher("a", join_at=10)
        await a.merged(ins("x", 1, 20), stable(60))
        loop = asyncio.get_running_loop()
        until = loop.time() + 0.3
        while loop.time() < until:
            await late.merged(stable(60))
        hub = world.server._registry.get(MERGE)
        assert (hub.state.gaps, hub.state.complete_from) == (0, NEG_INF)


async def test_what_a_resumed_reader_is_sent_is_one_legal_stream_byte_for_byte_of_the_first_one() -> None:
    async with World(segment_bytes=200) as world:
        a = await world.publisher("a")
        first = await world.subscriber()
        for at in range(50):
            await a.merged(ins("x", at, at + 5), stable(at))
        await first.until_stable(49)
        call = world.subscribe(resume_token=token(NEG_INF))
        tdb = Tdb("again")
        elements: list[Any] = []
        while tdb.stable_point < 49:
            message = await call.read()
            if message.WhichOneof("message") == "batch":
                batch = decode_batch(message.batch)
                tdb.apply_batch(batch)
                elements += batch.elements()
        assert elements == first.elements
