"""Checks of users' modules: what every module must keep, and what it declares of itself (M6, M14).

Every check draws random windows with events. Where one refutes a module, events are left out as long as the rest still
refutes it, and the ModuleViolation shows that smallest counterexample. A module that passes has not been proved right;
one that fails has been proved wrong.

=================  ====================================================================================================
deterministic      the same events twice give the same results
incremental        the state after events came and went, in any order, gives what the set gives
state              a state that was made plain values, and made of them again, gives the same
mergeable          merged states of two sets give what both sets together give
filter_commutes    results filtered by the columns are those of the events filtered by them
per_group          the results are those of the groups, taken together
time_bound         one event more or less, or with another end, changes no result before its sync time
insert_only        one event more takes no result away
preserves_order    one event more that starts last makes no result that starts before others
=================  ====================================================================================================
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lmerge.temporal.changes import Lifetime, differences
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.modules.adapters import bind_aggregate_module, bind_operator_module
from lmerge.temporal.modules.aggregates import aggregate_module
from lmerge.temporal.modules.arguments import column_argument
from lmerge.temporal.modules.calls import WindowContext
from lmerge.temporal.modules.kinds import AggregateModule, OperatorModule
from lmerge.temporal.modules.random_windows import WindowCase, canonical_rows, random_case, rows_of
from lmerge.temporal.values import Values, order_key
from lmerge.temporal.windows.module import IncrementalModule, MergeableModule, WindowModule
from lmerge.wire.schema import Column, Schema, SchemaLike, parse_schema

ANY_WINDOW: Final = WindowContext(keeps_empty=True)

Refute = Callable[[WindowCase], "str | None"]
"""Returns what is wrong in a case, or None."""


def check_module(
    module: AggregateModule | OperatorModule,
    *,
    schema: SchemaLike | None = None,
    rows: Iterable[Mapping[str, Any] | Sequence[Any]] | None = None,
    rounds: int = 200,
    events_max: int = 6,
    seed: int = 0,
) -> list[str]:
    """Check a module; return the names of the checks that it passed.

    ``schema``: of the rows, if the module takes any. ``rows``: those to draw from, as Python values; else some of every
    type. ``rounds``: windows for each check. Raises ModuleViolation with the smallest counterexample, or PlanError.
    """
    inputs = module.input_schema() or (None if schema is None else parse_schema(schema))
    if inputs is None:
        raise PlanError(f"{module.shown} takes the rows of any stream: a check needs a schema")
    random_ = random.Random(seed)
    pool = rows_of(inputs, random_) if rows is None else canonical_rows(inputs, rows)
    checks = ModuleChecks(module, inputs)
    for name, refute in checks.all().items():
        for _ in range(rounds):
            case = random_case(random_, pool, events_max)
            if refute(case) is not None:
                raise _violation(module, name, refute, case)
    return list(checks.all())


def check_incremental(module: IncrementalModule, schema: Schema, rounds: int = 200, seed: int = 0) -> None:
    """Check any incremental module of windows: its states give what the set of events gives, bit for bit (M6).

    Raises ModuleViolation with the smallest counterexample.
    """
    random_ = random.Random(seed)
    pool, runner = rows_of(schema, random_), WindowRunner(module, schema)
    for _ in range(rounds):
        case = random_case(random_, pool, 8)
        if runner.differs_through_states(case) is not None:
            smallest, problem = _smallest(runner.differs_through_states, case)
            raise ModuleViolation(f"{module.shown} is not incremental: {problem} {smallest}")


def _violation(
    module: AggregateModule | OperatorModule, name: str, refute: Refute, case: WindowCase
) -> ModuleViolation:
    smallest, problem = _smallest(refute, case)
    return ModuleViolation(f"{module.shown} is not {name}: {problem} {smallest}")


def _smallest(refute: Refute, case: WindowCase) -> tuple[WindowCase, str]:
    """Return a case from which no event can be left out, and what is wrong in it."""
    problem = refute(case) or ""
    place = 0
    while place < len(case.events) > 1:
        for smaller in case.without(place):
            found = refute(smaller)
            if found is not None:
                case, problem, place = smaller, found, 0
                break
        else:
            place += 1
    return case, problem


@dataclass(frozen=True)
class WindowRunner:
    """Runs a module for the windows of cases. ``schema``: of the rows of events."""

    module: WindowModule
    schema: Schema

    def results(self, case: WindowCase, events: Sequence[Lifetime]) -> Counter[Any]:
        """Return what the module computes for a set of events, as a multiset; nothing for the empty set."""
        if not events:
            return Counter()
        return Counter(map(_exactly, self.module.compute(self.ordered(events), case.window)))

    def ordered(self, events: Sequence[Lifetime]) -> list[Lifetime]:
        """Return events in the order in which the module gets them."""
        key = order_key(self.schema)
        if not self.module.reads_events:
            return sorted(events, key=lambda event: key(event.row))
        if self.module.starts_only:
            return sorted(events, key=lambda event: (event.vs, key(event.row)))
        return sorted(events, key=lambda event: (event.vs, event.ve, key(event.row)))

    def differs(self, case: WindowCase) -> str | None:
        """Return how the results of the same events differ."""
        return _difference(self.results(case, case.events), self.results(case, case.events), "at first", "then")

    def differs_through_states(self, case: WindowCase) -> str | None:
        """Return how the result of a state differs from that of the set, after events came and went in any order."""
        module, random_ = self.module, random.Random(case.seed)
        assert isinstance(module, IncrementalModule)
        state, left = module.begin(), list[Lifetime]()
        for event in random_.sample(case.events, len(case.events)):
            state = module.add(state, event)
            left.append(event)
            if random_.random() < 0.3:
                module.result(state, case.window)
            if random_.random() < 0.3:
                state = module.remove(state, left.pop(random_.randrange(len(left))))
        if not left:
            return None
        found = Counter(map(_exactly, module.result(state, case.window)))
        return _difference(found, self.results(case, left), "from the state", "from the set")

    def differs_when_restored(self, case: WindowCase) -> str | None:
        """Return how a state that was made plain values and made of them again differs."""
        module = self.module
        assert isinstance(module, IncrementalModule)
        state = module.begin()
        for event in case.events:
            state = module.add(state, event)
        plain = module.state_of(state)
        problem = _not_plain(plain)
        if problem is not None:
            return f"its state has {problem}, which is no plain value,"
        restored = Counter(map(_exactly, module.result(module.restore(_copied(plain)), case.window)))
        return _difference(restored, self.results(case, case.events), "when restored", "before")

    def differs_when_merged(self, case: WindowCase) -> str | None:
        """Return how merged states of two sets differ from the state of both."""
        module, at = self.module, random.Random(case.seed).randint(0, len(case.events))
        assert isinstance(module, MergeableModule)
        states = []
        for part in (case.events[:at], case.events[at:]):
            state = module.begin()
            for event in part:
                state = module.add(state, event)
            module.result(state, case.window)  # no event waits then
            states.append(state)
        found = Counter(map(_exactly, module.result(module.merge(*states), case.window)))
        return _difference(found, self.results(case, case.events), "from merged states", "from the set")


class ModuleChecks:
    """The checks that a module must pass. Raises PlanError for declarations about columns that are not there."""

    def __init__(self, module: AggregateModule | OperatorModule, inputs: Schema) -> None:
        self._declared = module.properties
        self._inputs = inputs
        arguments = [column_argument(inputs, name, module.shown) for name in inputs.names]
        if isinstance(module, AggregateModule):
            bound = bind_aggregate_module(module, arguments, "result", ANY_WINDOW)
            self._results = Schema((Column("result", bound.result.type, children=bound.result.children),))
            self._module: WindowModule = aggregate_module([bound], inputs)
        else:
            operator = bind_operator_module(module, inputs, context=ANY_WINDOW)
            self._results, self._module = operator.results, operator
        self._runner = WindowRunner(self._module, inputs)
        for what, names in (
            ("filter_commutes", self._declared.filter_commutes),
            ("per_group", self._declared.per_group),
        ):
            there = set(inputs.names) & (set(self._results.names) if what == "filter_commutes" else set(inputs.names))
            unknown = [name for name in names if name not in there]
            if unknown:
                raise PlanError(
                    f"{module.shown} declares {what} by {unknown[0]!r:.64}, which it does not take and return"
                )

    def all(self) -> dict[str, Refute]:
        """Return the checks for what the module is and declares, by name."""
        runner, declared = self._runner, self._declared
        found: dict[str, Refute] = {"deterministic": _safe(runner.differs)}
        if isinstance(self._module, IncrementalModule):
            found["incremental"] = _safe(runner.differs_through_states)
            found["state"] = _safe(runner.differs_when_restored)
        if isinstance(self._module, MergeableModule):
            found["mergeable"] = _safe(runner.differs_when_merged)
        for name, is_declared, refute in (
            ("filter_commutes", declared.filter_commutes, self._differs_when_filtered),
            ("per_group", declared.per_group, self._differs_by_group),
            ("time_bound", declared.time_bound, self._changes_the_past),
            ("insert_only", declared.insert_only, self._loses_results),
            ("preserves_order", declared.preserves_order, self._goes_back),
        ):
            if is_declared:
                found[name] = _safe(refute)
        return found

    def _differs_when_filtered(self, case: WindowCase) -> str | None:
        names = self._declared.filter_commutes
        of_event = [self._inputs.names.index(name) for name in names]
        of_result = [self._results.names.index(name) for name in names]
        values = list(dict.fromkeys(_picked(event.row, of_event) for event in case.events))
        random_ = random.Random(case.seed)
        kept = set(random_.sample(values, random_.randint(0, len(values))))
        before = self._runner.results(case, [event for event in case.events if _picked(event.row, of_event) in kept])
        after = Counter[Any]()
        for result, count in self._raw(case, case.events).items():
            row = result.row if isinstance(result, Lifetime) else result
            if _picked(row, of_result) in kept:
                after[_exactly(result)] += count
        shown = ", ".join(sorted(map(repr, kept))) or "nothing"
        where = f"with the events of {'+'.join(names)} = {shown} alone"
        return _difference(before, after, where, "with its results of them alone")

    def _raw(self, case: WindowCase, events: Sequence[Lifetime]) -> Counter[Any]:
        """Return results as they are."""
        return Counter(self._module.compute(self._runner.ordered(events), case.window)) if events else Counter()

    def _differs_by_group(self, case: WindowCase) -> str | None:
        places = [self._inputs.names.index(name) for name in self._declared.per_group]
        groups: dict[Values, list[Lifetime]] = {}
        for event in case.events:
            groups.setdefault(_picked(event.row, places), []).append(event)
        apart = Counter[Any]()
        for events in groups.values():
            apart += self._runner.results(case, events)
        return _difference(apart, self._runner.results(case, case.events), "by group", "together")

    def _changes_the_past(self, case: WindowCase) -> str | None:
        *others, event = case.events
        random_ = random.Random(case.seed)
        shorter = [end for end in range(max(event.vs, case.window.start) + 1, event.vs + 10) if end < event.ve]
        is_adjust = bool(shorter) and random_.random() < 0.5
        before = [*others, event._replace(ve=random_.choice(shorter))] if is_adjust else others
        bound = before[-1].ve if is_adjust else event.vs
        changes = differences(self._stamped(case, before), self._stamped(case, [*others, event]))
        for change in changes:
            if change.sync_time < bound:
                return f"{event} changes the time from {bound} on, and the results by {change}"
        return None

    def _stamped(self, case: WindowCase, events: Sequence[Lifetime]) -> list[Lifetime]:
        """Return results with lifetimes."""
        found = list(self._raw(case, events).elements())
        return found if self._module.stamps else [Lifetime(row, case.window.start, case.window.end) for row in found]

    def _loses_results(self, case: WindowCase) -> str | None:
        *others, event = case.events
        lost = self._runner.results(case, others) - self._runner.results(case, case.events)
        return f"{event} takes {_first(lost)} away" if lost else None

    def _goes_back(self, case: WindowCase) -> str | None:
        *others, event = self._runner.ordered(case.events)
        if self._module.reads_events:
            *others, event = sorted(case.events, key=lambda one: one.vs)
        before, after = Counter(self._stamped(case, others)), Counter(self._stamped(case, [*others, event]))
        last = max((one.vs for one in before), default=case.window.start)
        for result in after - before:
            if result.vs < last:
                return f"{event} makes {result}, and there is a result from {last} on"
        return None


def _safe(refute: Refute) -> Refute:
    """Return a check for which a module that raises is refuted too."""

    def refute_safely(case: WindowCase) -> str | None:
        try:
            return refute(case)
        except ModuleViolation as problem:
            return f"{problem},"

    return refute_safely


def _picked(row: Values, places: Sequence[int]) -> Values:
    return tuple(row[place] for place in places)


def _exactly(result: Any) -> str:
    """Return a result as text that differs wherever its bits do."""
    return repr(result)


def _first(results: Counter[Any]) -> str:
    return min(map(str, results))


def _difference(left: Counter[Any], right: Counter[Any], of_left: str, of_right: str) -> str | None:
    if left == right:
        return None
    return f"{of_left} the results are {_listed(left)}, {of_right} {_listed(right)}"


def _listed(results: Counter[Any]) -> str:
    return f"[{', '.join(sorted(results.elements()))}]"


def _not_plain(value: Any) -> str | None:
    """Return a value that is not plain, as text, or None if all are."""
    if isinstance(value, dict):
        odd = [key for key in value if not isinstance(key, str)]
        return f"the key {odd[0]!r:.64}" if odd else next(filter(None, map(_not_plain, value.values())), None)
    if isinstance(value, list):
        return next(filter(None, map(_not_plain, value)), None)
    return None if value is None or isinstance(value, (bool, int, float, str, bytes)) else f"{value!r:.64}"


def _copied(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _copied(value) for key, value in plain.items()}
    return [_copied(value) for value in plain] if isinstance(plain, list) else plain
