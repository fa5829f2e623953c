"""Rewrites of plans that keep the table: by name, shown by ``explain``, and for plans that differ only physically.

A rewrite is a rule for one node and what is below it: it returns another node with the same stream, or None where it
does not apply. ``rewrite`` applies rules from the sources up, and to what they make, until none applies. A filter that
goes below a node that several others read would have that node computed twice, so it stays above.

==================  ===================================================================================================
merge-filters       a filter over a filter is one filter
filter-below-...    a filter, or those of its conjuncts for which that is so, comes before what does not depend on it:
...select           columns that are taken as they are
...lifetime         other lifetimes, and what keeps rows: coalesce, cleanse, samples by what the filter reads
...union            a union: before each of its streams
...join             a join: columns of one side, of which all events are in the output only as pairs
...window           windows by groups: columns that are keys
...module           a user's operator on a grid that declares ``filter_commutes``
group-windows       a sub-plan of each group that is windows with aggregates is windows by the group's key
groups-apart        a user's operator on a grid that declares ``per_group`` is computed for each of these groups alone
time-bound          a user's operator on a grid that declares ``time_bound`` is stable where its input is
join-order          (a join b) join c is a join (b join c), where c is joined with b
join-sides          a join b is b join a, with the columns in their order
form-...            all windows have the form ``final``, ``settled``, ``watermark`` or ``eager``
==================  ===================================================================================================

The last three make no plan better by themselves. They make replicas of one query that differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from lmerge.temporal.errors import PlanError
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.groups import GroupApplyNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.pushing import PUSHING
from lmerge.temporal.plan.reordering import DIFFERING, FORMS, GROUPING, MODULES_DECLARE
from lmerge.temporal.plan.rules import PlanRule

REWRITES: Final[Mapping[str, PlanRule]] = {**PUSHING, **GROUPING, **MODULES_DECLARE, **DIFFERING}

BETTER: Final = (*PUSHING, *GROUPING, *MODULES_DECLARE)
"""The rewrites that make a plan do less."""


class AppliedRewrite(NamedTuple):
    """A rewrite that was applied. ``before``, ``after``: the node, on one line."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class RewrittenPlan:
    """The results of a plan by name, and what was applied to it."""

    outputs: dict[str, PlanNode]
    applied: tuple[AppliedRewrite, ...]


def rewrite(node: PlanNode, names: Iterable[str] = BETTER) -> tuple[PlanNode, tuple[AppliedRewrite, ...]]:
    """Return a plan with the same table, and what was applied. Raises PlanError for a name that is no rewrite."""
    found = rewrite_plan({"result": node}, names)
    return found.outputs["result"], found.applied


def rewrite_plan(outputs: Mapping[str, PlanNode], names: Iterable[str] = BETTER) -> RewrittenPlan:
    """Return a plan of several results with the same tables.

    Raises PlanError for a name that is no rewrite, and for two forms.
    """
    rules = []
    for name in dict.fromkeys(names):
        if name not in REWRITES:
            raise PlanError(f"there is no rewrite {name!r:.64}; there are {', '.join(REWRITES)}")
        rules.append((name, REWRITES[name]))
    forms = [name for name, _ in rules if name in FORMS]
    if len(forms) > 1:
        raise PlanError(f"windows have one form, not those of {' and '.join(forms)}")
    rewriting = _Rewriting(rules, list(outputs.values()))
    made = {name: rewriting.of(node) for name, node in outputs.items()}
    return RewrittenPlan(made, tuple(rewriting.applied))


class _Rewriting:
    """One plan that is rewritten."""

    def __init__(self, rules: list[tuple[str, PlanRule]], outputs: list[PlanNode]) -> None:
        self.applied: list[AppliedRewrite] = []
        self._rules = rules
        order = in_order(outputs)
        readers = Counter(read for node in order for read in node.reads) + Counter(outputs)
        self._shared = {node for node, count in readers.items() if count > 1}
        self._done: dict[PlanNode, PlanNode] = {}

    def of(self, node: PlanNode) -> PlanNode:
        """Return what becomes of a node."""
        found = self._done.get(node)
        if found is None:
            found = self._applied(self._over(node, [self.of(read) for read in node.reads]))
            if node in self._shared:
                self._shared.add(found)
            self._done[node] = self._done[found] = found
        return found

    def _over(self, node: PlanNode, reads: list[PlanNode]) -> PlanNode:
        over = node if tuple(reads) == node.reads else replace(node, reads=tuple(reads))
        if not isinstance(over, GroupApplyNode):
            return over
        inside = _Rewriting(self._rules, [over.plan])
        plan = inside.of(over.plan)
        self.applied += inside.applied
        return over if plan == over.plan else replace(over, plan=plan)

    def _applied(self, node: PlanNode) -> PlanNode:
        """Return a node over what is rewritten already, rewritten itself."""
        for name, rule in self._rules:
            found = rule(node, self._is_shared)
            if found is None or found == node:
                continue
            assert found.schema == node.schema, f"{name} has made ({found.schema}) of ({node.schema})"
            self.applied.append(AppliedRewrite(name, _chain(node), _chain(found)))
            return self.of(found)
        return node

    def _is_shared(self, node: PlanNode) -> bool:
        return node in self._shared


def _chain(node: PlanNode) -> str:
    """Return a node and what it reads, on one line."""
    below = " and ".join(read.shown for read in dict.fromkeys(node.reads))
    return f"{node.shown} <- {below}" if below else node.shown
