"""Random plans over all that the fluent surface has, and random histories of their sources; one seed is one plan.

A plan grows from its sources: each step takes a stream that is there, and adds what one of ``STEPS`` makes of it. So
plans have shared parts, diamonds and several results. Rows are few and small: keys meet, and nothing overflows.

A new operator takes a function ``(random_, stream, others) -> stream`` in ``STEPS``. It returns None where the stream
has no columns for it. ``others`` are the streams that are there, for operators of several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Final, TypeAlias

import plan_modules  # noqa: F401  (it registers its modules)
from temporal_world import Item, random_stream

from lmerge.core.elements import INF
from lmerge.temporal.expressions.surface import Expression, coalesce, col, lit, when
from lmerge.temporal.operators.join import JoinKind
from lmerge.temporal.plan.joins import AsOfJoinNode, JoinNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.stream import (
    GroupedStream,
    Stream,
    WindowCall,
    WindowedStream,
    aggregate,
    count,
    module,
    source,
)
from lmerge.temporal.values import NAN, Values
from lmerge.temporal.windows.kinds import Sessions, Snapshots
from lmerge.temporal.windows.policies import Clip, Form, Stamp

SourceItem: TypeAlias = tuple[str, Item]
"""An item of a source, with the source's name."""

COLUMNS_MAX: Final = 6
JOINS_MAX: Final = 2

FOR_SCALARS: Final = ("count", "distinct_count", "min", "max", "first", "last", "mode", "collect")
FOR_NUMBERS: Final = ("sum", "avg", "median", "var_pop", "var_samp", "stddev_pop", "stddev_samp")

SOURCES: Final[dict[str, tuple[dict[str, str], Sequence[Values]]]] = {
    "pairs": ({"a": "int", "b": "int"}, ((0, 0), (0, 1), (1, 0), (1, 2))),
    "points": ({"a": "int", "b": "int"}, ((0, 1), (1, 1), (2, 5))),
    "texts": ({"s": "string", "n": "int?"}, (("x", 1), ("x", None), ("y", 2), ("é", -1))),
    "measures": (
        {"a": "int", "x": "float?", "d": "decimal(1)", "t": "timestamp"},
        (
            (0, 0.1, Decimal("0.5"), 3_600_000_000),
            (0, NAN, Decimal("-1.5"), 0),
            (1, None, Decimal("0.0"), 0),
            (1, float("-inf"), Decimal("10.0"), -1),
        ),
    ),
}


@dataclass(frozen=True)
class RandomPlan:
    """A plan. ``outputs``: its results by name; ``streams``: all that it has, sources first."""

    outputs: dict[str, Stream]
    streams: tuple[Stream, ...]

    @property
    def nodes(self) -> dict[str, PlanNode]:
        """The results as nodes."""
        return {name: stream.node for name, stream in self.outputs.items()}


Step: TypeAlias = Callable[[Random, Stream, Sequence[Stream]], "Stream | None"]


def random_plan(random_: Random, steps: int = 5, outputs: int = 2) -> RandomPlan:
    """Return a plan of up to ``steps`` operators and ``outputs`` results. What no result reads is not in it."""
    names = random_.sample(list(SOURCES), random_.randint(1, 2))
    streams = [source(name, SOURCES[name][0]) for name in names]
    for _ in range(random_.randint(1, steps)):
        stream = _drawn(random_, streams)
        made = None if joins_of(stream.node) > JOINS_MAX else _step(random_)(random_, stream, streams)
        if made is not None and joins_of(made.node) <= JOINS_MAX:
            streams.append(_narrowed(random_, made))
    last = streams[-1]
    chosen = [last, *(_drawn(random_, streams) for _ in range(random_.randint(0, outputs - 1)))]
    return RandomPlan({f"out{at}": stream for at, stream in enumerate(chosen, 1)}, tuple(streams))


