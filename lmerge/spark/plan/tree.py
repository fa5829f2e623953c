"""Reads a streaming DataFrame's logical plan into a small tree of plain values.

The analyzed plan is read once, through py4j. Everything after that (``bounds``, ``keys``, ``lint``) is Python on this
tree and can be tested without Spark. The analyzed plan is used and not the optimized one, because it holds what the
user wrote, with all names and types resolved, and does not change with the optimizer.

An attribute has an ``expr_id`` that is the same wherever the plan mentions it. Spark marks the column that a watermark
follows in the attribute's metadata (``EventTimeWatermark.delayKey``), and windows as well. Spark's own operators find
their event time by that mark, and so does this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

from lmerge.errors import UsageError

DELAY_KEY: Final = "spark.watermarkDelayMs"
WINDOW_KEY: Final = "spark.timeWindow"
SESSION_KEY: Final = "spark.sessionWindow"
# The hidden column of a source of files, with a file's path, name, size and time of change.
FILE_KEY: Final = "__file_source_metadata_col"
ZONE: Final = "spark.sql.session.timeZone"

# Operators whose output rows are input rows, each at most once, in any order.
ROWS_KEPT: Final = frozenset(
    {
        "Filter",
        "SubqueryAlias",
        "View",
        "ResolvedHint",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "Sort",
        "LocalLimit",
        "GlobalLimit",
        "Limit",
        "Offset",
        "Sample",
        "CollectMetrics",
    }
)
WATERMARKS: Final = frozenset({"EventTimeWatermark", "UpdateEventTimeWatermarkColumn"})

# The most expression nodes that are read of one plan. Each needs a call into the JVM, a fraction of a millisecond. A
# plan with more was made by a program, not a person.
EXPRESSIONS_MAX: Final = 50_000

# The parts of OVER (...) have no type. They throw when it is read.
_UNTYPED: Final = frozenset({"WindowSpecDefinition", "SpecifiedWindowFrame", "UnboundedPreceding$", "CurrentRow$"})

# What a user must declare where no plan can be read.
_BY_HAND: Final = {
    "properties": "what the stream promises, such as ('insert-only', 'key'), or () for nothing",
    "stable_lag": "how far below the watermark a row can still come out, such as '1 minute' for windows of a minute "
    "that begin at vs",
    "keys": "the columns that identify the rows of one event",
}


@dataclass(frozen=True)
class PlanColumn:
    """One output column of an operator. ``delay_ms``: of the watermark that follows it, None without one."""

    expr_id: int
    name: str
    type: str
    delay_ms: int | None = None
    window: str = ""  # "time", "session", or ""
    of_file: bool = False  # describes the file that a row is in


@dataclass(frozen=True)
class Expr:
    """One expression node. ``kind`` is Spark's class name, ``sql`` its text in SQL, ``value`` that of a literal.

    ``zoned``: Spark gives it the session's time zone. ``meaning``: the expression that Spark puts in its place, where
    it is only another name: ``to_timestamp(x)`` for a cast, ``regr_avgx`` for an average.
    """

    kind: str
    name: str
    sql: str
    type: str
    children: tuple[Expr, ...] = ()
    expr_id: int | None = None
    deterministic: bool = True
    value: int | str | None = None
    zoned: bool = False
    meaning: Expr | None = None

    def walk(self) -> Iterator[Expr]:
        """Return this node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def refs(self) -> frozenset[int]:
        """The ids of the attributes that it mentions."""
        return frozenset(e.expr_id for e in self.walk() if e.kind == "AttributeReference" and e.expr_id is not None)


