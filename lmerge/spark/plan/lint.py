"""The lint: finds values in a plan that would differ between replicas, and suggests what to use instead.

A value that is not the same everywhere does harm only where it reaches a published column or a decision (a filter, a
group, a join). So the lint follows such values upwards through the plan from where they are made. It drops those that
are cured on the way (``array_sort`` over collect_list, ``count``) or projected away. It reports each of the rest once,
with the place where it is made and the place where it matters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lmerge.spark.plan.keys import key_of
from lmerge.spark.plan.lateness import PASSING, STATEFUL_PROGRAMS
from lmerge.spark.plan.lint_rules import (
    CODES,
    ERROR,
    FILE,
    ROUNDED_FLOAT,
    UDF,
    WARNING,
    ZONED_SOURCE,
    Rule,
    is_udf,
    rule_for,
    what_remains,
)
from lmerge.spark.plan.tree import WATERMARKS, Expr, Node, read_plan

# Expressions are cut to this length in messages.
SQL_CHARACTERS_MAX: Final = 160


class LintWarning(UserWarning):
    """A value of a plan may differ on another replica."""


@dataclass(frozen=True)
class Finding:
    """What the lint found. ``severity``: one of its code's. ``sql``: the expression in SQL, ``where``: its place."""

    severity: str
    code: str
    problem: str
    sql: str = ""
    where: str = ""
    instead: str = ""

    def __post_init__(self) -> None:
        assert self.severity in CODES[self.code].severities, self

    def __str__(self) -> str:
        what = f"{self.sql} in {self.where}: " if self.sql and self.where else f"{self.where}: " if self.where else ""
        return f"{self.severity} [{self.code}] {what}{self.problem}. Instead: {self.instead}"


class _Taint(NamedTuple):
    """A value that is not the same on every replica, and where it was made."""

    rule: Rule
    sql: str
    where: str


_Taints = frozenset[_Taint]
_FILE_COLUMN: Final = "_metadata"
_NONE: Final[_Taints] = frozenset()


def lint(
    df: Any,
    mode: str = "append",
    *,
    round_digits: Collection[str] = (),
    allow: Collection[str] = (),
    keys: Collection[str] = (),
) -> list[Finding]:
    """Return what in the plan of ``df`` cannot be replicated, errors first. ``allow``: codes that are not reported.

    ``round_digits``: the columns that are published rounded. ``keys``: declared by hand, for update mode.
    Raises UsageError if the plan cannot be read (Spark Connect).
    """
    found = lint_plan(read_plan(df), mode, round_digits=round_digits, keys=keys)
    return [finding for finding in found if finding.code not in allow]


def lint_plan(
    root: Node, mode: str = "append", *, round_digits: Collection[str] = (), keys: Collection[str] = ()
) -> list[Finding]:
    """Return the same for a plan that was read."""
    walk = _Walk()
    reaching = walk.follow(root)
    for column in root.output:
        for taint in _sorted(reaching.get(column.expr_id, _NONE)):
            is_rounded = taint.rule.soft is ROUNDED_FLOAT and column.name in round_digits
            shown = taint._replace(rule=ROUNDED_FLOAT) if is_rounded else taint
            walk.report(shown, f"and reaches the published column {column.name!r}")
    found = [*_operators(root), *walk.found.values()]
    if mode == "update":
        found += _revisions(root, keys)
    return sorted(dict.fromkeys(found), key=lambda finding: finding.severity != ERROR)


