"""Derives how far below the watermark a row can still come out of a plan, and so a replica's stable point.

**Requirement.** ``stable(Vc)`` after batch N promises that no later row has ``Vs < Vc``. Let W(N) be the watermark that
batch N itself ran with (``batchWatermarkMs`` in ``<checkpoint>/offsets/N``). Spark 4 works like this
(``WatermarkPropagator``, ``WatermarkSupport``, the operators in ``statefulOperators.scala``):

- A stateful operator of batch N+1 drops input rows whose event time is AT or below W(N), the watermark of the batch
  before (``LessThanOrEqual``, the watermark in milliseconds times 1000 against microseconds). For a window, its end.
- In append mode an aggregation outputs in batch N the groups whose event time is at or below W(N). Groups that stay or
  come later are strictly above W(N). In update mode it outputs only groups that a row of the batch has changed, and
  rows at or below W(N) are dropped in batch N+1. So in both modes all output after batch N is strictly above W(N).
- Operators without state drop nothing at all: after batch N a row of any age can still come out.

So this module follows lower bounds of time from the sources to the output, operator by operator::

    t > W(N) - lag     for every row that comes out after batch N

A bound is *exact* if a stateful operator enforces it. It is not exact if it follows only from the delay of the
watermark: rows below it can come out, and the sink drops and counts them. A value without a certain bound is Unknown,
with the reason, and the user must declare ``stable_lag`` for an Unknown ``vs``.

Timeline, tumbling windows of 10 s, append, Vs = window.start, watermark in seconds::

    batch      1    2    3    4
    W          0    5   12   20
    outputs    -    -  [0,10)  [10,20)       end <= W(N)
    stable     -   -5    2   10              W(N) - 10: [10,20) came with this batch, [20,30) will be next
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from lmerge.spark.plan.bounds import (
    SESSION_WINDOW,
    Bound,
    BoundOrUnknown,
    OperatorBounds,
    Unknown,
    bound_of,
    duration,
    shifted,
    weakest,
    window_us,
)
from lmerge.spark.plan.tree import ROWS_KEPT, Expr, Node, PlanColumn

# Operators that output their rows with the times unchanged, or fewer rows, in any order.
PASSING: Final = ROWS_KEPT | {"Generate"}
STATEFUL_PROGRAMS: Final = frozenset(
    {
        "TransformWithState",
        "TransformWithStateInPandas",
        "TransformWithStateInPySpark",
        "FlatMapGroupsWithState",
        "FlatMapGroupsInPandasWithState",
    }
)
STATEFUL: Final = STATEFUL_PROGRAMS | {"Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct"}


def operator_bounds(node: Node) -> OperatorBounds:
    """Return the bounds of the output of ``node``, derived from its sources upwards."""
    below = [operator_bounds(child) for child in node.children]
    rule = _OPERATORS.get(node.kind)
    if rule is not None:
        return rule(node, below)
    if node.kind in PASSING and len(below) == 1:
        return _keep(node, below[0])
    if not node.children:
        return OperatorBounds({}, None)
    why = f"it comes out of {node.kind}, which cannot be analysed"
    return OperatorBounds({column.expr_id: Unknown(why) for column in node.output}, least_watermark(below))


def is_stateful(node: Node) -> bool:
    """Whether ``node`` is an operator that keeps state from batch to batch."""
    if not node.streaming:
        return False
    return node.kind in STATEFUL or (node.kind == "Join" and all(child.streaming for child in node.children))


def least_watermark(below: Iterable[OperatorBounds]) -> int | Unknown | None:
    """Return the smallest watermark of several inputs. Inputs without a watermark do not count."""
    lags = [f.watermark_lag_us for f in below if f.watermark_lag_us is not None]
    unknown = next((lag for lag in lags if isinstance(lag, Unknown)), None)
    return unknown or max((lag for lag in lags if isinstance(lag, int)), default=None)


def _keep(node: Node, f: OperatorBounds) -> OperatorBounds:
    ids = {column.expr_id for column in node.output}
    either = tuple(pair for pair in f.either if pair[0] <= ids)
    return OperatorBounds({i: bound for i, bound in f.bounds.items() if i in ids}, f.watermark_lag_us, either)


def _watermark(node: Node, below: list[OperatorBounds]) -> OperatorBounds:
    expr_id = int(node.details["expr_id"])
    reason = f"{_name(node, expr_id)} is followed by a watermark, {node.details['delay']} behind"
    return OperatorBounds({**below[0].bounds, expr_id: Bound(0, False, False, reason)}, 0)


def _name(node: Node, expr_id: int) -> str:
    column = node.column(expr_id)
    return column.name if column else "the event time"


def _project(node: Node, below: list[OperatorBounds]) -> OperatorBounds:
    bounds: dict[int, BoundOrUnknown] = {}
    for e in node.exprs["list"]:
        if e.expr_id is None:
            continue
        bound = _window(e, node) or bound_of(e, below[0])
        # An Expand outputs a column several times, in different rows.
        bounds[e.expr_id] = weakest([bounds[e.expr_id], bound]) if e.expr_id in bounds else bound
    kept = set(bounds)
    return OperatorBounds(bounds, below[0].watermark_lag_us, tuple(pair for pair in below[0].either if pair[0] <= kept))


def _window(e: Expr, node: Node) -> BoundOrUnknown | None:
    """Return the bound of a window that ``e`` builds from a time with a watermark; None: ``e`` builds no window."""
    column = node.column(e.expr_id)
    if column is None or not column.window or e.kind != "Alias" or e.children[0].kind == "AttributeReference":
        return None
    if column.delay_ms is None:
        return Unknown(f"{column.name} is a window over a column without a watermark")
    length_us = SESSION_WINDOW if column.window == "session" else window_us(e)
    if length_us is None:
        return None
    # Its end is after the time that it contains. Nothing enforces the bound before an operator with state.
    return Bound(0, False, False, f"{column.name} is a window over a time that a watermark follows", length_us)


def _filtering(
    columns: Iterable[PlanColumn], f: OperatorBounds, operator: str
) -> tuple[PlanColumn | None, BoundOrUnknown]:
    """Return the one column with a watermark among ``columns``, and its bound behind an operator's late-row filter."""
    marked = {column.expr_id: column for column in columns if column.delay_ms is not None}
    if len(marked) != 1:
        what = "no column with a watermark" if not marked else "several columns with a watermark"
        return None, Unknown(f"{operator} has {what} to drop late rows by")
    (column,) = marked.values()
    lag_us = f.watermark_lag_us
    if lag_us is None or isinstance(lag_us, Unknown):
        return column, lag_us or Unknown(f"{operator} runs without a watermark")
    before = f.bounds.get(column.expr_id)
    what = "ends" if column.window else "is"
    reason = f"{operator} drops rows whose {column.name} {what} at or below the watermark of the batch before"
    return column, Bound(lag_us, True, True, reason, before.window_us if isinstance(before, Bound) else None)


