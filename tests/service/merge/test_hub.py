"""The hub alone: a run of batches, merged on the loop or in a thread, and inputs that break promises in the middle."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from service_world import MERGE, adj, ins, replayed, stable

from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.detaching import DetachCause
from lmerge.core.elements import INF, Element, Event
from lmerge.core.engines import selection
from lmerge.core.inputs import InputRole
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation, LmergeError, Unavailable, UnknownInput
from lmerge.service.merge import hub as hubs
from lmerge.service.merge.attachments import AttachRequest
from lmerge.service.merge.hub import Hub
from lmerge.service.output.fanout import SubscriberQueue
from lmerge.service.output.session_recorder import Recorder
from lmerge.service.settings import Settings
from lmerge.testing.streams.merge_inputs import present, reference
from lmerge.wire.codec import decode_batch
from lmerge.wire.frames import PYTHON_FRAMES, ReceivedLists
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import DEFAULT_LIMITS

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture(params=["at once", "in a thread"], autouse=True)
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where batches are merged; on the Python engine always on the loop."""
    monkeypatch.setattr(hubs, "THREAD_ELEMENTS_MIN", 1 if request.param == "in a thread" else 2**62)
    return str(request.param)


class HubInput:
    """A session that records the hub's calls. ``deliver`` does not wait, so that several deliveries are one run."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.sequence = 0
        self.acked = 0
        self.error: LmergeError | None = None
        self.detached: pb.PublishResponse.Detached | None = None

    def acknowledge(self, sequence: int, stable_point: int, joined: bool) -> None:
        assert sequence >= self.acked
        self.acked = sequence

    def end(self, error: LmergeError, detached: pb.PublishResponse.Detached | None = None) -> None:
        self.error, self.detached = error, detached

    def fast_forward(self, until: int) -> None:
        raise AssertionError("no feedback was expected")

    def change_role(self, role: str) -> None:
        raise AssertionError("no change of role was expected")

    async def attach(self, name: str, *properties: str, join_at: int | None, incarnation: int | None) -> HubInput:
        request = AttachRequest(name, incarnation, frozenset(properties), join_at, InputRole.ACTIVE, None)
        await self.hub.inputs.attach(self, request)
        return self

    async def deliver(self, *elements: Element) -> None:
        self.sequence += 1
        message = PYTHON_FRAMES.encode_publish(self.sequence, [Batch.of(elements)])
        received = self.hub.frames.read_publish(message)
        assert not isinstance(received, pb.PublishRequest)
        batch: AnyBatch = received.decode(DEFAULT_LIMITS)
        await self.hub.put(self, self.sequence, batch, len(message), received_s=0.0)


class SubscriberStream:
    """The messages of a subscriber, checked as a stream."""

    def __init__(self) -> None:
        self.subscriber = SubscriberQueue("reader", "here", 2**25)
        self.elements: list[Element] = []
        self.tdb = Tdb("subscription")

    async def until_stable(self, vc: int) -> list[Event]:
        while self.tdb.stable_point < vc:
            received = PYTHON_FRAMES.read_subscribe(await self.subscriber.take())
            if isinstance(received, ReceivedLists):
                batch = decode_batch(received.message)
                self.tdb.apply_batch(batch)
                self.elements += batch.elements()
        assert self.tdb.stable_point == vc
        return self.tdb.events()


class HubWorld:
    """A hub with a subscriber."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.subscriber = SubscriberStream()
        self.crashes: list[BaseException] = []

    async def input(
        self, name: str, *properties: str, join_at: int | None = None, incarnation: int | None = None
    ) -> HubInput:
        return await HubInput(self.hub).attach(name, *properties, join_at=join_at, incarnation=incarnation)

    async def settled(self) -> None:
        """Return when all that was delivered is merged and its turn has ended."""
        for _ in range(2):
            await self.hub.task.call(lambda: None)


@asynccontextmanager
async def a_hub(record: Path | None = None, resume_at: int | None = None, **settings: Any) -> AsyncIterator[HubWorld]:
    made = Settings(**settings)
    with ThreadPoolExecutor(2) as pool:
        world = HubWorld(Hub(MERGE, made, Recorder(record) if record is not None else None, pool))
        world.hub.start(world.crashes.append)
        await world.hub.subscriptions.subscribe(world.subscriber.subscriber, resume_at)
        try:
            yield world
        finally:
            await world.hub.close()


