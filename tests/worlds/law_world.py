"""Every operator, window, policy and form as a plan, for the laws; and runs of plans on an implementation.

A law is a sentence about all of ``CASES``, and about random plans. A new operator takes its place in ``CASES``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgpack
from plan_generator import random_history, random_plan
from plan_modules import StartedSoFar
from queried_windows import SumOfLengths
from temporal_world import Item, StreamTable, random_stream

from lmerge.core.elements import INF
from lmerge.temporal.changes import NOTHING_CHANGES, Change, Delta, Lifetime
from lmerge.temporal.entrance import StreamEntrance
from lmerge.temporal.expressions.functions import scalar_function
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.graph import OperatorGraph
from lmerge.temporal.plan.compiling import CompiledPlan, compile_plan
from lmerge.temporal.plan.joining import join
from lmerge.temporal.plan.stream import Stream, WindowedStream, aggregate, count, method_of, source
from lmerge.temporal.values import Values

ROWS: Final[Sequence[Values]] = ((0, 0), (0, 1), (1, 0), (1, 2))
FORMS: Final = ("final", "settled", "watermark", "eager")

LEFTS = source("lefts", {"a": "int", "b": "int"})
RIGHTS = source("rights", {"a": "int", "b": "int"})
THIRDS = source("thirds", {"a": "int", "b": "int"})
B = LEFTS["b"]
BY_A = LEFTS.group_by("a")
BY_K = LEFTS.group_by(k=LEFTS["a"])


@scalar_function(["int"], "bool", name="law_is_small")
def is_small(value: int) -> bool:
    """Return whether a value is below 2."""
    return value < 2


@scalar_function(["int"], "int", name="law_doubled")
def doubled(value: int) -> int:
    """Return the double of a value."""
    return value * 2


SPANS: Final[Mapping[str, Stream]] = {
    "filter": LEFTS.where(B > 0),
    "select": LEFTS.select("a", c=B * 2),
    "lost column": LEFTS.select("a"),
    "shift": LEFTS.shift(3),
    "shift back": LEFTS.shift(-5),
    "set duration": LEFTS.set_duration(4),
    "clip duration": LEFTS.clip_duration(2),
    "extend": LEFTS.extend(5),
    "at end": LEFTS.at_end(2),
    "function": LEFTS.where(is_small(B)).select("a", c=doubled(B)),
    "chain": LEFTS.extend(2).where(B < 2).shift(1).select(c=B + 1),
}
JOINED: Final[Mapping[str, Stream]] = {
    "union": LEFTS.union(RIGHTS),
    **{f"{how} join": LEFTS.join(RIGHTS, "a", how=how) for how in ("inner", "left", "right", "full")},
    "anti-join": LEFTS.without(RIGHTS, "a"),
    "join by predicate": LEFTS.join(RIGHTS, where=LEFTS.join(RIGHTS, "a")["b_right"] > B),
    "join of three": join(LEFTS, RIGHTS, THIRDS, on="a"),
    "join with itself": LEFTS.where(B > 0).join(LEFTS.shift(2), "a", how="left"),
    "as of": LEFTS.as_of(RIGHTS, "a"),
    "as of, within, or nothing": LEFTS.as_of(RIGHTS, "a", within=3, how="left"),
}
SHAPED: Final[Mapping[str, Stream]] = {
    "edges": LEFTS.edges("a"),
    "edges that end": LEFTS.edges("a", lasts=4),
    "coalesce": LEFTS.coalesce(),
    "cleanse": LEFTS.cleanse(),
}
GROUPS: Final[Mapping[str, Stream]] = {
    "groups, coalesced": BY_K.apply(lambda group: group.select("b").coalesce()),
    "groups, with themselves later": BY_K.apply(
        lambda group: group.select("b").join(group.shift(3).select(c=col.b), where=col.b <= col.c)
    ),
    "groups, in windows": BY_K.apply(lambda group: group.where(col.b < 2).hopping(4, 2).agg(n=count(), form="eager")),
}
KINDS: Final[Mapping[str, Callable[[], WindowedStream]]] = {
    "tumbling": lambda: BY_A.tumbling(5),
    "hopping": lambda: LEFTS.hopping(4, 2, offset=1),
    "gaps": lambda: BY_A.hopping(2, 5),
    "snapshot": lambda: BY_A.snapshot(),
    "whole snapshot": lambda: LEFTS.snapshot(),
    "two starts": lambda: BY_A.count_windows(2),
    "three starts": lambda: LEFTS.count_windows(3),
    "two ends": lambda: LEFTS.count_windows(2, by="ends"),
    "session": lambda: BY_A.sessions(2),
}


def durations(kind: str, form: str, clip: str) -> Stream:
    """Return an aligned result that depends on the ends of events: the sum of their lifetimes as they are clipped."""
    return KINDS[kind]().agg(d=method_of(SumOfLengths)(), form=form, clip=clip)


def _windows() -> dict[str, Stream]:
    started = method_of(StartedSoFar)
    found: dict[str, Stream] = {}
    for kind, windows in KINDS.items():
        for form in FORMS:
            found[f"{kind}, {form}: count"] = windows().agg(n=count(), s=aggregate("sum", B), form=form)
        for form in ("final", "eager"):
            found[f"{kind}, {form}: first"] = windows().agg(f=aggregate("first", B), form=form)
    for form in FORMS:
        found[f"tumbling, {form}: point"] = BY_A.tumbling(5).agg(n=count(), form=form, output="point-at-end")
        found[f"two starts, {form}: point"] = LEFTS.count_windows(2).agg(n=count(), form=form, output="point-at-end")
        found[f"tumbling, {form}: top"] = BY_A.tumbling(5).top(2, by="b", form=form)
        for kind in ("hopping", "whole snapshot", "three starts"):
            for clip in ("none", "full"):
                name = f"{kind}, {form}, clip {clip}: own lifetimes"
                found[name] = KINDS[kind]().apply(started(), form=form, clip=clip, output="unchanged")
    for form in ("final", "eager"):
        for clip in ("left", "right"):
            own = KINDS["hopping"]().apply(started(), form=form, clip=clip, output="unchanged")
            found[f"hopping, {form}, clip {clip}: own lifetimes"] = own
        for kind, clips in (
            ("tumbling", ("none", "right")),
            ("whole snapshot", ("left", "full")),
            ("session", ("none",)),
        ):
            for clip in clips:
                found[f"{kind}, {form}, clip {clip}: durations"] = durations(kind, form, clip)
    for form in ("settled", "eager"):
        found[f"tumbling, {form}: time-bound"] = LEFTS.tumbling(5).apply(started(), form=form, output="time-bound")
    return found


WINDOWS: Final[Mapping[str, Stream]] = _windows()
CASES: Final[Mapping[str, Stream]] = {**SPANS, **JOINED, **SHAPED, **GROUPS, **WINDOWS}


class PlanUnderLaw:
    """A plan that runs on an implementation, from sources' items to a table that must be a legal stream's."""

    def __init__(self, plan: CompiledPlan, implementation: str) -> None:
        self.plan, self._implementation = plan, implementation
        self.names = [one.label for one in plan.sources]
        self.graph = plan.graph(implementation)
        self.entrances = [StreamEntrance(name) for name in self.names]
        self.table = StreamTable()

    def give(self, name: str, items: Iterable[Item]) -> list[Delta]:
        """Take items of a source in as few batches as there can be; return what came out."""
        at = self.names.index(name)
        return [self.step(at, delta) for delta in self.entrances[at].take(items)]

    def step(self, at: int, delta: Delta) -> Delta:
        """Take a batch of the source at a place."""
        deltas = [NOTHING_CHANGES] * len(self.names)
        deltas[at] = delta
        (found,) = self.graph.step(deltas)
        self.table.apply(found)
        return found

    @property
    def input_stable(self) -> int:
        """The least stable point of the sources."""
        return min(entrance.live.stable for entrance in self.entrances)

    @property
    def place(self) -> tuple[Counter[Lifetime], int]:
        """The table and the stable point."""
        return Counter(self.table.events), self.table.stable

    @property
    def packed(self) -> bytes:
        """The state as bytes: NaN is equal to itself there."""
        found: bytes = msgpack.packb(self.graph.state())
        return found

    def restored(self, implementation: str | None = None) -> OperatorGraph:
        """Return a new graph with this one's state, which has gone through MessagePack."""
        graph = self.plan.graph(implementation or self._implementation)
        graph.restore(msgpack.unpackb(self.packed))
        return graph


