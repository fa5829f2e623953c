"""Sessions of drawn merges beside a twin: on the other engine, or restored from snapshots (law 12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Final

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.engines import selection
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.core.tdb import Tdb
from lmerge.errors import LmergeError
from lmerge.testing.merges.broken import MOSTLY_LAZY, BrokenPromises, DrawnInputs, stream_of, with_stables
from lmerge.testing.merges.declared import (
    ANY_POLICIES,
    CLOSINGS,
    COPIES_PROMISES,
    INDEX_POLICIES,
    PROMISES,
    R2_PROMISES,
)
from lmerge.testing.merges.twins import ComparedMerges, EngineTwins, result_of
from lmerge.testing.streams.merge_inputs import mistaken, present, reference

CROWDED: Final = 40
"""How many ends the keys of a crowded table have: more than a merge scans for each element."""
LONG: Final = 20
MANY: Final = Batch.of([Insert(b"one of many", at, INF) for at in range(-300, 0)])
"""So many live events that the entries of an input that has left go in several steps. They keep every promise."""


def _lawless(random: Random, stream: Tdb, count: int) -> Iterator[Element]:
    """Yield elements of one input, most of them legal: times close together, so that the elements interact."""
    for _ in range(count):
        payload, vs = random.choice((b"p", b"q", b"")), random.randint(-2, 12)
        ve = random.choice((INF, vs, vs + random.randint(0, 6), vs + random.randint(-1, 6)))
        ends = stream.live_ends(vs, payload)
        kind = random.random()
        element: Element = Insert(payload, vs, ve)
        if kind < 0.2:
            element = Stable(random.choice((vs, max(vs, min(stream.stable_point, 12)), INF if kind < 0.02 else vs)))
        elif kind < 0.5 and ends:
            element = Adjust(payload, vs, random.choice(ends), ve)
        elif kind < 0.52:
            yield Adjust(payload, vs, vs + random.randint(1, 6), ve)  # of an event that mostly does not exist
            continue
        if random.random() < 0.97:
            try:
                stream.apply(element)
            except LmergeError:
                continue
        yield element


def twin_session(seed: object, algorithm: str, compare_every: int = 1) -> None:
    """Play one session of inputs that keep few laws on both engines: each call must have the same outcome on both.

    Raises AssertionError.
    """
    random = Random(f"{seed}")
    policies = INDEX_POLICIES if algorithm in ("r3", "r4") else ("lazy",) if algorithm == "r3-" else ANY_POLICIES
    auto = algorithm != "r3-" and random.random() < 0.5
    config = MergeConfig(
        "auto" if auto else algorithm,
        random.choice(policies),
        random.choice(CLOSINGS),
        allow_downgrade=auto and random.random() < 0.5,
    )
    twins = EngineTwins(config, compare_every=compare_every)
    streams: dict[str, Tdb] = {}
    promises = PROMISES["r3" if algorithm == "r3-" else algorithm]
    for _ in range(30):
        name, chance = random.choice("abc"), random.random()
        if chance < 0.15 or name not in streams:
            streams[name] = Tdb(name)
            promised = promises if random.random() < 0.9 else random.choice([*PROMISES.values(), COPIES_PROMISES])
            join_at = random.choice((None, None, random.randint(-2, 12)))
            role = "observe" if random.random() < 0.1 else "active"
            incarnation = random.choice((None, None, random.randint(1, 9)))
            twins.call("attach", name, promised, join_at=join_at, role=role, incarnation=incarnation)
        elif chance < 0.2:
            twins.call("detach", name)
        elif chance < 0.25:
            twins.call("admit", name)
        elif chance < 0.28:
            twins.call("excuse", name)
        elif chance < 0.37:
            twins.exchange()
        else:
            elements = list(_lawless(random, streams[name], random.randint(1, 8)))
            if algorithm in ("r0", "r1", "r2"):
                elements = [e for e in elements if not isinstance(e, Adjust) or random.random() < 0.05]
                if random.random() < 0.9:
                    elements.sort(key=lambda e: e.vc if isinstance(e, Stable) else e.vs)
            twins.call("apply", name, Batch.of(elements))


class RestoredTwin:
    """A merge that continues, and one that is restored repeatedly."""

    def __init__(self, random: Random, policy: str) -> None:
        self.random = random
        self.engines = selection.available()
        closing, allowed = random.choice(CLOSINGS), random.random() < 0.8
        config = MergeConfig("auto", policy, closing, allow_downgrade=allowed)
        self.going = Merge(config)
        self.restored = Merge(replace(config, engine=random.choice(self.engines)))
        self.restores = 0

    def restore(self) -> None:
        before = snapshot_of(self.going)
        assert snapshot_of(self.restored) == before
        self.restored = restored(before, engine=self.random.choice(self.engines))
        assert snapshot_of(self.restored) == before
        self.restored.check()
        self.restores += 1

    def call(self, method: str, *arguments: object, **options: object) -> None:
        one, other = (
            (*result_of(getattr(merge, method), *arguments, **options), _reported(merge))
            for merge in (self.going, self.restored)
        )
        assert one == other, (method, arguments)


def _reported(merge: Merge) -> list[object]:
    return [(one.name, one.state, one.stable_point, one.late, one.won) for one in merge.inputs()]


def restored_session(seed: object) -> int:
    """Play one session of a merge and a twin that is restored, often. Returns the number of restores.

    Raises AssertionError.
    """
    random = Random(f"{seed} restore")
    by_due_times = ("final-only", "leading-input-only", "final-only+lag:3")
    policy = random.choice(random.choice((INDEX_POLICIES, MOSTLY_LAZY, by_due_times)))
    twins = RestoredTwin(random, policy)
    _Joining(random, twins.call, twins.restore, lambda: twins.going).play()
    twins.restore()
    return twins.restores


def joining_session(seed: object) -> None:
    """Play one session of inputs that join, are admitted early, leave and are replaced, on both engines.

    Raises AssertionError.
    """
    random = Random(f"{seed} joining")
    policy = random.choice(random.choice((INDEX_POLICIES, ANY_POLICIES)))
    auto = policy in ANY_POLICIES and random.random() < 0.5
    config = MergeConfig(
        "auto" if auto else random.choice(("r3", "r4")),
        policy,
        random.choice(CLOSINGS),
        allow_downgrade=auto and random.random() < 0.8,
    )
    twins = EngineTwins(config)
    _Joining(random, twins.call, twins.exchange, lambda: twins.merges[0]).play()


def early_session(seed: object) -> None:
    """Play one session of lawful inputs of one table on both engines: some are admitted before they are right.

    These have mistakes below their ``join_at``, which others refute. Raises AssertionError.
    """
    random = Random(f"{seed} early")
    algorithm = random.choice(("r3", "r4"))
    twins = EngineTwins(MergeConfig(algorithm, random.choice(INDEX_POLICIES), random.choice(CLOSINGS)))
    drawn = reference(random, random.choice((3, 6, 12)), payloads=2, duplicates=algorithm == "r4")
    # Long lifetimes and many stables: the inputs lead in turns while an event is half frozen.
    events = [Event(vs, payload, min(INF, ve + random.randint(0, LONG))) for vs, payload, ve in drawn]
    latest = max(event.vs for event in events) + LONG
    has_many = random.random() < 0.15
    streams: dict[str, list[Element]] = {}

    def attach(name: str) -> None:
        join_at = random.randint(1, latest) if random.random() < 0.6 else None
        elements = present(random, events if join_at is None else mistaken(random, events, join_at))
        changes = [element for element in elements if not isinstance(element, Stable)]
        streams[name] = with_stables(random, changes, 0.7)
        twins.call("attach", name, PROMISES[algorithm], join_at=join_at)
        if has_many:
            twins.call("apply", name, MANY)
        if join_at is not None and random.random() < 0.7:
            twins.call("admit", name)

    for name in "abcd"[: random.randint(2, 4)]:
        attach(name)
    play_to_the_end(random, twins, streams, attach, (0.04, 0.06, 0.08), 2)


def downgraded_session(seed: object) -> None:
    """Play one session of inputs of one table that may break what they promise, on both engines.

    Raises AssertionError.
    """
    random = Random(f"{seed} downgraded")
    drawn = DrawnInputs(random)
    if random.random() < 0.2:
        first = drawn.events[0]
        drawn.events[0] = Event(NEG_INF, first.payload, first.ve)
    allowed = random.random() < 0.7
    if not allowed:
        drawn.declared = R2_PROMISES  # of which one that does not hold is found when an input joins
    config = MergeConfig("auto", random.choice(ANY_POLICIES), random.choice(CLOSINGS), allow_downgrade=allowed)
    twins = EngineTwins(config)
    streams: dict[str, list[Element]] = {}

    def attach(name: str, join_at: int | None) -> None:
        streams[name] = drawn.stream(may_miss=True) if join_at is None else drawn.late(join_at)
        twins.call("attach", name, drawn.promises(), join_at=join_at)
        if join_at is not None and random.random() < 0.5:
            publish_while_it_waits(twins, name, streams)

    # Several inputs that join at once can all be found broken then.
    together = random.randint(0, 12)
    for name in "abcd"[: random.randint(3, 4)]:
        attach(name, random.choice((None, together, random.randint(0, 12))))

    def attach_late(name: str) -> None:
        attach(name, random.randint(0, 12))

    play_to_the_end(random, twins, streams, attach_late, (0.03, 0.06, 0.09), 3)


def crowded_session(seed: object) -> None:
    """Play one session of inputs of one table in which a key has many ends, on both engines. Raises AssertionError."""
    random = Random(f"{seed} crowded")
    twins = EngineTwins(MergeConfig("r4", random.choice(INDEX_POLICIES), random.choice(CLOSINGS)))
    starts = range(random.randint(1, 2))
    table = sorted(Event(random.choice(starts), b"A", random.randint(2, 60)) for _ in range(CROWDED))
    streams: dict[str, list[Element]] = {}

    def attach(name: str) -> None:
        broken = BrokenPromises(0, random.choice((0.2, 0.5, 0.9)), random.random(), 0.1, shuffles=True)
        streams[name] = stream_of(random, table, broken)
        twins.call("attach", name)

    for name in "abc"[: random.randint(2, 3)]:
        attach(name)
    play_to_the_end(random, twins, streams, attach, (0.01, 0.02, 0.04), 4)


def publish_while_it_waits(twins: ComparedMerges, name: str, streams: dict[str, list[Element]]) -> None:
    """Let an input that joins later publish all that it has: these elements wait."""
    twins.call("apply", name, Batch.of(streams.pop(name)))


def play_to_the_end(
    random: Random,
    twins: ComparedMerges,
    streams: dict[str, list[Element]],
    attach: Callable[[str], None],
    chances: tuple[float, float, float],
    most: int,
) -> None:
    """Let inputs publish up to ``most`` elements at a time until all streams have ended.

    ``chances``, each with those before it: an input leaves, one is attached again, both engines exchange snapshots.
    """
    leaves, attaches, exchanges = chances
    while any(streams.values()):
        chance, name = random.random(), random.choice([name for name in streams if streams[name]])
        if chance < leaves:
            twins.call("detach", name)
            del streams[name]
        elif chance < attaches:
            attach(name)
        elif chance < exchanges:
            twins.exchange()
        else:
            count = random.randint(1, most)
            part, streams[name] = streams[name][:count], streams[name][count:]
            twins.call("apply", name, Batch.of(part))


class _Joining:
    """Inputs of some tables that join, are admitted early, leave, contradict each other and break what they promise.

    ``call``: a method of both twins by its name; ``restore``: lets them go on from snapshots; ``merge``: one of them.
    """

    def __init__(
        self, random: Random, call: Callable[..., None], restore: Callable[[], None], merge: Callable[[], Merge]
    ) -> None:
        self.random, self.call, self.restore, self.merge = random, call, restore, merge
        self.tables = [DrawnInputs(random, size=12) for _ in range(random.choice((1, 2, 3)))]
        self.streams: dict[str, list[Element]] = {}
        self.incarnations: Counter[str] = Counter()

    def attach(self, name: str) -> None:
        random, table = self.random, self.random.choice(self.tables)
        stable = self.merge().stable_point
        at = 0 if stable in (NEG_INF, INF) else stable
        join_at = random.choice((None, None, at, at + random.randint(1, 12)))
        if join_at is None or random.random() < 0.3:
            self.streams[name] = table.stream()
        elif random.random() < 0.5:
            self.streams[name] = table.late(join_at)
        else:
            self.streams[name] = present(random, mistaken(random, table.events, join_at))
        self.incarnations[name] += 1
        role = "observe" if random.random() < 0.05 else "active"
        self.call("attach", name, table.promises(), join_at=join_at, role=role, incarnation=self.incarnations[name])
        if join_at is not None and random.random() < 0.4:
            self.call("admit", name)

    def publish(self, name: str) -> None:
        """Merge the next elements of an input. Now and then they are those of an incarnation that was replaced."""
        random, count = self.random, self.random.randint(1, 3)
        part, self.streams[name] = self.streams[name][:count], self.streams[name][count:]
        last = self.incarnations[name]
        incarnation = random.choice((None, last, last, random.randint(1, last)))
        merge = self.merge()
        refused, is_old = merge.refused, False
        if incarnation is not None and merge.is_attached(name):
            is_old = merge.status(name).incarnation != incarnation
        self.call("apply", name, Batch.of(part), incarnation=incarnation)
        assert not is_old or self.merge().refused == refused + len(part), "elements of an old incarnation are merged"

    def play(self) -> None:
        random = self.random
        has_many = random.random() < 0.2
        for name in "abc"[: random.randint(1, 3)]:
            self.attach(name)
            if has_many:
                self.call("apply", name, MANY)
        for _ in range(80):
            chance = random.random()
            if chance < 0.06:
                self.attach(random.choice("abcd"))
            elif chance < 0.12:
                self.call("detach", random.choice("abcd"))
                self.restore()  # the entries of inputs that left are what a snapshot could miss most
            elif chance < 0.17:
                self.call("admit", random.choice("abcd"))
            elif chance < 0.3:
                self.restore()
            else:
                names = [name for name in self.streams if self.streams[name]]
                if not names:
                    break
                self.publish(random.choice(names))