@dataclass(frozen=True)
class Node:
    """One operator. ``exprs``: its expressions by role (``list``, ``grouping``, ``keys``, ``condition``, ...)."""

    kind: str
    children: tuple[Node, ...]
    output: tuple[PlanColumn, ...]
    streaming: bool
    exprs: Mapping[str, tuple[Expr, ...]] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)

    def walk(self) -> Iterator[Node]:
        """Return this operator and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def all_exprs(self) -> Iterator[Expr]:
        """Return its expressions, roots only."""
        for group in self.exprs.values():
            yield from group

    def column(self, expr_id: int | None) -> PlanColumn | None:
        """Return the output column of that id, or None."""
        return next((column for column in self.output if column.expr_id == expr_id), None)


def read_plan(df: Any) -> Node:
    """Return the analyzed plan of ``df``. Raises UsageError if this process has no plan of it (Spark Connect)."""
    jdf = _jdf(df)
    return _Reader(df.sparkSession).node(jdf.queryExecution().analyzed())


def unsupported(df: Any, output_mode: str) -> str | None:
    """Return Spark's reason not to start the query in that output mode; None: it would start it.

    With Spark Connect this cannot be checked, and the answer is None.
    """
    if is_connect(df):
        return None
    from pyspark.errors import AnalysisException

    jvm = df.sparkSession._jvm  # noqa: SLF001
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, output_mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(_jdf(df).queryExecution().analyzed(), mode)
    except AnalysisException as problem:
        return str(problem).partition(";\n")[0].strip()
    return None


def is_connect(df: Any) -> bool:
    """Whether ``df`` belongs to a Spark Connect session, whose plans stay at the server."""
    return type(df).__module__.startswith("pyspark.sql.connect")


def refuse_connect(missing: Sequence[str] = ("properties", "stable_lag")) -> NoReturn:
    """Raise UsageError with what to declare where no plan can be read. ``missing``: what was not declared."""
    needed = "; ".join(f"{name}=, {_BY_HAND[name]}" for name in missing)
    raise UsageError(
        "reading the plan of a DataFrame: this is a Spark Connect session, where the plan stays at the server and "
        f"cannot be read; declare by hand what would have been derived from it: {needed}"
    )


def _jdf(df: Any) -> Any:
    if is_connect(df):
        refuse_connect()
    jdf = getattr(df, "_jdf", None)
    if jdf is None:
        raise UsageError(f"reading the plan of a DataFrame: {type(df).__name__} is not a pyspark.sql.DataFrame")
    return jdf


class _Reader:
    """Reads JVM plans into nodes. Scala collections are read through their iterators."""

    def __init__(self, session: Any) -> None:
        self._read = 0
        catalyst = session._jvm.org.apache.spark.sql.catalyst  # noqa: SLF001
        self._cast = getattr(getattr(catalyst.expressions, "Cast$"), "MODULE$")
        class_of = session._jvm.java.lang.Class.forName  # noqa: SLF001
        self._zone_aware = class_of("org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression")
        self._replaceable = class_of("org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable")
        self._kinds: dict[str, tuple[bool, bool]] = {}  # zone aware, replaceable
        is_set = session._jsparkSession.sessionState().conf().contains(ZONE)  # noqa: SLF001
        self._machine_zone = "" if is_set else str(session.conf.get(ZONE))
        self._shared: dict[str, Node] = {}  # the relations defined by WITH

    # operators ----------------------------------------------------------------------------------------------------

    def node(self, plan: Any) -> Node:
        kind = plan.getClass().getSimpleName()
        if kind == "WithCTE":
            for one in _seq(plan.cteDefs()):
                self._shared[str(one.id())] = self.node(one.child())
            return self.node(plan.plan())
        if kind == "CTERelationRef":
            return self._put_in_place(plan)
        children = tuple(self.node(child) for child in _seq(plan.children()))
        exprs = self._roles(kind, plan)
        return Node(kind, children, self._output(plan), bool(plan.isStreaming()), exprs, self._details(kind, plan))

    def _put_in_place(self, plan: Any) -> Node:
        """Return the relation of a WITH in place of its name, like a view. A second use has column ids of its own."""
        shared = self._shared[str(plan.cteId())]
        output = self._output(plan)
        renamed = tuple(
            Expr(
                "Alias",
                new.name,
                old.name,
                old.type,
                (Expr("AttributeReference", old.name, old.name, old.type, expr_id=old.expr_id),),
                new.expr_id,
            )
            if old.expr_id != new.expr_id
            else Expr("AttributeReference", old.name, old.name, old.type, expr_id=old.expr_id)
            for old, new in zip(shared.output, output)
        )
        return Node("Project", (shared,), output, shared.streaming, {"list": renamed})

    def _output(self, plan: Any) -> tuple[PlanColumn, ...]:
        # One call gives all names, types and metadata, but no ids.
        fields = json.loads(plan.schema().json())["fields"]
        ids = [attribute.exprId().id() for attribute in _seq(plan.output())]
        return tuple(_column(expr_id, described) for expr_id, described in zip(ids, fields))

    def _roles(self, kind: str, plan: Any) -> dict[str, tuple[Expr, ...]]:
        if kind == "Aggregate":
            return {"grouping": self._all(plan.groupingExpressions()), "list": self._all(plan.aggregateExpressions())}
        if kind == "Project":
            return {"list": self._all(plan.projectList())}
        if kind == "Expand":
            return {"list": tuple(self._projections(plan))}
        if kind in ("Filter", "Join"):
            return {"condition": self._all(plan.expressions())}
        if kind in ("Deduplicate", "DeduplicateWithinWatermark"):
            return {"keys": self._all(plan.keys())}
        return {"other": self._all(plan.expressions())}

    def _projections(self, plan: Any) -> Iterator[Expr]:
        """Return the columns of an Expand, one by one. Of many overlapping windows only the first is returned."""
        columns = self._output(plan)
        for number, projection in enumerate(_seq(plan.projections())):
            for column, expression in zip(columns, _seq(projection)):
                if number == 0 or not column.window:
                    yield Expr("Alias", column.name, column.name, column.type, (self.expr(expression),), column.expr_id)

    def _details(self, kind: str, plan: Any) -> dict[str, str]:
        if kind == "Join":
            return {"type": str(plan.joinType().toString())}
        if kind == "EventTimeWatermark":
            return {"delay": str(plan.delay().toString()), "expr_id": str(plan.eventTime().exprId().id())}
        if kind == "UpdateEventTimeWatermarkColumn":
            return {"expr_id": str(plan.eventTime().exprId().id())}
        if kind in ("Repartition", "RepartitionByExpression", "RebalancePartitions"):
            return {"text": str(plan.simpleString(200))}
        if kind.startswith("TransformWithState"):
            return {"time": str(plan.timeMode().toString())}
        if kind.startswith("FlatMapGroups") and "State" in kind:
            return {"time": str(plan.timeout().toString())}
        if kind == "StreamingRelationV2":
            return self._source(plan) | _java_map(plan.extraOptions())
        if kind == "StreamingRelation":
            return (
                self._source(plan)
                | {"format": str(plan.dataSource().className())}
                | _scala_map(plan.dataSource().options())
            )
        return {}

    def _source(self, plan: Any) -> dict[str, str]:
        """Return the source's name, and as ``machine zone`` the session's time zone if it was not set."""
        found = {"source": str(plan.sourceName())}
        return found | {"machine zone": self._machine_zone} if self._machine_zone else found

    # expressions --------------------------------------------------------------------------------------------------

    def _all(self, expressions: Any) -> tuple[Expr, ...]:
        return tuple(self.expr(expression) for expression in _seq(expressions))

    def expr(self, e: Any, deterministic: bool | None = None) -> Expr:
        """Return ``e`` and all below it. If it is deterministic, so are all below it, which saves most calls."""
        self._read += 1
        if self._read > EXPRESSIONS_MAX:
            raise UsageError(f"reading the plan of a DataFrame: it has more than {EXPRESSIONS_MAX} expressions")
        kind = str(e.getClass().getSimpleName())
        type_name = "" if kind in _UNTYPED else str(e.dataType().catalogString())
        if kind == "AttributeReference":
            name = str(e.name())
            return Expr(kind, name, name, type_name, expr_id=e.exprId().id())
        if kind == "Literal":
            return Expr(kind, "literal", _sql(e), type_name, value=self._literal(e, type_name))
        sure = bool(e.deterministic()) if deterministic is None else deterministic
        children = tuple(self.expr(child, True if sure else None) for child in _seq(e.children()))
        if kind == "With":  # BETWEEN: the compared expression once, and references to it
            return _put_in(children[0], {common.name: common.children[0] for common in children[1:]})
        name, expr_id, own = str(e.prettyName()), None, sure
        if kind == "Alias":
            name, expr_id = str(e.name()), e.exprId().id()
        elif kind in ("CommonExpressionDef", "CommonExpressionRef"):
            name = str(e.id().id())
        elif kind == "GetStructField":
            name = str(e.extractFieldName())
        elif kind in ("PythonUDF", "PythonUDAF", "PythonUDTF"):
            name, own = str(e.name()), bool(e.udfDeterministic())
        if kind not in self._kinds:
            self._kinds[kind] = bool(self._zone_aware.isInstance(e)), bool(self._replaceable.isInstance(e))
        zoned, replaceable = self._kinds[kind]
        if zoned and kind == "Cast":
            zoned = bool(self._cast.needsTimeZone(e.child().dataType(), e.dataType()))
        meaning = self.expr(e.replacement(), True if sure else None) if replaceable else None
        return Expr(kind, name, _sql(e), type_name, children, expr_id, own, zoned=zoned, meaning=meaning)

    def _literal(self, e: Any, type_name: str) -> int | str | None:
        value = e.value()
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if type_name == "interval":  # CalendarInterval: months and days have no fixed length
            if not value.extractAsPeriod().isZero():
                return None
            rest = value.extractAsDuration()
            return int(rest.getSeconds()) * 1_000_000 + int(rest.getNano()) // 1_000
        return str(value)


def _put_in(e: Expr, common: Mapping[str, Expr]) -> Expr:
    """Return ``e`` with its references replaced by the expressions to which they refer."""
    if e.kind == "CommonExpressionRef":
        return common.get(e.name, e)
    return replace(e, children=tuple(_put_in(child, common) for child in e.children))


def _seq(items: Any) -> Iterator[Any]:
    iterator = items.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _column(expr_id: int, described: Mapping[str, Any]) -> PlanColumn:
    marks = described.get("metadata") or {}
    kind = described["type"]
    name = kind if isinstance(kind, str) else str(kind.get("type", ""))
    window = "session" if SESSION_KEY in marks else "time" if WINDOW_KEY in marks else ""
    return PlanColumn(expr_id, described["name"], name, marks.get(DELAY_KEY), window, bool(marks.get(FILE_KEY)))


def _sql(e: Any) -> str:
    return str(e.sql()).replace("`", "")


def _java_map(options: Any) -> dict[str, str]:
    return {str(name).lower(): str(options.get(name)) for name in options}


def _scala_map(options: Any) -> dict[str, str]:
    return {str(pair._1()).lower(): str(pair._2()) for pair in _seq(options)}  # noqa: SLF001