def plan_of(stream: Stream) -> CompiledPlan:
    """Return the plan of one result."""
    return compile_plan([stream.node])


def history_of(random_: random.Random, plan: CompiledPlan, items: int = 16) -> list[tuple[str, Item]]:
    """Return random items of the sources, interleaved; every source ends."""
    left = {
        one.label: [item for item in random_stream(random_, items, ROWS) if item != INF] + [INF] for one in plan.sources
    }
    found: list[tuple[str, Item]] = []
    while left:
        name = random_.choice(list(left))
        taken = random_.randint(1, 3)
        found += [(name, item) for item in left[name][:taken]]
        left[name] = left[name][taken:]
        if not left[name]:
            del left[name]
    return found


def random_case(seed: int) -> tuple[CompiledPlan, list[tuple[str, Item]]]:
    """Return a random plan of one result, and a history of its sources in which they end."""
    random_ = random.Random(seed)
    plan = compile_plan([next(iter(random_plan(random_, outputs=1).outputs.values())).node])
    names = [one.label for one in plan.sources]
    history = [(name, item) for name, item in random_history(random_, names) if item != INF]
    return plan, [*history, *((name, INF) for name in names)]


def together(random_: random.Random, history: Sequence[tuple[str, Item]]) -> list[tuple[str, list[Item]]]:
    """Return a history in pieces: some neighbours of one source come together."""
    pieces: list[tuple[str, list[Item]]] = []
    for name, item in history:
        if pieces and pieces[-1][0] == name and random_.random() < 0.6:
            pieces[-1][1].append(item)
        else:
            pieces.append((name, [item]))
    return pieces


def in_order(random_: random.Random, rows: Sequence[Values], count_of: int) -> list[Item]:
    """Return an ordered insert-only stream with strictly increasing starts, and stables, without an end."""
    items: list[Item] = []
    for vs in range(count_of):
        items.append(Change(random_.choice(rows), vs, vs, vs + random_.randint(1, 6)))
        if random_.random() < 0.3:
            items.append(vs)
    return items
