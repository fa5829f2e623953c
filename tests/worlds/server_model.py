"""Servers, replicas and a reader without any network, for seeds: real merges, outboxes and followers, and a small model
of a server's other parts (its journal, its restarts).

    model = Model(random, events, servers=2)
    while model.step(): ...

Everything that can be in flight is in flight: batches to servers, acks to replicas, batches to the reader.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, NamedTuple

from lmerge.client.publish.outbox import Outbox
from lmerge.client.subscribe.checkpoint import dump, load
from lmerge.client.subscribe.follower import JOINED, Follower
from lmerge.client.subscribe.reader import ResumePoint
from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.elements import NEG_INF, Element, Event
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.tdb import Tdb
from lmerge.testing.streams.merge_inputs import present

POLICIES = ("lazy", "eager", "half-frozen-only", "final-only", "quorum:2", "leading-input-only")


class Begin(NamedTuple):
    stable_point: int
    complete_from: int | None


class End(NamedTuple):
    pass


class JournalSegment:
    """The specification of a journal: what was live at ``complete_from``, and all that was emitted since."""

    def __init__(self, complete_from: int, live: AnyBatch) -> None:
        self.complete_from = complete_from
        self.live = live
        self.emitted: list[AnyBatch] = []


class ModelServer:
    """A hub: a merge, its journal, its subscriptions. ``is_old``: it supports neither tokens nor complete_from."""

    def __init__(self, name: str, random: Random, policy: str, *, is_old: bool = False) -> None:
        self.name = name
        self.random = random
        self.policy = policy
        self.is_old = is_old
        self.is_durable = is_old or random.random() < 0.4  # an old server cannot declare that it lost everything
        self.is_up = True
        self.segments_max = random.choice((1, 2, 99))
        self.fresh()

    def fresh(self) -> None:
        self.merge = Merge(MergeConfig("r4", self.policy))
        self.complete_from = NEG_INF
        self.segments: list[JournalSegment] = []
        self.subscription: list[Any] | None = None  # what is on its way to the reader
        self.relies_on = NEG_INF
        self.is_anew = False  # its replicas must attach again
        self.new_segment()

    def new_segment(self) -> None:
        self.segments.append(JournalSegment(max(self.merge.stable_point, self.complete_from), self.merge.live_events()))
        del self.segments[: -self.segments_max]

    def attach(self, replica: str, join_at: int) -> None:
        self.emit(
            self.merge.attach(
                replica,
                join_at=None if join_at == NEG_INF else join_at,
                incarnation=self.random.getrandbits(20) + self.incarnation(),
            ).batch
        )
        self.unstick()

    def incarnation(self) -> int:
        self._incarnation = getattr(self, "_incarnation", 0) + 2**21
        return self._incarnation

    def begin_from(self, t: int) -> None:
        """Drop the past: readers that rely on it must ask again."""
        self.complete_from = max(self.complete_from, t)
        self.segments.clear()
        self.new_segment()
        if self.subscription is not None and self.relies_on < t:
            self.subscription = None

    def unstick(self) -> None:
        """Let the merge go on where only joining inputs are left: with the one that begins first, or with none."""
        inputs = self.merge.inputs()
        if inputs and all(i.state == "joining" for i in inputs):
            if self.merge.stable_point > NEG_INF:
                self.fresh()
                self.is_anew = True
                return
            first = min(inputs, key=lambda i: i.join_at or 0)
            outcome = self.merge.admit(first.name)
            assert first.join_at is not None
            self.begin_from(first.join_at)
            self.emit(outcome.batch)

    def apply(self, replica: str, batch: AnyBatch) -> None:
        outcome = self.merge.apply(replica, batch)
        assert not outcome.detached, outcome.detached
        self.emit(outcome.batch)

    def detach(self, replica: str) -> None:
        if self.merge.is_attached(replica):
            self.emit(self.merge.detach(replica).batch)

    def emit(self, batch: AnyBatch) -> None:
        if not batch.count:
            return
        self.segments[-1].emitted.append(batch)
        if self.subscription is not None:
            self.subscription.append(batch)
        if self.random.random() < 0.1:
            self.new_segment()

    def goes_on_without(self, replica: str) -> bool:
        return any(i.state == "joined" for i in self.merge.inputs() if i.name != replica)

    def subscribe(self, begin: int | None) -> None:
        stable_point = self.merge.stable_point
        complete_from = max(self.complete_from, stable_point)
        batches: list[AnyBatch] = [self.merge.live_events()]
        if begin is not None and begin < complete_from and not self.is_old:
            for at in reversed(range(len(self.segments))):
                if self.segments[at].complete_from <= begin:
                    segment = self.segments[at]
                    complete_from = segment.complete_from
                    batches = [segment.live, *(b for later in self.segments[at:] for b in later.emitted)]
                    break
        self.relies_on = max(complete_from, NEG_INF if begin is None else begin)
        self.subscription = [Begin(stable_point, None if self.is_old else complete_from), *batches, End()]

    def retains(self, t: int) -> bool:
        return self.is_up and (
            max(self.complete_from, self.merge.stable_point) <= t
            or (not self.is_old and any(segment.complete_from <= t for segment in self.segments))
        )

    def crash(self) -> None:
        self.is_up = False
        self.subscription = None
        if self.is_durable:
            for inp in self.merge.inputs():
                self.emit(self.merge.detach(inp.name).batch)
        else:
            self.fresh()


class ModelReplica:
    """A replica and its publisher: the real outbox, and for each server what is on its way."""

    def __init__(self, name: str, stream: list[Element], servers: list[ModelServer]) -> None:
        self.name = name
        self.stream = stream
        self.outbox = Outbox(name, behind_events_max=4)
        self.lanes = {server.name: self.outbox.lane() for server in servers}
        self.on_the_way: dict[str, list[AnyBatch] | None] = {server.name: None for server in servers}

    def publish(self, count: int) -> None:
        batch, self.stream = Batch.of(self.stream[:count]), self.stream[count:]
        self.outbox.put_batch(batch)

    def connect(self, server: ModelServer) -> None:
        lane = self.lanes[server.name]
        join_at = lane.join_at()
        server.attach(self.name, join_at)
        prelude = lane.restart()
        assert prelude is not None
        lane.note_stable(server.merge.stable_point)
        self.on_the_way[server.name] = list(prelude.items)  # type: ignore[arg-type]  # no staged batches here

    def lose(self, server: ModelServer) -> None:
        self.lanes[server.name].disconnected()
        self.on_the_way[server.name] = None
        server.detach(self.name)

    def deliver(self, server: ModelServer) -> bool:
        waiting = self.on_the_way[server.name]
        if waiting is None:
            return False
        taken = self.lanes[server.name].take()
        waiting += taken.items if taken is not None else ()  # type: ignore[arg-type]  # as above
        if not waiting:
            return False
        server.apply(self.name, waiting.pop(0))
        return True


class Model:
    """The whole model. ``check`` compares after every step what the reader received with the reference."""

    def __init__(
        self, random: Random, events: list[Event], *, servers: int, replicas: int = 2, gaps: bool = False
    ) -> None:
        self.random = random
        self.reference = events
        self.gaps_allowed = gaps
        self.servers = [
            ModelServer(f"h{at}", random, random.choice(POLICIES), is_old=random.random() < 0.15)
            for at in range(servers)
        ]
        self.by_name = {server.name: server for server in self.servers}
        self.replicas = [ModelReplica(f"r{at}", present(random, events), self.servers) for at in range(replicas)]
        self.policy = random.choice((None, None, "lazy", "eager", "half-frozen-only"))
        self.before: list[Event] = []  # the reader's events from before it resumed with a token
        self.since = NEG_INF  # the reader began here and does not need what ends before
        self.gaps: list[Any] = []
        self.received = Tdb("received")
        self.resumes = 0
        self.follow(None)
        for replica in self.replicas:
            for server in self.servers:
                replica.connect(server)

    # The reader.

    def follow(self, resume_point: ResumePoint | None) -> None:
        self.follower = Follower(self.by_name, policy=self.policy, resume_point=resume_point, on_gap=self.gaps.append)
        self.answered: dict[str, bool] = dict.fromkeys(self.by_name, False)
        self.trying: dict[str, bool] = dict.fromkeys(self.by_name, False)
        for server in self.servers:
            server.subscription = None
            if resume_point is not None:  # at once: what is retained now may not be later
                self.attend(server.name)

    def attend(self, name: str) -> None:
        """Let the reader's connection to one server go on: it asks, receives something, or notices its end."""
        server, follower = self.by_name[name], self.follower
        if name in follower.to_ask_again():
            self.trying[name] = self.answered[name] = False
            server.subscription = None
        if not self.trying[name]:
            begin = follower.final_to
            follower.asked(name, begin)
            if server.is_up:
                server.subscribe(begin)
            self.trying[name], self.answered[name] = True, False
        elif server.subscription is None:
            self.trying[name] = False
            (follower.lost if self.answered[name] else follower.failed)(name)
        elif server.subscription:
            self.answered[name] = True
            item = server.subscription.pop(0)
            if isinstance(item, Begin):
                follower.begin(name, *item)
            elif isinstance(item, End):
                follower.end(name)
            else:
                follower.take(name, item)

    def read(self) -> bool:
        batch = self.follower.reader.take()
        if batch is None:
            return False
        for element in batch.elements():
            self.received.apply(element)
        self.check()
        return True

    def restart_reader(self) -> None:
        """Resume with a checkpoint or a token, perhaps in the middle of a batch, and perhaps before all was read."""
        reader = self.follower.reader
        if not self.gaps_allowed and not self.is_anywhere(max(reader.stable_point, self.follower.since)):
            return
        batch = reader.take(at_once=False)
        if batch is not None:
            seen = self.random.randint(0, batch.count)
            for at in range(seen):
                self.received.apply(batch.element(at))
            reader.see(seen)
            self.check()
        stable_point, events = reader.position()
        t = max(stable_point, self.follower.since)
        self.resumes += 1
        if self.random.random() < 0.5:
            data = dump("m", ResumePoint(stable_point, self.follower.since, events))
            self.follow(load(data, "m")[0])
            return
        self.before = [e for e in self.before + self.received.events() if e.ve < t]
        self.received = Tdb("received")
        self.follow(ResumePoint(NEG_INF, t))

    def is_anywhere(self, t: int) -> bool:
        """Return whether a server retains what has ended since ``t``."""
        return any(server.retains(t) for server in self.servers)

    # The check.

    def check(self) -> None:
        """Check C1-C3 against the reference: what is frozen is right, and what is half frozen is there."""
        self.received.check()
        if self.gaps:
            return
        self.since = self.since if self.since > NEG_INF or self.resumes else self.follower.since
        t = self.received.stable_point
        received = Counter(self.before + self.received.events())
        real = Counter(self.reference)
        for event in (received - real) + (real - received):
            is_past = event.ve < self.since
            assert is_past or event.ve >= t, f"{event} is frozen at {t}, and wrong"
        ours = Counter((e.vs, e.payload) for e in received.elements() if e.vs < t <= e.ve)
        theirs = Counter((e.vs, e.payload) for e in real.elements() if e.vs < t <= e.ve)
        assert ours == theirs, f"half frozen at {t}"

    # Steps.

    def may_crash(self, server: ModelServer) -> bool:
        if self.gaps_allowed:
            return server.is_up
        sources = self.follower.sources
        return server.is_up and any(
            other is not server and other.subscription is not None and sources[other.name].state == JOINED
            for other in self.servers
        )

    def step(self) -> bool:
        """Make one random step; return False when the reader's stream is complete."""
        random = self.random
        chance = random.random()
        server = random.choice(self.servers)
        replica = random.choice(self.replicas)
        if chance < 0.02 and self.may_crash(server):
            server.crash()
            for each in self.replicas:
                each.lose(server)
        elif chance < 0.03 and self.may_crash(server):
            server.subscription = None  # only the reader's connection
        elif chance < 0.04 and server.goes_on_without(replica.name):
            replica.lose(server)
        elif chance < 0.05 and self.resumes < 12:  # each costs what is on its way
            self.restart_reader()
        elif chance < 0.15:
            server.is_up = True
            if replica.on_the_way[server.name] is None:
                replica.connect(server)
                if server.is_anew:
                    server.is_anew = False
                    for each in self.replicas:
                        each.lose(server)
        elif chance < 0.3:
            if replica.stream:
                replica.publish(random.randint(1, 5))
        elif chance < 0.6:
            if server.is_up:
                replica.deliver(server)
        elif chance < 0.65:
            if replica.on_the_way[server.name] is not None:
                replica.lanes[server.name].note_stable(server.merge.stable_point)
        elif chance < 0.9:
            self.attend(server.name)
        else:
            self.read()
        return not (self.follower.is_complete and not self.follower.reader.waiting)