async def test_a_run_of_batches_is_merged_in_the_order_in_which_it_came() -> None:
    async with a_hub(policy="eager") as world:
        a, b = await world.input("a", "key"), await world.input("b", "key")
        await a.deliver(ins("x", 1, 9))
        await b.deliver(ins("x", 1, 5), adj("x", 1, 5, 7))
        await a.deliver(adj("x", 1, 9, 8), ins("y", 2, 4), stable(3))
        await b.deliver(ins("y", 2, 4), stable(2))
        await world.settled()
        assert (a.acked, b.acked, world.hub.state.turns > 0) == (2, 2, True)
        assert await world.subscriber.until_stable(3) == [Event(1, b"x", 8), Event(2, b"y", 4)]


async def test_behind_a_broken_promise_that_input_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    record = tmp_path / "session.jsonl"
    async with a_hub(record) as world:
        a, b = await world.input("a", "key"), await world.input("b", "key")
        await a.deliver(ins("first", 1, 50))
        await b.deliver(ins("first", 1, 50), stable(2))
        await a.deliver(ins("last", 3, 50), ins("bad", 9, 8), ins("never merged", 4, 50))
        await b.deliver(ins("last", 3, 50), stable(4))
        await a.deliver(ins("never merged", 5, 50), ins("never merged", 6, 50))
        await b.deliver(ins("after", 7, 50), stable(8))
        await a.deliver(stable(40))
        await world.settled()
        assert isinstance(a.error, InputViolation)
        assert a.detached is not None
        assert (a.detached.code, a.detached.sequence, a.detached.index) == ("end-before-start", 2, 1)
        assert (a.acked, b.acked, b.error) == (1, 3, None)
        assert world.hub.state.merge.refused == 3
        assert world.hub.state.merge.received.inserts == 5
        assert world.hub.inputs.get("a") is None
        await a.deliver(ins("never merged", 9, 50))
        await b.deliver(stable(100))
        await world.settled()
        assert world.hub.state.merge.refused == 4
        assert await world.subscriber.until_stable(100) == [
            Event(1, b"first", 50),
            Event(3, b"last", 50),
            Event(7, b"after", 50),
        ]
        assert list(world.hub.state.detached_counts) == ["end-before-start"]
    assert replayed(record, "lazy") == world.subscriber.elements
    assert "never merged" not in record.read_text(encoding="utf-8")


async def test_batches_with_one_sequence_are_acked_when_the_last_of_them_is_merged() -> None:
    async with a_hub() as world:
        a = await world.input("a", "key")
        for at, (acked, inserts) in enumerate(((0, 1), (0, 2), (1, 3))):
            await world.hub.put(a, 1, Batch.of([ins(str(at), at, 9)]), 64, received_s=0.0, base=at, is_last=at == 2)
            await world.settled()
            assert (a.acked, world.hub.state.merge.received.inserts) == (acked, inserts)


@pytest.mark.parametrize("policy", ["alarm", "majority", "hold", "quarantine"])
@pytest.mark.parametrize("cause", [DetachCause.LEFT, DetachCause.CONNECTION_ENDED])
async def test_the_last_stable_of_an_input_counts_though_its_end_is_in_the_same_turn(
    policy: str, cause: DetachCause
) -> None:
    async with a_hub(divergence=policy, certify_interval=10) as world:
        a = await world.input("a", "key")
        await a.deliver(ins("A", 0, 5), stable(INF))
        if cause is DetachCause.LEFT:
            world.hub.inputs.leaving(a)
        await world.hub.inputs.leave(a, cause, "as the test requires")
        assert await world.subscriber.until_stable(INF) == [Event(0, b"A", 5)]


async def test_an_input_is_identified_by_its_name() -> None:
    async with a_hub() as world:
        await world.input("a", "key")
        await world.input("b")
        assert [world.hub.state.merge.status(name) for name in "ab"] == world.hub.state.merge.inputs()
        with pytest.raises(UnknownInput, match="input 'c' has no status: it is not attached"):
            world.hub.state.merge.status("c")


async def test_a_batch_in_pieces_is_recorded_up_to_the_broken_promise_and_not_acked() -> None:
    async with a_hub(turn_elements=10) as world:
        a = await world.input("a", "key")
        await a.deliver(ins("zero", 0, 1))
        await a.deliver(*(ins("x", at, at + 1) for at in range(1, 26)), ins("x", 30, 29), ins("x", 99, 100))
        await a.deliver(ins("later", 200, 201))
        await world.settled()
        assert a.detached is not None
        assert (a.detached.sequence, a.detached.index, a.acked) == (2, 25, 1)
        assert world.hub.state.merge.emitted.inserts == 26


