"""How windows, groups and open sub-trees are filled: each draws what its node leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lmerge.temporal.expressions.surface import Expression
from lmerge.temporal.plan.calls import WindowCall
from lmerge.temporal.plan.grouped import Grouped, Windowed, aggregate, module
from lmerge.temporal.plan.stream import Stream
from lmerge.temporal.plan.window_fields import window_of_fields
from lmerge.temporal.windows.kinds import Hopping
from lmerge.testing.intents.fluent import CLIPS, FIXED_OUTPUTS, FORMS, IntentScenario, IntentStream
from lmerge.testing.intents.placeholders import MARK, Placeholder
from lmerge.testing.intents.trees import IntentNode, in_order
from lmerge.testing.transforming.choices import AGGREGATES, MODULES, OVERFLOWING, WINDOWS
from lmerge.testing.transforming.expanding import expanded, over
from lmerge.testing.transforming.filling import Fill, Filling, NoFit, free_name, has_type
from lmerge.testing.transforming.modules import CHECKSUM, COVERED_TIME, SUM_BY_LENGTH
from lmerge.wire.schema import Schema

_AGGREGATES: Final = (COVERED_TIME, SUM_BY_LENGTH, CHECKSUM)
"""Modules that are aggregates, which are called in another way than the built-in ones."""
ON_EMPTY: Final[Mapping[str, int]] = {"count": 0, "distinct_count": 0} | dict.fromkeys(_AGGREGATES, -1)
"""Results of windows without events, of calls that give whole numbers."""

# Windows.


def _aggregate(filling: Filling, node: IntentNode, reads: Sequence[Stream]) -> Stream:
    windows = _windows(filling, node, reads[0])
    output = filling.level(node.get("output"), "align", FIXED_OUTPUTS)
    form, clip = _form(filling, node), filling.level(node.get("clip"), "none", CLIPS)
    schema = reads[0].schema
    given = node.value("calls")
    calls = filling.value(given, (), lambda: _drawn_calls(filling, given, schema, windows))
    made = {name: _call(filling, call, schema) for name, call in calls}
    return windows.agg(form=form, output=output, clip=clip, rechecks=False, **made)


def _drawn_calls(
    filling: Filling, placeholder: Placeholder, schema: Schema, windows: Windowed[Stream]
) -> tuple[tuple[str, WindowCall], ...]:
    kind = windows.window
    can_be_empty = isinstance(kind, Hopping) and kind.since is not None and not windows.keys  # V.D
    is_divided = isinstance(kind, Hopping) and kind.hop < kind.size and kind.size % kind.hop == 0
    levels = [filling.cell[placeholder.name]] if placeholder.name in filling.cell else []
    if not levels and is_divided and filling.random.random() < 0.5:
        levels.append(CHECKSUM)
    if can_be_empty and filling.random.random() < 0.7:
        levels.append("count")
    found: list[tuple[str, WindowCall]] = []
    while len(levels) < filling.random.randint(1, 2):
        levels.append(filling.random.choice([*AGGREGATES, COVERED_TIME, SUM_BY_LENGTH]))
    for level in levels:
        if filling.is_extreme and level in OVERFLOWING:
            level = "max"
        types = [of for of in AGGREGATES[level] if has_type(schema, of)]
        if AGGREGATES[level] and not types:
            level, types = "count", []
        name = free_name(f"r{len(found) + 1}", schema)
        value = filling.drawing(schema).expression(filling.random.choice(types), 1) if types else None
        is_empty = can_be_empty and level in ON_EMPTY and filling.random.random() < 0.7
        found.append((name, _called(level, value, ON_EMPTY[level] if is_empty else None)))
    return tuple(found)


def _call(filling: Filling, call: WindowCall, schema: Schema) -> WindowCall:
    if call.arguments is None:
        return call
    nodes = [filling.expression(Expression(node), schema).node for node in call.arguments]
    return replace(call, arguments=tuple(nodes))


def _top(filling: Filling, node: IntentNode, reads: Sequence[Stream]) -> Stream:
    stream = reads[0]
    windows, form = _windows(filling, node, stream), _form(filling, node)
    by = filling.expression(node.value("by"), stream.schema)
    order = by.desc() if filling.random.random() < 0.5 else by
    output = filling.level(node.get("output"), "align", FIXED_OUTPUTS)
    rank = None if "rank" in stream.schema.names or filling.random.random() < 0.4 else "rank"
    k = filling.number(node.value("k"), 1, 1, 3)
    assert k is not None
    return windows.top(k, by=order, rank=rank, form=form, output=output)


def _apply(filling: Filling, node: IntentNode, reads: Sequence[Stream]) -> Stream:
    given = node.value("module")

    def draw() -> WindowCall:
        return module(filling.cell.get(given.name, filling.random.choice(MODULES)))

    call = _call(filling, filling.value(given, None, draw), reads[0].schema)
    windows = _windows(filling, node, reads[0])
    output = filling.level(node.get("output"), "align", ("align", "unchanged", "clip"))
    clip = filling.level(node.get("clip"), "none", CLIPS)
    return windows.apply(call, form=_form(filling, node), output=output, clip=clip)


def _form(filling: Filling, node: IntentNode) -> str:
    return filling.level(node.get("form"), "final", FORMS)


def _windows(filling: Filling, node: IntentNode, stream: Stream) -> Windowed[Stream]:
    keys = filling.keys(node.get("keys", ()), stream.schema)
    given = node.value("window")
    if isinstance(given, Placeholder):
        kind = filling.level(given, "tumbling", WINDOWS)
        opened = IntentStream(filling.scenario, node).group_by()
        given = over(opened, kind, filling.random).window
        # Each attempt opens it anew: only its numbers differ.
    fields = {name: _size(filling, value) for name, value in dict(given).items()}
    return Grouped(stream.node, keys, Stream).over(window_of_fields(fields))


def _size(filling: Filling, value: Any) -> Any:
    return filling.number(value) if isinstance(value, Placeholder) else value


# Trees.


def _group_apply(filling: Filling, node: IntentNode, reads: Sequence[Stream]) -> Stream:
    keys = filling.keys(node.value("keys"), reads[0].schema)
    if not keys:
        raise NoFit("there is no column to group by")
    plan = node.value("plan")
    clash: list[bool] = []

    def sub_plan(one: Stream) -> Stream:
        inner = replace(filling, over_source=None, streams={id(leaf): one for leaf in _leaves(plan)})
        made = inner.stream(plan)
        filling.chosen = inner.chosen
        clash.append(any(name in made.schema.names for name, _ in keys))
        return made

    grouped = Grouped(reads[0].node, keys, Stream)
    made = grouped.apply(sub_plan, keys=False)
    return grouped.apply(lambda _: _inner_of(made), keys=not clash[0])


def _any(filling: Filling, node: IntentNode, reads: Sequence[Stream]) -> Stream:
    given = node.value("operators")
    most = filling.number(given, 1, 1, 3)
    prefix = f"{given.name}." if isinstance(given, Placeholder) else MARK
    levels = {name.removeprefix(prefix): level for name, level in filling.cell.items() if name.startswith(prefix)}
    scenario = IntentScenario(filling.scenario.name)
    leaves = [IntentStream(scenario, IntentNode("group")) for _ in reads]
    root = expanded(filling.random, leaves, levels, most or 1)
    streams = {id(leaf.node): read for leaf, read in zip(leaves, reads)}
    inner = replace(filling, scenario=scenario, cell={}, over_source=None, streams=streams, chosen={}, narrows=True)
    return inner.stream(root.node)


def _called(level: str, value: Expression | None, on_empty: int | None) -> WindowCall:
    if level in _AGGREGATES:
        return module(level, value, on_empty=on_empty)
    parameters = {"p": 0.25} if level.startswith("percentile") else {}
    return aggregate(level, *([] if value is None else [value]), on_empty=on_empty, **parameters)


def _inner_of(stream: Stream) -> Stream:
    inner = stream.node.inner
    assert inner is not None
    return Stream(inner)


def _leaves(plan: IntentNode) -> list[IntentNode]:
    """Return the nodes of a sub-tree that are the stream of its group."""
    return [node for node in in_order([plan]) if node.operator == "group"]


WINDOW_FILLS: Final[Mapping[str, Fill]] = {
    "aggregate": _aggregate,
    "top": _top,
    "apply": _apply,
    "group_apply": _group_apply,
    "any": _any,
}
