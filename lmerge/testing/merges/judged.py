"""The oracle of a merge whose inputs break what they have promised (laws 6 and 11), with ``allow_downgrade``.

At every step the index is sound, the output is a legal stream, and no joined input is ended. From the switch to R3 or
R4 on, everything that could still be corrected is right: C1-C3 hold, and when all inputs have ended the output is the
TDB. Events that R0-R2 froze by a false promise before it was found broken cannot be corrected. ``irreparable`` finds
them from the output alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

from lmerge.core.compatible import InputPrefix, incompatibilities
from lmerge.core.elements import INF, NEG_INF, Element, Event
from lmerge.core.merge import Merge, Outcome
from lmerge.core.merge_config import MergeConfig
from lmerge.core.tdb import Tdb
from lmerge.testing.merges.broken import MOSTLY_LAZY, DrawnInputs, Key
from lmerge.testing.merges.declared import INDEX_POLICIES, INDEXED
from lmerge.testing.oracle import Follow


class _Part(NamedTuple):
    """A TDB without some keys, in the form that the conditions use."""

    all: list[Event]
    stable_point: int

    def events(self) -> list[Event]:
        return self.all


class JudgedMerge:
    """A merge and its oracle. ``drawn.misses``: events that an input missed may be in the output or not (V.C)."""

    def __init__(self, drawn: DrawnInputs, merge: Merge) -> None:
        self.drawn = drawn
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
            self.excused |= irreparable(self.drawn.events, self.follow.events(), INF)
        kept = self._kept
        assert kept(self.follow.events()) == kept(self.drawn.events)
        assert self.merge.stable_point == INF

    def _step(self, call: Callable[[], Outcome]) -> Outcome:
        before, at = self.follow.events(), self.merge.stable_point
        self._joining = {status.name for status in self.merge.inputs() if status.state == "joining"}
        ran = self.merge.algorithm
        outcome = call()
        if outcome.switched and ran not in INDEXED and self.merge.algorithm in INDEXED:
            self.switches += 1
            self.excused |= irreparable(self.drawn.events, before, at)
        if self.merge.algorithm in INDEXED:
            problems = incompatibilities(
                self._part(self.follow.output),
                [InputPrefix(p.name, self._part(p.tdb), p.join_at) for p in self.follow.prefixes],
                # R1 checks no key, so the output of R3 can have repeated one that had ended before the switch.
                multiset=self.merge.algorithm == "r4" or self.drawn.repeats,
            )
            assert not problems, "; ".join(problems)
        return outcome

    def _part(self, tdb: Tdb) -> Any:
        return _Part(self._kept(tdb.events()), tdb.stable_point)

    def _kept(self, events: Iterable[Event]) -> list[Event]:
        left_out = self.excused | self.drawn.misses
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


def broken_session(seed: object, *, size: int = 9) -> JudgedMerge:
    """Play one session from its seed: inputs attach, join, leave, are replaced and restored; all streams end.

    The first input stays to the end, so that the events of another one that leaves are still delivered.
    """
    random = Random(f"{seed} broken")
    drawn = DrawnInputs(random, size=size, policies=MOSTLY_LAZY if random.random() < 0.85 else INDEX_POLICIES)
    judged = JudgedMerge(drawn, Merge(MergeConfig("auto", drawn.policy, allow_downgrade=True)))
    streams: dict[str, list[Element]] = {}
    for name in "abc"[: random.randint(2, 3)]:
        streams[name] = drawn.stream(may_miss=name != "a")
        judged.attach(name, drawn.promises())
    while any(streams.values()):
        chance = random.random()
        if chance < 0.04:
            name = random.choice("bcd")
            stable = judged.merge.stable_point
            join_at = 0 if stable in (NEG_INF, INF) else stable + random.choice((0, random.randint(0, 8)))
            streams[name] = drawn.late(join_at)
            judged.attach(name, drawn.promises(), join_at)
        elif chance < 0.06 and len(streams) > 1:
            name = random.choice([name for name in streams if name != "a"])
            if judged.merge.is_attached(name):
                judged.detach(name)
            del streams[name]
        elif chance < 0.09:
            judged.follow.restore()
        else:
            name = random.choice([name for name in streams if streams[name]])
            element = streams[name].pop(0)
            if judged.merge.is_attached(name):
                judged.publish(name, element)
    judged.finished()
    return judged