class _Walk:
    """Follows values upwards. ``found``: the first place where each of them matters."""

    def __init__(self) -> None:
        self.found: dict[_Taint, Finding] = {}

    def report(self, taint: _Taint, use: str) -> None:
        rule = taint.rule
        problem = rule.problem if rule.code.startswith("udf") else f"{rule.problem}, {use}"
        self.found.setdefault(taint, Finding(rule.severity, rule.code, problem, taint.sql, taint.where, rule.instead))

    def follow(self, node: Node) -> dict[int, _Taints]:
        """Return the taints of the columns of ``node``."""
        of_file = _Taint(FILE, _FILE_COLUMN, node.kind)
        below = {column.expr_id: frozenset({of_file}) for column in node.output if column.of_file and not node.children}
        for child in node.children:
            below |= self.follow(child)
        for e in node.all_exprs():
            self._udfs(e, node)
        if node.kind in ("Project", "Expand", "Aggregate"):
            return self._made(node, below)
        if node.kind == "Union":
            return {
                column.expr_id: _NONE.union(*(below.get(child.output[i].expr_id, _NONE) for child in node.children))
                for i, column in enumerate(node.output)
            }
        own = _NONE.union(*(_taints(e, below, _place(node, e)) for e in node.all_exprs()))
        if node.kind in _DECIDING:
            self._use(own, _DECIDING[node.kind])
        elif node.kind not in PASSING | WATERMARKS and node.children:
            self._use(own.union(*below.values()), f"and goes into {node.kind}")
            return {}
        passed = {column.expr_id: below[column.expr_id] for column in node.output if column.expr_id in below}
        made = [column.expr_id for column in node.output if node.kind == "Generate" and column.expr_id not in below]
        return passed | dict.fromkeys(made, own)

    def _made(self, node: Node, below: Mapping[int, _Taints]) -> dict[int, _Taints]:
        for e in node.exprs.get("grouping", ()):
            self._use(_taints(e, below, _place(node, e)), "and decides to which group a row belongs")
        made: dict[int, _Taints] = {}
        for e in node.exprs["list"]:
            if e.expr_id is not None:
                made[e.expr_id] = made.get(e.expr_id, _NONE) | _taints(e, below, _place(node, e))
        return made

    def _use(self, taints: _Taints, use: str) -> None:
        for taint in _sorted(taints):
            self.report(taint, use)

    def _udfs(self, e: Expr, node: Node) -> None:
        # Code is reported wherever it runs, because it can also fail, or have effects.
        for part in e.walk():
            if is_udf(part):
                rule = rule_for(part) or UDF
                self.report(_Taint(rule, _short(part.sql), _place(node, e)), "")


_DECIDING: Final = {
    "Filter": "and decides which rows pass a filter",
    "Join": "and decides which rows are joined",
    "Deduplicate": "and decides which rows are duplicates",
    "DeduplicateWithinWatermark": "and decides which rows are duplicates",
    "RepartitionByExpression": "and decides where a row goes",
}


def _taints(e: Expr, below: Mapping[int, _Taints], where: str) -> _Taints:
    if e.kind == "AttributeReference":
        return below.get(e.expr_id if e.expr_id is not None else -1, _NONE)
    inner = _NONE.union(*(_taints(child, below, where) for child in e.children))
    if e.meaning is not None:
        inner = frozenset(t if t in inner else t._replace(sql=_short(e.sql)) for t in _taints(e.meaning, below, where))
    remains = ((taint, what_remains(e, taint.rule)) for taint in inner)
    kept = frozenset(taint._replace(rule=rule) for taint, rule in remains if rule is not None)
    if e.kind == "GetStructField":  # which of the file's attributes it is
        kept = frozenset(t._replace(sql=e.sql, where=where) if t.sql == _FILE_COLUMN else t for t in kept)
    rule = rule_for(e)
    return kept if rule is None or rule.code == "udf" else kept | {_Taint(rule, _short(e.sql), where)}


def _sorted(taints: Iterable[_Taint]) -> list[_Taint]:
    return sorted(taints, key=lambda taint: (taint.where, taint.sql))


def _short(sql: str) -> str:
    return sql if len(sql) <= SQL_CHARACTERS_MAX else f"{sql[:SQL_CHARACTERS_MAX]}..."


def _place(node: Node, e: Expr) -> str:
    return f"column {e.name!r} of {node.kind}" if e.kind == "Alias" else node.kind


