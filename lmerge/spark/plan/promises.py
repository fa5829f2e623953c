"""Derives from its plan what a streaming DataFrame may promise as a replica (IV.G), and explains it.

Three things follow from the plan: the properties of III.C that the published stream has, how far its stable point must
stay behind the watermark (``lateness``), and which values would differ on another replica (``lint``).

**Why no stream is ordered.** Partitions are written in parallel, and the rows of a batch have no order. So neither Vs
nor ties have an order, in any query. Only insert-only and key are left: R3 with a key, R4 without.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lmerge.core import properties as props
from lmerge.core.properties import INSERT_ONLY, KEY, PROPERTY_NAMES, Properties, choose, parse_properties
from lmerge.errors import UsageError
from lmerge.spark.arguments import Payload
from lmerge.spark.options import APPEND, INTERVALS, UPDATE
from lmerge.spark.plan.bounds import NEVER, Bound, Unknown, duration, weakest
from lmerge.spark.plan.keys import Key, carriers, key_of, lie_together
from lmerge.spark.plan.lateness import is_stateful, operator_bounds
from lmerge.spark.plan.lint import Finding, LintWarning, lint_plan
from lmerge.spark.plan.lint_rules import CODES, ERROR, UNREAD, WARNING, is_skip
from lmerge.spark.plan.tree import Node, is_connect, read_plan, refuse_connect

# Column names for the lifetime where it is given as an expression.
_VS: Final = "lmerge_vs"
_VE: Final = "lmerge_ve"
_ALL_COLUMNS: Final = Payload()


@dataclass(frozen=True)
class StableRule:
    """How far the stable point stays behind the watermark that a batch ran with.

    ``exact``: Spark itself drops, or refuses, rows below it, so one that comes is a defect; otherwise such rows can
    come and are dropped. ``strict``: rows come out strictly above it, so the stable could be a microsecond later.
    """

    lag_us: int
    exact: bool
    reason: str
    strict: bool = False

    @property
    def distance_us(self) -> int:
        """How far the stable after a batch lies below the watermark that the batch ran with."""
        return self.lag_us - (1 if self.strict else 0)


@dataclass(frozen=True)
class PlanFacts:
    """What a plan may promise, with reasons. ``stable`` None: it cannot be derived, for the reason ``stable_why``.

    ``keys``: the columns that identify rows, by which an update replaces one (None: there are none). ``skips``: the
    query leaves out events that servers do not need any more (``skip_to``). ``gathered``: rows that agree in ``keys``
    come out of one partition.
    """

    mode: str
    properties: Properties
    reasons: tuple[str, ...]
    stable: StableRule | None
    stable_why: str
    keys: tuple[str, ...] | None
    stateful: bool
    findings: tuple[Finding, ...] = ()
    skips: bool = False
    gathered: bool = False

    def explain(self) -> str:
        """Return all of it as text."""
        promised = [name for name in PROPERTY_NAMES if name in self.properties]
        choice = choose({"this query": self.properties})
        lines = [f"Published in mode {self.mode}, this query promises: {', '.join(promised) or 'nothing'}"]
        lines += [f"  {reason}" for reason in self.reasons]
        lines += [f"  so the merge can run {choice.case.algorithm} ({choice.reason})", ""]
        lines += ["The stable point"]
        if self.stable is None:
            lines += ["  cannot be derived: declare it with stable_lag=", f"  {self.stable_why}"]
        else:
            how = "Spark lets no row out below it" if self.stable.exact else "a row below it is dropped and counted"
            behind = f", less {duration(self.stable.lag_us)}" if self.stable.lag_us else ""
            lines += [f"  after each batch: the watermark that it ran with{behind}; {how}", f"  {self.stable.reason}"]
        if self.stateful:
            lines.append(
                "  each replica drops rows later than the watermark, and its batches end at other rows: give the "
                "watermark a delay that hardly any row exceeds"
            )
        if self.skips:
            lines += ["", "When servers report that it is behind, it leaves out what they no longer need (skip_to)"]
        lines += ["", f"What may differ between replicas: {len(self.findings) or 'nothing was found'}"]
        return "\n".join(lines + [f"  {finding}" for finding in self.findings])


def explain_plan(
    df: Any,
    vs: Any,
    ve: Any = None,
    mode: str = APPEND,
    *,
    keys: Sequence[str] | None = None,
    payload: Payload = _ALL_COLUMNS,
    stable_lag_us: int | None = None,
    properties: Iterable[str] | None = None,
) -> PlanFacts:
    """Return what ``df`` may promise, published in ``mode`` with these ``vs`` and ``ve`` (columns, or expressions).

    ``payload``: its columns, by default all but those of vs and ve, and their rounding. ``stable_lag_us`` and
    ``properties``: declared by the user; they replace what is derived. Raises UsageError if the plan cannot be read and
    they are missing.
    """
    if mode not in (APPEND, UPDATE, INTERVALS):
        raise UsageError(f"explaining a plan: mode is {mode!r:.40}; it is append, update or intervals")
    declared = None if properties is None else props.closure(parse_properties(properties))
    rule = None if stable_lag_us is None else StableRule(stable_lag_us, False, "as declared by stable_lag")
    if is_connect(df):
        return _declared(mode, declared, rule, keys)
    df, vs_name, ve_name = _with_times(df, vs, ve)
    root = read_plan(df)
    names = _payload(root, payload.columns, (vs_name, ve_name))
    found = lint_plan(root, mode, round_digits=_rounded(root, payload.round_digits), keys=keys or ())
    key = key_of(root)
    promised, reasons = _promises(root, key, mode, vs_name, names, keys)
    if declared is not None:
        promised, reasons = declared, ["as declared by properties="]
    derived = _stable_rule(root, vs_name, ve_name, mode)
    why = derived.why if isinstance(derived, Unknown) else ""
    if rule is None and isinstance(derived, StableRule):
        rule = derived
    if rule is None:
        instead = "stable_lag=, how far below the watermark a row can still come out"
        found.insert(0, Finding(ERROR, "stable", why, vs_name, "the published columns", instead))
    stateful = any(is_stateful(node) for node in root.walk())
    identifying = tuple(keys) if keys is not None else _identifying_columns(root, key, (*names, vs_name, ve_name))
    skips = any(is_skip(part) for node in root.walk() for e in node.all_exprs() for part in e.walk())
    by_name = {column.name: column.expr_id for column in root.output}
    by_name |= {str(given): by_name[name] for given, name in ((vs, vs_name), (ve, ve_name)) if name is not None}
    gathered = lie_together(root, [by_name[name] for name in identifying or () if name in by_name])
    return PlanFacts(mode, promised, tuple(reasons), rule, why, identifying, stateful, tuple(found), skips, gathered)


def explain(df: Any, vs: Any, ve: Any = None, mode: str = APPEND, **declared: Any) -> str:
    """Return as text what publishing ``df`` would promise, why, and what may differ between replicas.

    Arguments as for ``explain_plan``.
    """
    return explain_plan(df, vs, ve, mode, **declared).explain()


def check(
    df: Any, vs: Any, ve: Any = None, mode: str = APPEND, *, allow: Collection[str] = (), **declared: Any
) -> PlanFacts:
    """Check a query that is about to start, and return ``explain_plan`` of it.

    Errors of the lint raise UsageError, the rest are Python warnings (LintWarning). ``allow``: accepted codes.
    """
    unknown = [code for code in allow if code not in CODES]
    if unknown:
        raise UsageError(f"checking a plan: allow has {unknown[0]!r}; the codes are {', '.join(CODES)}")
    if "stable" in allow:
        raise UsageError(
            "checking a plan: allow has 'stable', and a stream without a stable point never becomes final, so its "
            "subscribers wait for ever: declare stable_lag=, how far below the watermark a row can still come out"
        )
    facts = explain_plan(df, vs, ve, mode, **declared)
    found = [finding for finding in facts.findings if finding.code not in allow]
    errors = [finding for finding in found if finding.severity == ERROR]
    if errors:
        lines = "\n".join(f"  {finding}" for finding in errors)
        codes = ", ".join(dict.fromkeys(f'"{finding.code}"' for finding in errors if finding.code != "stable"))
        accepted = f"\nTo accept what is intended: allow=({codes},)" if codes else ""
        raise UsageError(
            f"this query would not come out the same on every replica ({len(errors)} found):\n{lines}{accepted}"
        )
    for finding in found:
        warnings.warn(str(finding), LintWarning, stacklevel=3)
    return facts


def _declared(mode: str, promised: Properties | None, rule: StableRule | None, keys: Sequence[str] | None) -> PlanFacts:
    """Return what the user declared, where the plan cannot be read. Raises UsageError naming what is missing."""
    given = {"properties": promised, "stable_lag": rule, **({} if mode == APPEND else {"keys": keys})}
    missing = [name for name, value in given.items() if value is None]
    if promised is None or rule is None or missing:
        refuse_connect(missing)
    instead = f'lmerge.spark.explain() of the same query in a session that is not remote, or allow=("{UNREAD}",)'
    unread = Finding(WARNING, UNREAD, "stays at the server and was not checked", where="the plan", instead=instead)
    by_hand = None if keys is None else tuple(keys)
    return PlanFacts(
        mode, promised, ("as declared by properties=",), rule, "", by_hand, stateful=False, findings=(unread,)
    )


def _with_times(df: Any, vs: Any, ve: Any) -> tuple[Any, str, str | None]:
    """Return ``df`` with vs and ve as columns, which are added if need be, and their names."""
    from pyspark.sql import functions

    named: list[str | None] = []
    for name, given in ((_VS, vs), (_VE, ve)):
        if given is None or (isinstance(given, str) and given in df.columns):
            named.append(given)
            continue
        df = df.select("*", (functions.expr(given) if isinstance(given, str) else given).alias(name))
        named.append(name)
    assert named[0] is not None
    return df, named[0], named[1]


def _payload(root: Node, payload: Sequence[str] | None, times: Collection[str | None]) -> list[str]:
    names = [column.name for column in root.output]
    if payload is None:
        return [name for name in names if name not in times]
    missing = [name for name in payload if name not in names]
    if missing:
        raise UsageError(f"explaining a plan: payload has {missing[0]!r}; the columns are {', '.join(names)}")
    return list(payload)


def _rounded(root: Node, round_digits: int | Collection[str] | None) -> Collection[str]:
    if isinstance(round_digits, int):
        return [column.name for column in root.output]
    return round_digits or ()


def _identifying_columns(root: Node, key: Key, names: Sequence[str | None]) -> tuple[str, ...] | None:
    """Return the columns that identify rows, those of the payload before vs and ve."""
    by_name = {column.name: column.expr_id for column in root.output}
    order = {by_name[name]: name for name in reversed(names) if name is not None}
    found = carriers(key, [by_name[name] for name in names if name is not None])
    return None if found is None else tuple(dict.fromkeys(order[i] for i in found))


def _promises(
    root: Node, key: Key, mode: str, vs: str, payload: Sequence[str], keys: Sequence[str] | None
) -> tuple[Properties, list[str]]:
    promised, reasons = set(), []
    if mode == APPEND:
        promised.add(INSERT_ONLY)
        reasons.append("insert-only: append mode outputs a row once and never revises it")
    elif mode == UPDATE:
        reasons.append("not insert-only: update mode revises rows; the old event is taken back, the new one inserted")
    else:
        reasons.append("not insert-only: an open event gets its end later, or is taken back")
    reasons.append("not ordered: partitions are written in parallel, and rows of a batch have no order")
    ids = {column.expr_id for column in root.output if column.name in payload or column.name == vs}
    if mode != APPEND and keys is not None:
        if set(keys) <= {*payload, vs}:
            promised.add(KEY)
            reasons.append(f"key: one event at a time for each ({', '.join(keys)}), all in the payload or in vs")
        else:
            reasons.append(f"not key: not all of ({', '.join(keys)}) is in the payload or in vs")
    elif carriers(key, ids) is not None:
        promised.add(KEY)
        reasons.append(f"key: {key.reason}, and all of it is in the payload or in vs")
    else:
        missing = [part.name for part in key.parts or () if not part.ids & ids]
        lost = f"{key.reason}, but not all of it is in the payload or in vs: {', '.join(missing)}"
        reasons.append(f"not key: {lost if missing else key.reason}")
    return frozenset(promised), reasons


def _stable_rule(root: Node, vs: str, ve: str | None, mode: str) -> StableRule | Unknown:
    flow = operator_bounds(root)
    by_name = {column.name: column.expr_id for column in root.output}

    def bound_of_column(name: str) -> Bound | Unknown:
        missing = Unknown(f"{name} is not an event time that a watermark follows")
        return flow.bounds.get(by_name[name], missing)

    # A row of intervals has a start, which needs Vs >= Vc, or an end, which needs Ve >= Vc.
    both = mode == INTERVALS and ve is not None
    bound = weakest([bound_of_column(vs), bound_of_column(ve)]) if both and ve is not None else bound_of_column(vs)
    if isinstance(bound, Unknown):
        return bound
    if bound is NEVER:
        return Unknown(f"{vs} is always null")
    reason = (
        bound.reason
        if bound.exact
        else (f"{bound.reason}; nothing in the plan drops late rows, so one below the stable point can still come")
    )
    if both:
        reason += "; an event that is taken back after its start is below the stable point comes too late for that"
    # Vs can be later than the event time. The stable point still does not pass the watermark.
    return StableRule(max(0, bound.lag_us), bound.exact, reason, bound.strict and bound.exact)