def _aggregate(node: Node, below: list[OperatorBounds]) -> OperatorBounds:
    if not node.streaming:
        return OperatorBounds({}, None)
    grouping = {e.expr_id for e in node.exprs["grouping"] if e.kind == "AttributeReference"}
    columns = [column for column in node.children[0].output if column.expr_id in grouping]
    column, bound = _filtering(columns, below[0], "the aggregation")
    why = bound.why if isinstance(bound, Unknown) else "it is a result of the aggregation, and not its event time"
    inside = OperatorBounds({} if column is None else {column.expr_id: bound}, None)
    bounds: dict[int, BoundOrUnknown] = {}
    for e in node.exprs["list"]:
        assert e.expr_id is not None
        of_event_time = column is not None and e.refs == {column.expr_id} and not _aggregates(e)
        bounds[e.expr_id] = bound_of(e, inside) if of_event_time else Unknown(why)
    return OperatorBounds(bounds, below[0].watermark_lag_us)


def _aggregates(e: Expr) -> bool:
    return any(part.kind == "AggregateExpression" for part in e.walk())


def _deduplicate(node: Node, below: list[OperatorBounds]) -> OperatorBounds:
    kept = _keep(node, below[0])
    if not node.streaming:
        return kept
    column, bound = _filtering(node.children[0].output, below[0], "dropDuplicates")
    if column is None or isinstance(bound, Unknown):
        return kept  # without an event time nothing is dropped, and rows pass unchanged
    return kept._replace(bounds={**kept.bounds, column.expr_id: bound})


def _join(node: Node, below: list[OperatorBounds]) -> OperatorBounds:
    left, right = node.children
    if not (left.streaming and right.streaming):
        return _keep(node, below[0 if left.streaming else 1])
    if node.details["type"] not in ("Inner", "LeftSemi"):
        why = f"a join of two streams ({node.details['type']}) also gives out rows as they leave its state"
        return OperatorBounds({c.expr_id: Unknown(why) for c in node.output}, Unknown(why))
    watermark_us = least_watermark(below)
    filters = [
        _filtering(child.output, OperatorBounds(f.bounds, watermark_us), "the join of two streams")
        for child, f in zip(node.children, below)
    ]
    (a, of_a), (b, of_b) = filters
    why = "it comes out of a join of two streams, where a new row of one side can meet an old one of the other"
    bounds: dict[int, BoundOrUnknown] = {c.expr_id: Unknown(why) for c in node.output}
    if a is None or b is None or isinstance(of_a, Unknown) or isinstance(of_b, Unknown):
        problem = next(bound for _, bound in filters if isinstance(bound, Unknown))
        return OperatorBounds(dict.fromkeys(bounds, problem), None if watermark_us is None else problem)
    conditions = time_conditions(node.exprs["condition"], a, b)
    for column, bound, behind_us in ((a, of_a, conditions.left_us), (b, of_b, conditions.right_us)):
        if column.expr_id in bounds and behind_us is not None:
            # Either this side's row is new, or the other's is and the condition holds between them.
            reason = f"the join lets {column.name} be at most {duration(behind_us)} before the other side's time"
            bounds[column.expr_id] = replace(bound, lag_us=bound.lag_us + behind_us, reason=f"{bound.reason}; {reason}")
    pair = frozenset({a.expr_id, b.expr_id})
    reason = f"of {a.name} and {b.name} one is of a new row, and the join drops late rows"
    newer = (pair, replace(of_a, reason=reason, window_us=None))
    beyond = Unknown(
        "it comes after a join of two streams over a range of time, and behind that Spark keeps a watermark of its own"
    )
    return OperatorBounds(
        bounds,
        watermark_us if conditions.equal else beyond,
        (newer,) if conditions.compares and pair <= set(bounds) else (),
    )