# operators ------------------------------------------------------------------------------------------------------------

_READABLE_KINDS: Final = (
    PASSING
    | STATEFUL_PROGRAMS
    | {
        "Project",
        "Expand",
        "Aggregate",
        "Union",
        "Join",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "EventTimeWatermark",
        "UpdateEventTimeWatermarkColumn",
        "WithCTE",
        "CTERelationDef",
        "CTERelationRef",
        "AppendColumns",
        "DeserializeToObject",
        "SerializeFromObject",
    }
)


def _operators(root: Node) -> Iterator[Finding]:
    for node in root.walk():
        if not node.streaming:
            continue
        if not node.children:
            yield from _source(node)
        elif node.kind in STATEFUL_PROGRAMS:
            yield _program(node)
        elif node.kind in ("GlobalLimit", "Offset", "Tail"):
            problem = "keeps as many rows as happen to come first"
            yield Finding(ERROR, "limit", problem, where=node.kind, instead="a filter, or an aggregation such as max")
        elif node.kind == "Sample":
            problem = "draws its sample from the partitions as they lie"
            yield Finding(ERROR, "sample", problem, where=node.kind, instead="a filter on a hash of the row's key")
        elif node.kind.startswith("Deduplicate"):
            yield from _deduplication(node)
        elif node.kind == "Join" and not all(child.streaming for child in node.children):
            problem = "joins the stream with a table, whose content can differ when another replica reads it"
            instead = 'a table that never changes (then allow=("static-join",)), or a stream of its changes'
            yield Finding(WARNING, "static-join", problem, _condition(node), node.kind, instead)
        elif node.kind not in _READABLE_KINDS:
            yield Finding(WARNING, UDF.code, UDF.problem, where=node.kind, instead=UDF.instead)
        yield from _subqueries(node)


def _condition(node: Node) -> str:
    return _short(" AND ".join(e.sql for e in node.exprs.get("condition", ())))


def _subqueries(node: Node) -> Iterator[Finding]:
    for e in node.all_exprs():
        for part in e.walk():
            if part.kind in ("ScalarSubquery", "ListQuery", "Exists", "InSubquery"):
                problem = "reads a table, whose content can differ when another replica reads it"
                place = _place(node, e)
                yield Finding(WARNING, "static-join", problem, _short(part.sql), place, "a literal, or a stream")


def _program(node: Node) -> Finding:
    if node.details.get("time", "").startswith("ProcessingTime"):
        problem = "runs in processing time: its timers and timeouts follow the clock of the machine"
        return Finding(ERROR, "processing-time", problem, where=node.kind, instead="timeMode EventTime, or no timeout")
    return Finding(WARNING, UDF.code, UDF.problem, where=node.kind, instead=UDF.instead)


def _deduplication(node: Node) -> Iterator[Finding]:
    keys = node.exprs["keys"]
    sql = ", ".join(e.name for e in keys)
    if node.kind == "DeduplicateWithinWatermark":
        problem = "forgets a key by the watermark, so whether a late duplicate is dropped depends on where batches end"
        instead = "dropDuplicates with the event time among its columns, if duplicates agree in it"
        yield Finding(WARNING, "dedup-within-watermark", problem, sql, node.kind, instead)
    elif not any(column.delay_ms is not None for e in keys if (column := node.column(e.expr_id))):
        problem = "has no event time with a watermark among its columns, so it remembers every key for ever"
        instead = "withWatermark, and the event time as one column"
        yield Finding(WARNING, "dedup-state", problem, sql, node.kind, instead)
    if {e.expr_id for e in keys} < {column.expr_id for column in node.output}:
        problem = "keeps, of rows equal in these columns, the one that came first, with all its other columns"
        instead = 'all columns that can differ as well, or allow=("dedup-first",) where duplicates are equal in all'
        yield Finding(WARNING, "dedup-first", problem, sql, node.kind, instead)


