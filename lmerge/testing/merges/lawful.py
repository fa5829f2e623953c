"""Sessions of inputs that keep what they promise, and of the same elements in batches that are cut in other ways."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Element, Insert
from lmerge.core.engines import selection
from lmerge.core.merge import Merge, Outcome
from lmerge.core.merge_config import MergeConfig
from lmerge.core.properties import KEY, STRICTLY_ORDERED
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.core.tdb import Tdb
from lmerge.errors import LmergeError
from lmerge.testing.merges.broken import DrawnInputs
from lmerge.testing.merges.declared import ANY_POLICIES, CLOSINGS, DECLARED, R4_PROMISES, Promises
from lmerge.testing.merges.sessions import play_to_the_end, publish_while_it_waits
from lmerge.testing.oracle import Follow
from lmerge.testing.streams.merge_inputs import ordered, present, reference

INPUTS: Final = 4
"""How many inputs attach one after the other, before the one that stays to its end."""


def lawful_session(seed: object) -> None:
    """Play one session of inputs of one table, each of which leaves before it breaks what it promises: none is ended.

    Their promises differ, so the merge takes one algorithm after the other. The last input stays to its end, and the
    output is the table. Raises AssertionError.
    """
    _Lawful(Random(f"{seed} lawful")).play()


class _Lawful:
    def __init__(self, random: Random) -> None:
        self.random = random
        is_strict, has_copies = random.random() < 0.3, random.random() < 0.6
        self.events = reference(
            random, random.choice((3, 6, 10)), payloads=2, duplicates=has_copies and not is_strict, strict=is_strict
        )
        config = MergeConfig("auto", random.choice(ANY_POLICIES), engine=random.choice(selection.available()))
        self.follow = Follow(Merge(config), compatible=False)
        self.is_ordered = random.random() < 0.6
        self.streams: dict[str, list[Element]] = {}
        self.attached = 0

    def attach(self, *, stays: bool = False) -> None:
        """Attach another input. ``stays``: to the end of its stream, so it promises what holds for all of it."""
        random = self.random
        promises, stream = R4_PROMISES, present(random, self.events)
        if self.is_ordered or random.random() < 0.5:
            stream = ordered(random, self.events)
            promises = random.choice([one for one in DECLARED if not stays or _kept(one, stream) == len(stream)])
        kept = _kept(promises, stream)
        self.attached += 1
        self.streams[str(self.attached)] = stream[:kept]
        self._check(self.follow.attach(str(self.attached), promises))

    def publish(self) -> None:
        """Merge the next elements of an input, which leaves behind its last one."""
        random = self.random
        name, count = random.choice(list(self.streams)), random.randint(1, 3)
        stream = self.streams[name]
        if stream:
            part, self.streams[name] = stream[:count], stream[count:]
            self._check(self.follow.publish(name, *part))
        if not self.streams[name]:
            self.leave(name)

    def leave(self, name: str) -> None:
        """Let an input leave."""
        del self.streams[name]
        if self.follow.merge.is_attached(name):
            self._check(self.follow.detach(name))

    def play(self) -> None:
        """Play the session."""
        random = self.random
        while self.streams or self.attached < INPUTS:
            chance = random.random()
            if self.attached < INPUTS and (not self.streams or chance < 0.08):
                self.attach()
            elif chance < 0.12:
                self.leave(random.choice(list(self.streams)))
            elif chance < 0.18:
                self.follow.restore()
            else:
                self.publish()
        if self.follow.merge.stable_point < INF:
            self.attach(stays=True)
            while self.streams:
                self.publish()
        assert self.follow.events() == self.events
        assert self.follow.merge.stable_point == INF

    def _check(self, outcome: Outcome) -> None:
        broken = [change.reason for change in outcome.detached if change.violation is not None]
        assert not broken, f"an input that keeps its promises is ended: {broken[0]}"


def _kept(promises: Promises, stream: Sequence[Element]) -> int:
    """Return how many elements of a stream of inserts in order of Vs come before one that breaks a promise."""
    keys: set[tuple[int, bytes]] = set()
    starts: set[int] = set()
    for at, element in enumerate(stream):
        if isinstance(element, Insert):
            key = (element.vs, element.payload)
            if (KEY in promises and key in keys) or (STRICTLY_ORDERED in promises and element.vs in starts):
                return at
            keys.add(key)
            starts.add(element.vs)
    return len(stream)


def cut_session(seed: object) -> None:
    """Play one session of inputs that may break what they promise: batches, and beside them element by element.

    Behind each batch both have the same output table and stable point, and the same inputs are left. Raises
    AssertionError.
    """
    random = Random(f"{seed} cut")
    drawn = DrawnInputs(random)
    engine, allowed = random.choice(selection.available()), random.random() < 0.7
    policy, closing = random.choice(ANY_POLICIES), random.choice(CLOSINGS)
    config = MergeConfig("auto", policy, closing, allow_downgrade=allowed, engine=engine)
    pair = CutPair(config)
    streams: dict[str, list[Element]] = {}

    def attach(name: str) -> None:
        join_at = random.choice((None, None, random.randint(0, 12)))
        streams[name] = drawn.stream() if join_at is None else drawn.late(join_at)
        pair.call("attach", name, drawn.promises(), join_at=join_at)
        if join_at is not None and random.random() < 0.5:
            publish_while_it_waits(pair, name, streams)

    for name in "abc":
        attach(name)
    play_to_the_end(random, pair, streams, attach, (0.03, 0.06, 0.09), 9)


class CutPair:
    """A merge that gets batches, and one that gets their elements one by one."""

    def __init__(self, config: MergeConfig) -> None:
        self.sides = [(Merge(config), Tdb(name)) for name in ("batches", "elements")]

    def call(self, method: str, name: str, *rest: Any, **options: Any) -> None:
        """Call a method of both for an input; a batch is cut for one of them. Raises AssertionError."""
        cut = [(Batch.of([one]),) for one in rest[0].elements()] if method == "apply" else [rest]
        for (merge, output), calls in zip(self.sides, ([rest], cut), strict=True):
            for arguments in calls:
                with suppress(LmergeError):  # what is refused changes nothing, and what is left is compared
                    output.apply_batch(getattr(merge, method)(name, *arguments, **options).batch)
        whole, single = (_state(merge, output) for merge, output in self.sides)
        assert whole == single, f"behind {method} of {name}: of a batch {whole}, of its elements {single}"

    def exchange(self) -> None:
        """Let both continue with their own snapshots."""
        self.sides = [(restored(snapshot_of(merge)), output) for merge, output in self.sides]


def _state(merge: Merge, output: Tdb) -> tuple[object, ...]:
    inputs = [(one.name, one.state, one.stable_point) for one in merge.inputs()]
    return sorted(output.events()), output.stable_point, merge.algorithm, inputs
