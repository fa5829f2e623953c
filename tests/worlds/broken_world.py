"""Random sessions in which inputs agree on one TDB and break what they have declared, and their oracle.

``World`` draws a TDB, physically different streams of it, and what their inputs declare. A declaration may be false
from the start or from some point on. ``Watch`` drives a merge with ``allow_downgrade`` and has the oracle. At every
step the index is sound, the output is a legal stream, and no joined input is ended. From the switch to R3 or R4 on,
everything that could still be corrected is right: C1-C3 hold, and when all inputs have ended the output is the TDB.
Events that R0-R2 froze by a false promise before it was found broken cannot be corrected. ``irreparable`` finds them
from the output alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

from core_world import COPIES_PROMISES, INDEX_POLICIES, R0_PROMISES, R1_PROMISES, R2_PROMISES, R3_PROMISES

from lmerge.core import properties as props
from lmerge.core.compatible import InputPrefix, incompatibilities
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.merge import Merge, Outcome
from lmerge.core.merge_config import MergeConfig
from lmerge.core.tdb import Tdb
from lmerge.testing.oracle import Follow
from lmerge.testing.streams.merge_inputs import joining, reference

Key = tuple[int, bytes]

# For each case, promises that lead to every more general case when one of them is broken.
DECLARED = (
    R0_PROMISES,
    (*R0_PROMISES, "ordered", "deterministic-ties"),
    (*R0_PROMISES, "ordered", "key"),
    (*R0_PROMISES, "key"),
    R1_PROMISES,
    (*R1_PROMISES, "key"),
    R2_PROMISES,
    COPIES_PROMISES,
    R3_PROMISES,
    props.PROPERTY_NAMES,
)
POLICIES = ("lazy", "lazy", "lazy", "eager", "lazy+lag:3")
INDEXED = ("r3", "r4")


class Lies(NamedTuple):
    """How a stream breaks its promises. ``truthful``: this many events of the TDB come first, as promised."""

    truthful: int
    revises: float = 0.0  # chance that an event first has a wrong end
    delays: float = 0.0  # chance that an event comes after later ones
    invents: float = 0.0  # chance, per event, of another one that is inserted and removed again
    shuffles: bool = False  # events with one Vs come in any order


class World:
    """A TDB and streams of it, all drawn from ``random``."""

    def __init__(self, random: Random, *, size: int = 9, policies: Sequence[str] = POLICIES) -> None:
        self.random = random
        self.policy = random.choice(policies)
        self.events = reference(
            random, random.randint(1, size), payloads=3, duplicates=random.random() < 0.4, strict=random.random() < 0.3
        )
        self.repeats = len({(event.vs, event.payload) for event in self.events}) < len(self.events)
        self.declared = random.choice(DECLARED)
        self.misses: set[Key] = set()
        self._keeps_promises = random.random() < 0.2

    def promises(self) -> tuple[str, ...]:
        """Return what an input declares: mostly the same for all."""
        return self.declared if self.random.random() < 0.8 else self.random.choice(DECLARED)

    def stream(self, *, may_miss: bool = False) -> list[Element]:
        """Return a legal stream of the TDB that ends with stable(+inf)."""
        random = self.random
        events = list(self.events)
        if may_miss and random.random() < 0.15:
            missed = random.choice(events)
            self.misses.add((missed.vs, missed.payload))
            events.remove(missed)
        if self._keeps_promises or random.random() < 0.25:
            return stream_of(random, events, Lies(len(events), shuffles=random.random() < 0.3))
        chances = (0.0, 0.0, 0.2, 0.5)
        return stream_of(
            random,
            events,
            Lies(
                random.randint(0, len(events)),
                random.choice(chances),
                random.choice(chances),
                random.choice((0.0, 0.2)),
                shuffles=random.random() < 0.5,
            ),
        )

    def late(self, join_at: int) -> list[Element]:
        """Return the stream of an input that joins at ``join_at``."""
        return joining(self.stream(), join_at, self.events)


def stream_of(random: Random, events: Sequence[Event], lies: Lies) -> list[Element]:
    """Return a legal stream that reconstitutes to ``events``, with legal stables at random places."""
    keyed = [(event.vs, random.random() if lies.shuffles else at, event) for at, event in enumerate(events)]
    first: list[Element] = []
    later: list[list[Element]] = []
    for at, (_, _, event) in enumerate(sorted(keyed, key=lambda item: item[:2])):
        history = _history(random, event, lies)
        if random.random() < lies.invents:
            ve = event.vs + random.randint(1, 9)
            never: list[Element] = [Insert(b"x%d" % at, event.vs, ve), Adjust(b"x%d" % at, event.vs, ve, event.vs)]
            if random.random() < 0.5:
                later.append(never)
            else:
                first.append(never[0])
                later.append(never[1:])
        if random.random() < lies.delays:
            later.append(history)
        elif at < lies.truthful:
            first.append(history[0])
            later.append(history[1:])
        else:
            later.append(history)
    rest = [history for history in later if history]
    while rest:
        # Without broken promises the rest is in order too: the window is then one event wide.
        width = 4 if lies.revises or lies.delays or lies.invents else 1
        at = random.randrange(min(width, len(rest)))
        first.append(rest[at].pop(0))
        if not rest[at]:
            del rest[at]
    return with_stables(random, first)


def with_stables(random: Random, elements: Sequence[Element], chance: float = 0.3) -> list[Element]:
    """Return ``elements`` with legal stables between, and stable(+inf) at the end."""
    bounds = [INF]
    for element in reversed(elements):
        assert not isinstance(element, Stable)
        needs = element.vs if isinstance(element, Insert) else min(element.vold, element.ve)
        bounds.append(min(bounds[-1], needs))
    bounds.reverse()
    stream: list[Element] = []
    stable = NEG_INF
    for at, element in enumerate(elements):
        stream.append(element)
        if random.random() < chance and bounds[at + 1] < INF:
            vc = bounds[at + 1] - random.choice((0, 0, random.randint(0, 3)))
            if vc > stable:
                stable = vc
                stream.append(Stable(vc))
    return [*stream, Stable(INF)]


def _history(random: Random, event: Event, lies: Lies) -> list[Element]:
    vs, payload, ve = event
    last_end = random.choice((INF, vs + random.randint(1, 20))) if random.random() < lies.revises else ve
    history: list[Element] = [Insert(payload, vs, last_end)]
    while last_end != ve:
        after = ve if random.random() < 0.7 else vs + random.randint(1, 20)
        if after != last_end:
            history.append(Adjust(payload, vs, last_end, after))
            last_end = after
    return history


class _Part(NamedTuple):
    """A TDB without some keys, in the form that the conditions use."""

    all: list[Event]
    stable_point: int

    def events(self) -> list[Event]:
        return self.all


class Watch:
    """A merge and its oracle. ``world.misses``: events that an input missed may be in the output or not (V.C)."""

    def __init__(self, world: World, merge: Merge) -> None:
        self.world = world
        self.follow = Follow(merge, compatible=False)
        self.excused: set[Key] = set()
        self.switches = 0
        self.incarnations: Counter[str] = Counter()

    @property
    def merge(self) -> Merge:
        return self.follow.merge

    def attach(self, name: str, promises: Iterable[str], join_at: int | None = None) -> None:
        """Attach an input, or a new incarnation of it in its place."""
        if self.merge.is_attached(name):
            self._step(lambda: self.follow.detach(name))
        self._step(lambda: self.follow.attach(name, promises, join_at=join_at))

    def detach(self, name: str) -> None:
        self._step(lambda: self.follow.detach(name))

    def publish(self, name: str, element: Element) -> None:
        """Publish one element: what a downgrade can still correct is determined from the output before the call."""
        was_joining = self.merge.status(name).state == "joining"
        outcome = self._step(lambda: self.follow.publish(name, element))
        ended = [d.reason for d in outcome.detached if not (was_joining and d.violation and d.violation.property_name)]
        assert not ended or all(name in self._joining for name in (d.input for d in outcome.detached)), ended

    def finished(self) -> None:
        """Check the output after all streams have been merged to their ends."""
        if self.merge.algorithm not in INDEXED:
            self.excused |= irreparable(self.world.events, self.follow.events(), INF)
        kept = self._kept
        assert kept(self.follow.events()) == kept(self.world.events)
        assert self.merge.stable_point == INF

    def _step(self, call: Callable[[], Outcome]) -> Outcome:
        before, at = self.follow.events(), self.merge.stable_point
        self._joining = {status.name for status in self.merge.inputs() if status.state == "joining"}
        ran = self.merge.algorithm
        outcome = call()
        if outcome.switched and ran not in INDEXED and self.merge.algorithm in INDEXED:
            self.switches += 1
            self.excused |= irreparable(self.world.events, before, at)
        if self.merge.algorithm in INDEXED:
            problems = incompatibilities(
                self._part(self.follow.output),
                [InputPrefix(p.name, self._part(p.tdb), p.join_at) for p in self.follow.prefixes],
                # R1 checks no key, so the output of R3 can have repeated one that had ended before the switch.
                multiset=self.merge.algorithm == "r4" or self.world.repeats,
            )
            assert not problems, "; ".join(problems)
        return outcome

    def _part(self, tdb: Tdb) -> Any:
        return _Part(self._kept(tdb.events()), tdb.stable_point)

    def _kept(self, events: Iterable[Event]) -> list[Event]:
        left_out = self.excused | self.world.misses
        return [event for event in events if (event.vs, event.payload) not in left_out]


def irreparable(events: Iterable[Event], shown: Iterable[Event], stable_point: int) -> set[Key]:
    """Return the keys at which an output that is stable at ``stable_point`` can no longer become ``events``."""
    ends: list[dict[Key, list[int]]] = [{}, {}]
    for at, side in enumerate((events, shown)):
        for event in side:
            ends[at].setdefault((event.vs, event.payload), []).append(event.ve)
    lost = set()
    for key in set(ends[0]) | set(ends[1]):
        expected, has = (sorted(side.get(key, [])) for side in ends)
        frozen = [[ve for ve in side if ve < stable_point] for side in (expected, has)]
        if key[0] < stable_point and (frozen[0] != frozen[1] or len(expected) != len(has)):
            lost.add(key)
    return lost


def play(seed: object, *, size: int = 9) -> Watch:
    """Play one session from its seed: inputs attach, join, leave, are replaced and restored; all streams end.

    The first input stays to the end, so that the events of another one that leaves are still delivered.
    """
    random = Random(f"{seed} broken")
    world = World(random, size=size, policies=POLICIES if random.random() < 0.85 else INDEX_POLICIES)
    watch = Watch(world, Merge(MergeConfig("auto", world.policy, allow_downgrade=True)))
    streams: dict[str, list[Element]] = {}
    for name in "abc"[: random.randint(2, 3)]:
        streams[name] = world.stream(may_miss=name != "a")
        watch.attach(name, world.promises())
    while any(streams.values()):
        chance = random.random()
        if chance < 0.04:
            name = random.choice("bcd")
            stable = watch.merge.stable_point
            join_at = 0 if stable in (NEG_INF, INF) else stable + random.choice((0, random.randint(0, 8)))
            streams[name] = world.late(join_at)
            watch.attach(name, world.promises(), join_at)
        elif chance < 0.06 and len(streams) > 1:
            name = random.choice([name for name in streams if name != "a"])
            if watch.merge.is_attached(name):
                watch.detach(name)
            del streams[name]
        elif chance < 0.09:
            watch.follow.restore()
        else:
            name = random.choice([name for name in streams if streams[name]])
            element = streams[name].pop(0)
            if watch.merge.is_attached(name):
                watch.publish(name, element)
    watch.finished()
    return watch
