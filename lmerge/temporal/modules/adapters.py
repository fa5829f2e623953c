"""Users' modules as what windows compute: each of the eight kinds as an aggregate or a module of windows.

A time-insensitive module never gets to see a time, nor an order that would reveal one. An incremental one is called
with all rows that came and went since its last result, in canonical order, so its state depends on no order either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.columns import RowBlock
from lmerge.temporal.errors import PlanError
from lmerge.temporal.modules.aggregates import AccumulatedAggregate, WindowAggregate
from lmerge.temporal.modules.arguments import Argument, column_argument
from lmerge.temporal.modules.calls import ModuleCalls, WindowContext
from lmerge.temporal.modules.edge import ResultCheck
from lmerge.temporal.modules.kinds import AggregateModule, Incremental, Mergeable, OperatorModule, UserModule
from lmerge.temporal.modules.states import ModuleAccumulator, ModuleCell
from lmerge.temporal.user_code import is_interrupt
from lmerge.temporal.values import Values
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.temporal.windows.module import IncrementalModule, MergeableModule, ModuleState, WindowModule
from lmerge.temporal.windows.policies import Clip, Stamp
from lmerge.wire.schema import Column, Schema

NO_CONTEXT: Final = WindowContext()

Declared = TypeVar("Declared", Column, Schema)


def check_policies(module: UserModule, clip: Clip, stamp: Stamp) -> None:
    """Raise PlanError if a query's clipping or timestamps do not go with a module (III.C)."""
    declared = module.properties
    if module.is_timed and "start" in declared.needs and clip.cuts_left:
        raise PlanError(f"{module.shown} needs the starts of events, which clip={clip} cuts to the window")
    if module.is_timed and "end" in declared.needs and clip.cuts_right:
        raise PlanError(f"{module.shown} needs the ends of events, which clip={clip} cuts to the window")
    if stamp.keeps_own and not (module.is_timed and isinstance(module, OperatorModule)):
        raise PlanError(f"{module.shown} gives its results no lifetimes, so output={stamp} does not go with it")
    if stamp is Stamp.TIME_BOUND and not declared.time_bound:
        raise PlanError(f"{module.shown} does not declare time_bound, so output={stamp} does not go with it")


def bind_aggregate_module(
    module: AggregateModule, arguments: Sequence[Argument], result: str, context: WindowContext = NO_CONTEXT
) -> WindowAggregate:
    """Return a user's aggregate over these arguments; its column has the name ``result``.

    Raises PlanError, which names the module and the column that does not fit.
    """
    if module.input_schema() is None:
        raise PlanError(f"{module.shown} declares no inputs, which an aggregate needs")
    calls = ModuleCalls(module, arguments, context)
    column = replace(_declared(module, module.result_column, calls), name=result)
    if calls.maker.skips:
        column = replace(column, nullable=True)
    if not isinstance(module, Incremental):
        return UserAggregate(module, calls, column)
    kept, check = ModuleAccumulator(module, calls), ResultCheck(module, [column])

    def finish(cell: ModuleCell, window: WindowDescriptor) -> Any:
        found = kept.computed(cell, window, _in_a_list)
        return None if found is None else check.value(found[0], window)

    return AccumulatedAggregate(column, module.shown, kept, finish)


def _declared(module: UserModule, results: Callable[[Schema], Declared], calls: ModuleCalls) -> Declared:
    """Return the results that a module declares for the types of its inputs. Raises PlanError for what it raises."""
    try:
        return results(calls.maker.inputs)
    except PlanError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise PlanError(f"{module.shown} cannot declare its results: {type(error).__name__}: {error}") from error


def _in_a_list(value: Any) -> list[Any]:
    """Return what a module returns so that a missing value is not the same as no call."""
    return [value]


def bind_operator_module(
    module: OperatorModule,
    schema: Schema,
    arguments: Sequence[Argument] | None = None,
    context: WindowContext = NO_CONTEXT,
) -> UserWindowModule:
    """Return a user's operator over rows of ``schema``. Without arguments columns go to the inputs of their names.

    Raises PlanError, which names the module and the column that does not fit.
    """
    inputs = module.input_schema() or schema
    if arguments is None:
        arguments = [column_argument(schema, name, module.shown) for name in inputs.names]
    calls = ModuleCalls(module, arguments, context)
    results, is_mergeable = _declared(module, module.results_schema, calls), isinstance(module, Mergeable)
    if not isinstance(module, Incremental):
        return UserOperator(module, calls, results)
    if not is_mergeable:
        return UserStateOperator(module, calls, results)
    return MergeableUserStateOperator(module, calls, results)


