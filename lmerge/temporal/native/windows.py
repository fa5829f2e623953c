"""How windows are described to the native core: their kind, the policies, and aggregates or ranked rows."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

from lmerge.temporal.expressions.binding import bind_all
from lmerge.temporal.expressions.tree import Node
from lmerge.temporal.modules.aggregates import AggregateList
from lmerge.temporal.modules.builtin import overflow_text
from lmerge.temporal.native.expressions import native_expressions
from lmerge.temporal.plan.calls import WindowCall, argument_of_node
from lmerge.temporal.plan.ranking import TopNode
from lmerge.temporal.plan.windows import AggregateNode, WindowNode
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Sessions, WindowKind
from lmerge.temporal.windows.policies import Clip, Stamp
from lmerge.wire.schema import Column

HALF: Final = Fraction(1, 2)


def describe_aggregates(node: AggregateNode) -> dict[str, Any] | None:
    """Return the description of aggregates in windows, or None if they run in Python: a user's module is among them."""
    calls = [call for _, call in node.calls]
    if any(call.version is not None or call.on_empty is not None for call in calls):
        return None
    reads_starts = isinstance(node.module, AggregateList) and node.module.reads_events
    if reads_starts and node.policies.clip is not Clip.NONE:
        return None
    arguments: list[Node] = []
    described = [_call(node, call, arguments) for call in calls]
    return _described(node, arguments, {"kind": "aggregates", "calls": described})


def describe_top(node: TopNode) -> dict[str, Any] | None:
    """Return the description of ranked rows in windows, or None if their expressions run in Python."""
    names = node.input_schema.names
    kept = [column.name for column in node.results]
    module = {
        "kind": "top",
        "k": node.k,
        "descending": [is_last for _, is_last in node.order_by],
        "has_rank": node.rank is not None,
        "columns": [names.index(name) for name in (kept if node.rank is None else kept[:-1])],
    }
    return _described(node, [by for by, _ in node.order_by], module)


def _call(node: AggregateNode, call: WindowCall, arguments: list[Node]) -> tuple[Any, ...]:
    """Return an aggregate: its function, its part, the place of its argument, and its message for an overflow."""
    name, part = call.name, Fraction(str(call.parameters.get("p", 0)))
    if name == "median":
        name, part = "percentile_cont", HALF
    fraction = (str(part.numerator), str(part.denominator))
    if not call.arguments:
        return name, fraction, None, "", ""
    (argument,) = call.arguments
    if argument not in arguments:
        arguments.append(argument)
    column = argument_of_node(argument, node.input_schema, node.title).column
    return name, fraction, arguments.index(argument), *_overflow(call, column)


def _overflow(call: WindowCall, column: Column) -> tuple[str, str]:
    if call.name != "sum":
        return "", ""
    before, after = overflow_text(f"sum({column.name})", column, "\0").split("\0")
    return before, after


def _described(node: WindowNode, arguments: Sequence[Node], module: dict[str, Any]) -> dict[str, Any] | None:
    nodes = [*(key for _, key in node.keys), *arguments]
    bound = bind_all({str(at): one for at, one in enumerate(nodes)}, node.input_schema, operator=node.title)
    expressions = native_expressions(bound, node.input_schema)
    if expressions is None:
        return None
    policies = node.policies
    return {
        "kind": "windows",
        "window": _window(node.window),
        "form": str(policies.form),
        "is_point": policies.stamp is Stamp.POINT_AT_END,
        "windows_max": policies.windows_max,
        "keys": len(node.keys),
        "expressions": expressions,
        "module": module,
    }


def _window(kind: WindowKind) -> dict[str, Any]:
    if isinstance(kind, Hopping):
        grid = {"size": kind.size, "hop": kind.hop, "offset": kind.offset, "since": kind.since}
        return {"kind": "hopping", "shown": kind.shown, **grid}
    if isinstance(kind, CountWindows):
        return {"kind": "count", "count": kind.count, "by_ends": kind.by is CountedEnd.ENDS}
    if isinstance(kind, Sessions):
        return {"kind": "sessions", "gap": kind.gap}
    return {"kind": "snapshot"}