class Conditions(NamedTuple):
    """How far each of a join's two event times can be before the other, in microseconds (None: any)."""

    left_us: int | None
    right_us: int | None
    equal: bool

    @property
    def compares(self) -> bool:
        """Whether a row without one of the times is never joined."""
        return self.left_us is not None or self.right_us is not None


def time_conditions(conditions: Iterable[Expr], left: PlanColumn, right: PlanColumn) -> Conditions:
    """Read conjuncts such as ``left >= right - INTERVAL 5 MINUTES``, in any arrangement."""
    least: dict[int, int] = {}
    equal = False
    for e in (part for condition in conditions for part in _conjuncts(condition)):
        if e.kind not in _COMPARISONS or ((left.window or right.window) and e.kind != "EqualTo"):
            continue
        sides = [_time(child) for child in e.children]
        if None in sides or {s[0] for s in sides if s} != {left.expr_id, right.expr_id}:
            continue
        (x, x_us), (y, y_us) = (s for s in sides if s)
        if e.kind in ("GreaterThanOrEqual", "GreaterThan", "EqualTo"):  # x + x_us >= y + y_us
            least[x] = min(least.get(x, 2**62), max(0, x_us - y_us))
        if e.kind in ("LessThanOrEqual", "LessThan", "EqualTo"):
            least[y] = min(least.get(y, 2**62), max(0, y_us - x_us))
        equal |= e.kind == "EqualTo" and all(child.kind == "AttributeReference" for child in e.children)
    return Conditions(least.get(left.expr_id), least.get(right.expr_id), equal)


_COMPARISONS: Final = frozenset({"GreaterThanOrEqual", "GreaterThan", "LessThanOrEqual", "LessThan", "EqualTo"})


def _conjuncts(e: Expr) -> Iterable[Expr]:
    if e.kind in ("And", "Between"):
        for child in e.children:
            yield from _conjuncts(child)
    else:
        yield e


def _time(e: Expr) -> tuple[int, int] | None:
    shift_us = 0
    while e.kind != "AttributeReference":
        parts = shifted(e)
        if parts is None:
            return None
        e, by_us = parts
        shift_us += by_us
    assert e.expr_id is not None
    return e.expr_id, shift_us


def _union(node: Node, below: list[OperatorBounds]) -> OperatorBounds:
    bounds: dict[int, BoundOrUnknown] = {}
    for position, column in enumerate(node.output):
        parts = []
        for child, f in zip(node.children, below):
            of_child = child.output[position]
            missing = Unknown(f"{of_child.name} of a united stream is not an event time that a watermark follows")
            parts.append(f.bounds.get(of_child.expr_id, missing))
        bounds[column.expr_id] = weakest(parts)
    return OperatorBounds(bounds, least_watermark(below))


def _program(node: Node, below: list[OperatorBounds]) -> OperatorBounds:
    why = f"it is made by the program in {node.kind}, which can give any time"
    bounds: dict[int, BoundOrUnknown] = {column.expr_id: Unknown(why) for column in node.output}
    # In Spark there is no watermark behind (flat)mapGroupsWithState, nor behind a processor in processing time.
    goes_on = node.kind.startswith("TransformWithState") and node.details.get("time") != "ProcessingTime"
    return OperatorBounds(bounds, least_watermark(below) if goes_on else None)


def _declared_event_time(node: Node, below: list[OperatorBounds]) -> OperatorBounds:
    """Apply eventTimeColumnName= of transformWithState: a row at or below the watermark makes Spark end the query."""
    expr_id, lag_us = int(node.details["expr_id"]), below[0].watermark_lag_us
    bound: BoundOrUnknown
    if lag_us is None or isinstance(lag_us, Unknown):
        bound = lag_us or Unknown("there is no watermark before the stateful processor")
    else:
        name = _name(node, expr_id)
        reason = f"{name} is the event time of a stateful processor: Spark refuses a row at or below the watermark"
        bound = Bound(lag_us, True, True, reason)
    return OperatorBounds({**below[0].bounds, expr_id: bound}, lag_us)


_OPERATORS: Final[dict[str, Callable[[Node, list[OperatorBounds]], OperatorBounds]]] = {
    "EventTimeWatermark": _watermark,
    "UpdateEventTimeWatermarkColumn": _declared_event_time,
    "Project": _project,
    "Expand": _project,
    "Aggregate": _aggregate,
    "Deduplicate": _deduplicate,
    "DeduplicateWithinWatermark": _deduplicate,
    "Join": _join,
    "Union": _union,
    **dict.fromkeys(STATEFUL_PROGRAMS, _program),
}