class UserAggregate(WindowAggregate):
    """A user's aggregate over the set of a window's events."""

    def __init__(self, module: AggregateModule, calls: ModuleCalls, result: Column) -> None:
        super().__init__(result, module.shown)
        self._calls, self._check = calls, ResultCheck(module, [result])
        self.reads_events, self.starts_only = calls.reads_events, calls.starts_only
        self.reads_window = calls.reads_window
        self.takes_blocks = calls.maker.block_columns is not None

    def over(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Any:
        """Return the value; None if no row is for the module."""
        found = self._calls.over(events, window, _in_a_list)
        return None if found is None else self._check.value(found[0], window)

    def over_blocks(self, blocks: Sequence[RowBlock], window: WindowDescriptor) -> Any:
        """Return the value for events that came as columns."""
        found = self._calls.over_blocks(blocks, window, _in_a_list)
        return self._check.value(found[0], window)


class UserOperator(WindowModule):
    """A user's operator over the set of a window's events. ``results``: the schema of its rows."""

    def __init__(self, module: OperatorModule, calls: ModuleCalls, results: Schema) -> None:
        _adopt(self, module, calls)
        self.results = results
        self._calls, self._check = calls, ResultCheck(module, results.columns)
        self._checked = _checker(module, self._check)
        self.takes_blocks = calls.maker.block_columns is not None

    def compute_blocks(self, blocks: Sequence[RowBlock], window: WindowDescriptor) -> Sequence[Values]:
        """Return the rows for events that came as columns."""
        return self._checked(self._calls.over_blocks(blocks, window, self._check.listed), window)

    def compute(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Sequence[Values] | Sequence[Lifetime]:
        """Return the rows, stamped if the module is time-sensitive."""
        return self._checked(self._calls.over(events, window, self._check.listed), window)


class UserStateOperator(IncrementalModule):
    """A user's incremental operator. ``results``: the schema of its rows."""

    def __init__(self, module: OperatorModule, calls: ModuleCalls, results: Schema) -> None:
        _adopt(self, module, calls)
        self.results = results
        self._kept, self._check = ModuleAccumulator(module, calls), ResultCheck(module, results.columns)
        self._checked = _checker(module, self._check)

    def begin(self) -> ModuleState:
        """Return the state of no events."""
        return self._kept.begin()

    def add(self, state: ModuleState, event: Lifetime) -> ModuleState:
        """Let an event wait to be added."""
        return self._kept.add(state, event)

    def add_rows(self, state: ModuleState, rows: Sequence[Values]) -> ModuleState:
        """Let rows wait to be added."""
        return self._kept.add_rows(state, rows)

    def remove(self, state: ModuleState, event: Lifetime) -> ModuleState:
        """Let an event wait to be removed."""
        return self._kept.remove(state, event)

    def result(self, state: ModuleState, window: WindowDescriptor) -> Sequence[Values] | Sequence[Lifetime]:
        """Bring the state up to date, and return its rows, stamped if the module is time-sensitive."""
        return self._checked(self._kept.computed(state, window, self._check.listed), window)

    def copied(self, state: ModuleState) -> ModuleState:
        """Return a state that changes independently."""
        return self._kept.copied(state)

    def state_of(self, state: ModuleState) -> Any:
        """Return the state as plain values."""
        return self._kept.state_of(state)

    def restore(self, plain: Any) -> ModuleState:
        """Return the state of plain values."""
        return self._kept.restore(plain)


class MergeableUserStateOperator(UserStateOperator, MergeableModule):
    """A user's incremental operator whose states can be merged."""

    def merge(self, state: ModuleState, other: ModuleState) -> ModuleState:
        """Return the state of the events of both."""
        return self._kept.merge(state, other)


UserWindowModule: TypeAlias = "UserOperator | UserStateOperator"
"""A user's operator as a module of windows. Its ``results`` are the schema of its rows."""

Checked: TypeAlias = Callable[["list[Any] | None", WindowDescriptor], "Sequence[Values] | Sequence[Lifetime]"]
"""From what a module returned for a window, or None if it was not called, to results."""


def _adopt(adapter: WindowModule, module: OperatorModule, calls: ModuleCalls) -> None:
    """Give a module of windows the name of a user's module, and what it reads."""
    adapter.shown, adapter.stamps, adapter.is_users = module.shown, module.is_timed, True
    adapter.reads_events, adapter.starts_only = calls.reads_events, calls.starts_only
    adapter.reads_window = calls.reads_window


def _checker(module: OperatorModule, check: ResultCheck) -> Checked:
    if module.is_timed:
        return lambda found, window: [check.stamped(result, window) for result in found or ()]
    return lambda found, window: [check.row(result, window) for result in found or ()]
