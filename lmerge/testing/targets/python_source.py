"""Fluent Python as a target: the program that a user would write, run in a namespace of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from lmerge.errors import LmergeError, UsageError
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.properties import plain_column
from lmerge.temporal.expressions.tree import Node
from lmerge.temporal.plan.applying import ApplyNode
from lmerge.temporal.plan.calls import WindowCall
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.groups import GroupApplyNode, GroupInputNode
from lmerge.temporal.plan.joins import AsOfJoinNode, JoinNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.ranking import TopNode
from lmerge.temporal.plan.shaping import CleanseNode, CoalesceNode, EdgesNode
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.plan.spans import FilterNode, LifetimeNode, SelectNode, UnionNode
from lmerge.temporal.plan.stream import Stream
from lmerge.temporal.plan.windows import AggregateNode, WindowNode
from lmerge.temporal.windows.kinds import CountWindows, Hopping, Sessions
from lmerge.wire.schema import Column, Schema

_HEAD: Final = '''"""Written by lmerge.testing."""

from datetime import date, datetime, timezone
from decimal import Decimal

import lmerge.testing.transforming.modules
from lmerge.temporal import aggregate, module, source
from lmerge.temporal.expressions.surface import coalesce, col, concat, greatest, least, lit, when
'''
_OUTPUTS: Final = "outputs"


class PythonSource:
    """Programs that build a plan, with its results by name in ``outputs``."""

    name = "python"

    def written(self, outputs: Mapping[str, PlanNode]) -> str:
        """Return the program. Raises UsageError for a plan that the fluent surface cannot build."""
        names: dict[PlanNode, str] = {}
        lines = _statements(list(outputs.values()), names, "s")
        results = ", ".join(f"{name!r}: {names[node]}" for name, node in outputs.items())
        return "\n".join([_HEAD, *lines, f"{_OUTPUTS} = {{{results}}}", ""])

    def read(self, text: str) -> dict[str, PlanNode]:
        """Run a program, and return the plan that it builds. Raises UsageError for one that builds none."""
        scope: dict[str, Any] = {"__name__": "lmerge_test_query"}
        try:
            exec(compile(text, "<query>", "exec"), scope)
        except LmergeError:
            raise
        except Exception as problem:
            raise UsageError(f"the program failed: {problem!r:.200}") from problem
        found = scope.get(_OUTPUTS)
        if not isinstance(found, Mapping) or not all(isinstance(one, Stream) for one in found.values()):
            raise UsageError(f"the program has no {_OUTPUTS}, a mapping of names to streams")
        return {str(name): stream.node for name, stream in found.items()}


def _statements(roots: Sequence[PlanNode], names: dict[PlanNode, str], prefix: str) -> list[str]:
    """Return the statements that build nodes; ``names`` gets the variable of each."""
    lines: list[str] = []
    for node in in_order(roots):
        if node in names:
            continue
        write = _WRITERS.get(type(node))
        if write is None:
            raise UsageError(f"{node.kind} cannot be written as Python")
        name = f"{prefix}{len(names) + 1}"
        if isinstance(node, GroupApplyNode):
            lines += _sub_plan(node, name)
        text = write(node, names | {node: name})
        label = f".named({node.label!r})" if node.label and not isinstance(node, SourceNode) else ""
        names[node] = name
        lines.append(f"{name} = {text}{label}")
    return lines


def _sub_plan(node: GroupApplyNode, name: str) -> list[str]:
    """Return the function of the sub-plan of groups."""
    inner: dict[PlanNode, str] = {one: "group" for one in in_order([node.plan]) if isinstance(one, GroupInputNode)}
    lines = _statements([node.plan], inner, "g")
    return ["", f"def {name}_plan(group):", *(f"    {line}" for line in lines), f"    return {inner[node.plan]}", ""]


def _source(node: SourceNode, names: Mapping[PlanNode, str]) -> str:
    promises = f", promises={sorted(node.promises)!r}" if node.promises else ""
    return f"source({node.label!r}, {_fields(node.columns)!r}{promises}, shape={str(node.shape)!r})"


def _fields(schema: Schema) -> dict[str, Any]:
    return dict(_field(column) for column in schema.columns)


def _field(column: Column) -> tuple[str, Any]:
    if column.type == "struct":
        return f"{column.name}{'?' * column.nullable}", dict(_field(child) for child in column.children)
    return column.name, column.describe()


def _filter(node: FilterNode, names: Mapping[PlanNode, str]) -> str:
    return f"{_read(node, names)}.where({shown(node.predicate)}){_row_policy(node)}"


def _select(node: SelectNode, names: Mapping[PlanNode, str]) -> str:
    return f"{_read(node, names)}.select({_computed(node.columns)}){_row_policy(node)}"


def _row_policy(node: FilterNode | SelectNode) -> str:
    dropped = "" if str(node.on_error) == "fail" else f".on_error({str(node.on_error)!r})"
    return f"{dropped}{'.rechecked()' * node.rechecks}"


def _computed(pairs: Sequence[tuple[str, Node]]) -> str:
    """Return columns as arguments by their names."""
    return f"**{{{', '.join(f'{name!r}: {shown(node)}' for name, node in pairs)}}}"


def _lifetime(node: LifetimeNode, names: Mapping[PlanNode, str]) -> str:
    return f"{_read(node, names)}.{node.alteration}({node.amount})"


def _edges(node: EdgesNode, names: Mapping[PlanNode, str]) -> str:
    by = ", ".join(shown(one) for one in node.by)
    lasts = "" if node.lasts is None else f", lasts={node.lasts}"
    return f"{_read(node, names)}.edges([{by}]{lasts}, ties={str(node.ties)!r})"


def _coalesce(node: CoalesceNode, names: Mapping[PlanNode, str]) -> str:
    return f"{_read(node, names)}.coalesce()"


def _cleanse(node: CleanseNode, names: Mapping[PlanNode, str]) -> str:
    return f"{_read(node, names)}.cleanse()"


def _union(node: UnionNode, names: Mapping[PlanNode, str]) -> str:
    first, *others = (names[read] for read in node.reads)
    disjoint = f", disjoint_by={list(node.disjoint_by)!r}" if node.disjoint_by else ""
    return f"{first}.union({', '.join(others)}{disjoint})"


def _join(node: JoinNode, names: Mapping[PlanNode, str]) -> str:
    left, right = (names[read] for read in node.reads)
    where = "" if node.predicate is None else f", where={shown(node.predicate)}"
    rest = f", how={str(node.how)!r}, suffix={node.suffix!r}, pairs_max={node.pairs_max}"
    return f"{left}.join({right}, {_equalities(node)}{where}{rest})"


def _as_of(node: AsOfJoinNode, names: Mapping[PlanNode, str]) -> str:
    left, right = (names[read] for read in node.reads)
    within = "" if node.within is None else f", within={node.within}"
    how = "left" if node.is_outer else "inner"
    return f"{left}.as_of({right}, {_equalities(node)}{within}, how={how!r}, suffix={node.suffix!r})"


def _equalities(node: JoinNode | AsOfJoinNode) -> str:
    pairs = [(plain_column(left), plain_column(right)) for left, right in node.keys]
    if any(name is None for pair in pairs for name in pair):
        raise UsageError(f"{node.title}: the fluent surface joins on columns, and a key here is computed")
    return repr(dict(pairs))


def _aggregate(node: AggregateNode, names: Mapping[PlanNode, str]) -> str:
    calls = ", ".join(f"{name!r}: {_call(call)}" for name, call in node.calls)
    return f"{_windows(node, names)}.agg({_policies(node)}, **{{{calls}}})"


def _top(node: TopNode, names: Mapping[PlanNode, str]) -> str:
    by = ", ".join(f"({shown(one)}).{'desc' if is_descending else 'asc'}()" for one, is_descending in node.order_by)
    chosen = f"form={str(node.policies.form)!r}, output={str(node.policies.stamp)!r}"
    return f"{_windows(node, names)}.top({node.k}, by=[{by}], rank={node.rank!r}, {chosen})"


def _apply(node: ApplyNode, names: Mapping[PlanNode, str]) -> str:
    return f"{_windows(node, names)}.apply({_call(node.call)}, {_policies(node)})"


def _policies(node: WindowNode) -> str:
    chosen = node.policies
    levels = f"form={str(chosen.form)!r}, output={str(chosen.stamp)!r}, clip={str(chosen.clip)!r}"
    return f"{levels}, rechecks={chosen.rechecks}"


def _call(call: WindowCall) -> str:
    parameters = "".join(f", {name}={value!r}" for name, value in call.parameters.items())
    empty = "" if call.on_empty is None else f", on_empty={shown(call.on_empty)}"
    if call.version is None:
        arguments = "".join(f", {shown(node)}" for node in call.arguments or ())
        return f"aggregate({call.name!r}{arguments}{empty}{parameters})"
    given = "" if call.arguments is None else f", [{', '.join(map(shown, call.arguments))}]"
    return f"module({call.name!r}{given}{empty}{parameters})"


def _windows(node: WindowNode, names: Mapping[PlanNode, str]) -> str:
    window, grouped = node.window, f"{_read(node, names)}.group_by({_computed(node.keys) if node.keys else ''})"
    limit = f".at_most({node.policies.windows_max})"
    if isinstance(window, Hopping):
        since = "" if window.since is None else f", since={window.since}"
        return f"{grouped}.hopping({window.size}, {window.hop}, offset={window.offset}{since}){limit}"
    if isinstance(window, CountWindows):
        return f"{grouped}.count_windows({window.count}, by={window.by.value!r}){limit}"
    if isinstance(window, Sessions):
        return f"{grouped}.sessions({window.gap}){limit}"
    return f"{grouped}.snapshot(){limit}"


def _group_apply(node: GroupApplyNode, names: Mapping[PlanNode, str]) -> str:
    return f"{_read(node, names)}.group_by({_computed(node.keys)}).apply({names[node]}_plan, keys={node.has_keys})"


def _read(node: PlanNode, names: Mapping[PlanNode, str]) -> str:
    (read,) = node.reads
    return names[read]


Writer = Callable[[Any, Mapping[PlanNode, str]], str]

_WRITERS: Final[Mapping[type[PlanNode], Writer]] = {
    SourceNode: _source,
    FilterNode: _filter,
    SelectNode: _select,
    LifetimeNode: _lifetime,
    EdgesNode: _edges,
    CoalesceNode: _coalesce,
    CleanseNode: _cleanse,
    UnionNode: _union,
    JoinNode: _join,
    AsOfJoinNode: _as_of,
    AggregateNode: _aggregate,
    TopNode: _top,
    ApplyNode: _apply,
    GroupApplyNode: _group_apply,
}