# Formats of files that hold timestamps as text.
_TEXTS: Final = frozenset({"json", "csv", "xml"})


def _source(node: Node) -> Iterator[Finding]:
    name = node.details.get("source", "").lower()
    where = f"{node.kind} {name}".strip()
    if name in ("rate", "socket", "text-socket"):
        problem = (
            "generates other rows for every replica"
            if name == "rate"
            else ("gives a row to one reader only, and can give it only once")
        )
        yield Finding(ERROR, "source", problem, name, where, "a source that can be read again, such as Kafka or files")
    texts = node.details.get("format", "").lower()
    zone = node.details.get("machine zone")
    if zone and texts in _TEXTS and "timezone" not in node.details:
        timed = [column.name for column in node.output if "timestamp" in column.type and not column.of_file]
        if timed:
            rule = ZONED_SOURCE
            yield Finding(rule.severity, rule.code, f"{rule.problem}, {zone}", ", ".join(timed), where, rule.instead)
    if name == "kafka" and node.details.get("startingoffsets", "latest").lower() == "latest":
        problem = "starts at whatever is latest when a replica first starts, so replicas begin with other rows"
        instead = "startingOffsets earliest, or offsets or timestamps, the same on every replica"
        yield Finding(WARNING, "source-start", problem, "startingOffsets = latest", where, instead)
    if name == "kafka" and node.details.get("failondataloss", "true").lower() == "false":
        problem = "continues where rows are lost, so a replica can miss rows that another has"
        yield Finding(WARNING, "source-loss", problem, "failOnDataLoss = false", where, "failOnDataLoss true")


# update mode ----------------------------------------------------------------------------------------------------------


def _revisions(root: Node, keys: Collection[str]) -> Iterator[Finding]:
    """Return findings above the aggregation whose rows are revised. The sink receives only what still comes out."""
    node, above = root, []
    while node.kind != "Aggregate" and len(node.children) == 1:
        above.append(node)
        node = node.children[0]
    if node.kind == "Join":
        problem = "joins revised rows: a revision that is no longer joined is never published"
        yield Finding(ERROR, "update-join", problem, _condition(node), node.kind, "join before the aggregation")
    elif node.kind == "Aggregate" and node.streaming:
        for operator in above:
            yield from _above_revisions(operator)
        lost = [] if keys else key_of(root).lost
        if lost:
            problem = "drops what identifies revised rows, so it is unknown which row is revised"
            instead = "keep the grouping columns (of a window its start or end) in what is published"
            yield Finding(ERROR, "update-key", problem, ", ".join(lost), "the columns", instead)
    elif not keys:
        problem = "publishes revisions, but no aggregation defines by what a row is revised"
        instead = "groupBy(...).agg(...), keys=, or mode append"
        yield Finding(ERROR, "update-key", problem, where="the plan", instead=instead)


def _above_revisions(node: Node) -> Iterator[Finding]:
    if node.kind == "Filter":
        identity = frozenset().union(*(part.ids for part in key_of(node.children[0]).parts or ()))
        condition = node.exprs["condition"]
        if not frozenset().union(*(e.refs for e in condition)) <= identity:
            problem = "filters revised rows: one that passed, and after a revision does not, is never taken back"
            instead = "filter before the aggregation, or on its grouping columns, or downstream of the merge"
            yield Finding(ERROR, "update-filter", problem, _condition(node), node.kind, instead)
    elif node.kind in ("Generate", "Expand"):
        problem = "makes several rows from a revised one, and a revision can make other rows"
        yield Finding(ERROR, "update-explode", problem, where=node.kind, instead="explode before the aggregation")
    elif node.kind in ("Repartition", "RepartitionByExpression", "RebalancePartitions"):
        problem = "moves revised rows between partitions, but one writer must receive all revisions of a row"
        instead = "no repartition and no coalesce after the aggregation"
        yield Finding(ERROR, "update-partitions", problem, node.details.get("text", ""), node.kind, instead)