def random_history(random_: Random, names: Sequence[str], items: int = 20, open_part: float = 0.1) -> list[SourceItem]:
    """Return about ``items`` items of the sources ``names``, interleaved; some sources end."""
    streams = {name: random_stream(random_, items // len(names), SOURCES[name][1], open_part) for name in names}
    history: list[SourceItem] = []
    while streams:
        name = random_.choice(list(streams))
        taken = random_.randint(1, 4)
        history += [(name, item) for item in streams[name][:taken]]
        streams[name] = streams[name][taken:]
        if not streams[name]:
            del streams[name]
    return history


def ended(history: Sequence[SourceItem], names: Sequence[str]) -> list[SourceItem]:
    """Return a history in which every source ends."""
    have = {name for name, item in history if item == INF}
    return [*history, *((name, INF) for name in names if name not in have)]


def joins_of(node: PlanNode) -> int:
    """Return the number of joins that rows of a node have gone through, counted as often as they are read."""
    inner = () if node.inner is None else (node.inner,)
    return isinstance(node, (JoinNode, AsOfJoinNode)) + sum(map(joins_of, (*node.reads, *inner)))


def _drawn(random_: Random, streams: Sequence[Stream]) -> Stream:
    """Return one of the streams, later ones more often."""
    return streams[max(random_.randrange(len(streams)), random_.randrange(len(streams)))]


def _step(random_: Random) -> Step:
    return random_.choices([step for step, _ in STEPS], [weight for _, weight in STEPS])[0]


def _narrowed(random_: Random, stream: Stream) -> Stream:
    names = stream.schema.names
    if len(names) <= COLUMNS_MAX:
        return stream
    kept = set(random_.sample(names, COLUMNS_MAX - 2))
    return stream.select(*(name for name in names if name in kept))


# Expressions.


def columns_of(stream: Stream, *kinds: str) -> list[str]:
    """Return the names of the columns of these types, or of all scalar ones."""
    return [
        column.name
        for column in stream.schema.columns
        if (column.type in kinds if kinds else column.type not in ("list", "struct"))
    ]


def random_predicate(random_: Random, stream: Stream) -> Expression:
    """Return a predicate that some rows fulfil."""
    numbers, texts = columns_of(stream, "int", "float", "decimal"), columns_of(stream, "string")
    any_column = col[random_.choice(stream.schema.names)]
    choices: list[Expression] = [any_column.is_not_null(), lit(random_.random() < 0.8)]
    if numbers:
        one = col[random_.choice(numbers)]
        choices += [one < random_.randint(0, 3), one >= 0, (one != 1) | any_column.is_null()]
    if texts:
        text = col[random_.choice(texts)]
        choices += [text.is_in(["x", "é"]), text.length() > 0, ~text.contains("y")]
    return random_.choice(choices)


def random_value(random_: Random, stream: Stream) -> Expression:
    """Return an expression of some type."""
    name = random_.choice(stream.schema.names)
    kind, value = stream.schema.columns[stream.schema.names.index(name)].type, col[name]
    choices: list[Expression] = [value, when(random_predicate(random_, stream)).then(1).otherwise(0)]
    if kind == "int":
        choices += [value + 1, value % 2, -value, coalesce(value, 0), value.cast("string"), value.cast("float")]
    elif kind == "string":
        choices += [value.upper(), value.length(), value.lower()]
    elif kind in ("float", "decimal"):
        choices += [value + value, abs(value), value.is_null()]
    elif kind == "timestamp":
        choices += [value.truncate("day"), value.hour_of_day()]
    return random_.choice(choices)


# Steps.


def _filtered(random_: Random, stream: Stream, others: Sequence[Stream]) -> Stream:
    return stream.where(random_predicate(random_, stream))


def _selected(random_: Random, stream: Stream, others: Sequence[Stream]) -> Stream:
    if random_.random() < 0.4:
        return stream.with_columns(**{f"e{random_.randint(1, 2)}": random_value(random_, stream)})
    names = stream.schema.names
    kept = random_.sample(names, random_.randint(1, len(names)))
    return stream.select(*kept, **({} if "z" in kept else {"z": random_value(random_, stream)}))


def _altered(random_: Random, stream: Stream, others: Sequence[Stream]) -> Stream:
    alterations = [
        lambda: stream.shift(random_.choice((-4, 2, 3))),
        lambda: stream.set_duration(random_.randint(1, 6)),
        lambda: stream.clip_duration(random_.randint(1, 5)),
        lambda: stream.extend(random_.randint(0, 4)),
        lambda: stream.at_end(random_.randint(1, 4)),
    ]
    return random_.choice(alterations)()


def _united(random_: Random, stream: Stream, others: Sequence[Stream]) -> Stream:
    alike = [other for other in others if other.schema == stream.schema]
    return stream.union(*random_.choices(alike, k=random_.randint(1, 2)))


def _joined(random_: Random, stream: Stream, others: Sequence[Stream]) -> Stream | None:
    other = random_.choice(others)
    clash = set(stream.schema.names) | set(other.schema.names)
    if any(f"{name}_right" in clash for name in other.schema.names):
        return None
    pairs = [
        (left, right)
        for kind in ("int", "string", "timestamp")
        for left in columns_of(stream, kind)
        for right in columns_of(other, kind)
    ]
    if not pairs:
        return None
    how = random_.choice(list(JoinKind))
    left, right = random_.choice(pairs)
    shown = f"{right}_right" if right in stream.schema.names else right
    if random_.random() < 0.2:
        return stream.join(other, where=col[left] < col[shown], how=how)
    where = col[left] <= col[shown] if random_.random() < 0.3 else None
    return stream.join(other, {left: right}, where=where, how=how)


def _sampled(random_: Random, stream: Stream, others: Sequence[Stream]) -> Stream | None:
    by = [name for name in columns_of(stream, "int", "string", "bool") if random_.random() < 0.6]
    lasts = random_.choice((None, 1, 4))
    if random_.random() < 0.4:
        return stream.edges(by, lasts=lasts)
    other = random_.choice(others)
    clash = set(stream.schema.names) | set(other.schema.names)
    if any(f"{name}_right" in clash for name in other.schema.names):
        return None
    on = [name for kind in ("int", "string") for name in columns_of(stream, kind) if name in columns_of(other, kind)]
    return stream.as_of(other, on[:1], within=lasts, how=random_.choice(("inner", "left")))


def _shaped(random_: Random, stream: Stream, others: Sequence[Stream]) -> Stream:
    return stream.coalesce() if random_.random() < 0.5 else stream.cleanse()


def _by_group(random_: Random, stream: Stream, others: Sequence[Stream]) -> Stream | None:
    keys = columns_of(stream, "int", "string", "bool")
    if not keys:
        return None

    def sub_plan(group: Stream) -> Stream:
        if random_.random() < 0.4:
            return _windowed(random_, group, [group])
        found = group
        for _ in range(random_.randint(1, 2)):
            step = random_.choice([_filtered, _altered, _sampled, _shaped, _windowed, _joined])
            made = step(random_, found, [found])
            found = found if made is None or joins_of(made.node) > JOINS_MAX else made
        return found

    key = random_.choice(keys)
    if random_.random() < 0.5:
        return stream.group_by(key).apply(sub_plan, keys=False)
    return stream.group_by(**{f"k{len(others)}": col[key]}).apply(sub_plan)


def _windowed(random_: Random, stream: Stream, others: Sequence[Stream]) -> Stream:
    windows = _windows(random_, _grouped(random_, stream))
    calls = {f"r{at}": _call(random_, stream) for at in range(1, random_.randint(2, 3))}
    is_fixed = random_.random() < 0.25 and not isinstance(windows.window, Snapshots | Sessions)
    output = Stamp.POINT_AT_END if is_fixed else Stamp.ALIGN
    return windows.agg(form=random_.choice(list(Form)), output=output, clip=Clip.NONE, rechecks=False, **calls)


def _ranked(random_: Random, stream: Stream, others: Sequence[Stream]) -> Stream | None:
    scalars = columns_of(stream)
    if not scalars or "rank" in stream.schema.names:
        return None
    by = [col[name] for name in random_.sample(scalars, random_.randint(1, min(2, len(scalars))))]
    order = [one.desc() if random_.random() < 0.5 else one for one in by]
    windows, rank = _windows(random_, _grouped(random_, stream)), random_.choice(("rank", None))
    if rank is None and len(windows.keys) == len(stream.schema.names):
        return None
    return windows.top(random_.randint(1, 3), by=order, rank=rank, form=random_.choice(list(Form)))


def _applied(random_: Random, stream: Stream, others: Sequence[Stream]) -> Stream | None:
    """Apply an operator to whole rows: groups would have a column twice."""
    windows, form = _windows(random_, stream.group_by()), random_.choice(list(Form))
    if random_.random() < 0.5:
        return windows.apply(module("each_once"), form=form)
    output = random_.choice((Stamp.ALIGN, Stamp.UNCHANGED, Stamp.CLIP))
    is_fixed = isinstance(windows.window, Snapshots | Sessions)
    if random_.random() < 0.2 and not is_fixed:
        output = Stamp.POINT_AT_END
    return windows.apply(module("started_so_far"), form=form, output=output, clip=random_.choice(list(Clip)))


def _grouped(random_: Random, stream: Stream) -> GroupedStream:
    keys = [name for name in columns_of(stream, "int", "string", "bool") if not name.startswith("r")]
    if not keys or random_.random() < 0.3:
        return stream.group_by()
    if random_.random() < 0.2 and columns_of(stream, "int") and "half" not in stream.schema.names:
        return stream.group_by(half=col[random_.choice(columns_of(stream, "int"))] // 2)
    return stream.group_by(*random_.sample(keys, random_.randint(1, min(2, len(keys)))))


def _windows(random_: Random, grouped: GroupedStream) -> WindowedStream:
    size, hop = random_.randint(1, 6), random_.randint(1, 7)
    choices = [
        lambda: grouped.tumbling(size, offset=random_.randint(-2, 2)),
        lambda: grouped.hopping(size, hop),
        lambda: grouped.snapshot(),
        lambda: grouped.count_windows(random_.randint(1, 3), by=random_.choice(("starts", "ends"))),
        lambda: grouped.sessions(random_.randint(0, 3)),
    ]
    return random_.choice(choices)()


def _call(random_: Random, stream: Stream) -> WindowCall:
    numbers, scalars = columns_of(stream, "int", "float", "decimal"), columns_of(stream)
    choices = [count()]
    if scalars:
        choices += [aggregate(name, col[random_.choice(scalars)]) for name in random_.sample(FOR_SCALARS, 3)]
        choices.append(aggregate("percentile_disc", col[random_.choice(scalars)], p=random_.choice((0, 0.5, 0.9))))
    if numbers:
        choices += [aggregate(name, col[random_.choice(numbers)]) for name in random_.sample(FOR_NUMBERS, 3)]
        choices.append(aggregate("percentile_cont", col[random_.choice(numbers)], p=0.25))
    return random_.choice(choices)


STEPS: list[tuple[Step, int]] = [
    (_filtered, 3),
    (_selected, 3),
    (_altered, 3),
    (_united, 2),
    (_joined, 4),
    (_sampled, 3),
    (_shaped, 2),
    (_by_group, 3),
    (_windowed, 6),
    (_ranked, 2),
    (_applied, 2),
]
"""What makes a stream of others, with weights."""