async def test_the_output_of_an_admission_comes_after_all_output_of_the_run() -> None:
    """a ends, so b, which waits for time 1000, must begin; b has delivered more behind the batch that ended a."""
    async with a_hub(resume_at=1_000) as world:
        a = await world.input("a", "key")
        await a.deliver(ins("x", 990, 1_005))
        b = await world.input("b", "key", join_at=1_000)
        await world.settled()
        await a.deliver(ins("bad", 9, 8))
        await b.deliver(ins("x", 990, 1_005), ins("y", 995, 1_005), stable(1_010))
        await world.settled()
        inp = world.hub.inputs.get("b")
        assert inp is not None
        assert inp.joined
        assert await world.subscriber.until_stable(1_010) == [Event(990, b"x", 1_005), Event(995, b"y", 1_005)]


async def test_an_input_that_is_replaced_between_two_runs_counts_up_to_there() -> None:
    async with a_hub() as world:
        old = await world.input("a", "key")
        await old.deliver(ins("x", 1, 5))
        new = await world.input("a", "key", incarnation=2)
        await old.deliver(ins("fenced", 2, 5), ins("fenced", 3, 5))
        await new.deliver(ins("y", 2, 5), stable(9))
        await world.settled()
        assert old.error is not None
        assert "was replaced by incarnation 2" in str(old.error)
        assert (old.acked, new.acked, world.hub.state.merge.refused) == (1, 1, 2)
        assert await world.subscriber.until_stable(9) == [Event(2, b"y", 5)]


async def test_the_record_of_random_runs_with_broken_promises_replays_to_what_was_sent(tmp_path: Path) -> None:
    for seed in range(8):
        random, record = Random(seed), tmp_path / f"{seed}.jsonl"
        events = reference(random, 60)
        async with a_hub(record, policy="eager") as world:
            streams = {name: present(random, events) for name in "abcd"}
            inputs = {name: await world.input(name, "key") for name in streams}
            while any(streams.values()):
                for _ in range(random.randint(1, 12)):
                    name = random.choice("abcd")
                    delivered, streams[name] = streams[name][:7], streams[name][7:]
                    if name != "d" and random.random() < 0.01:
                        delivered.insert(random.randint(0, len(delivered)), ins("bad", 9, 8))
                    if delivered:
                        await inputs[name].deliver(*delivered)
                await world.settled()
                world.hub.state.merge.check()
            broken = [name for name, inp in inputs.items() if inp.error is not None]
            if len(broken) < 4:
                assert await world.subscriber.until_stable(2**63 - 1) == events
        assert "d" not in broken
        assert replayed(record, "eager") == world.subscriber.elements


async def test_a_bug_in_the_merge_ends_all_its_streams_wherever_it_ran() -> None:
    async with a_hub() as world:
        a = await world.input("a", "key")

        def fail(*_: object) -> Any:
            raise RuntimeError("a bug")

        world.hub.state.merge.apply = fail  # type: ignore[assignment,method-assign]  # the bug
        await a.deliver(ins("x", 1, 2))
        with pytest.raises(Unavailable, match="has failed"):
            await world.settled()
        assert [str(crash) for crash in world.crashes] == ["a bug"]
        assert isinstance(a.error, Unavailable)
        with pytest.raises(Unavailable):
            await world.subscriber.until_stable(0)
        with pytest.raises(Unavailable):
            await a.deliver(ins("x", 1, 2))
        await world.hub.drain()


async def test_only_the_native_engine_uses_threads(engine: str, where: str) -> None:
    async with a_hub() as world:
        seen: list[str] = []
        apply = world.hub.state.merge.apply

        def watched(*arguments: Any) -> Any:
            seen.append(threading.current_thread().name)
            return apply(*arguments)

        world.hub.state.merge.apply = watched  # type: ignore[assignment,method-assign]  # sees the thread
        await (await world.input("a", "key")).deliver(ins("x", 1, 2))
        await world.settled()
        is_threaded = engine == selection.NATIVE and where == "in a thread"
        assert [name.startswith("ThreadPool") for name in seen] == [is_threaded]
