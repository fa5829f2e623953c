"""The edge between a plan and users' modules: rows to Python values, results back, and errors that name the module.

A module is given Python values (``lmerge.temporal.python_values``). Whatever it raises, and a result that does not fit
its declared type, becomes a ModuleViolation that names the module and the window, and the event if it is the only one.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Lifetime, is_time
from lmerge.temporal.columns import RowBlock
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.modules.arguments import Argument
from lmerge.temporal.modules.column_forms import ColumnMaker, Refused, rows_of_result
from lmerge.temporal.modules.kinds import ROWS, UserModule
from lmerge.temporal.modules.properties import Stamped, TimedRow
from lmerge.temporal.python_values import Converter, canonical_form, python_form
from lmerge.temporal.user_code import is_interrupt
from lmerge.temporal.values import Values, order_of, show_values, sorted_rows
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.wire.schema import Column, Schema

Given: TypeAlias = "Values | Lifetime"
"""The inputs of an event; with a lifetime for a time-sensitive module."""


class BlockRows(Sequence["Given"]):
    """What ``RowMaker.given_of_rows`` returns for blocks of events. Nothing is made of them until it is asked for."""

    def __init__(self, maker: RowMaker, blocks: Sequence[RowBlock]) -> None:
        self._maker, self.blocks = maker, blocks

    def __len__(self) -> int:
        return sum(len(block) for block in self.blocks)

    def __getitem__(self, at: Any) -> Any:
        return self.listed()[at]

    def listed(self) -> list[Given]:
        """Return the inputs of each event."""
        return [given for block in self.blocks for given in self._maker.given_of_rows(block.rows())]


class RowMaker:
    """Makes the rows that a module gets from the events of a plan.

    Raises PlanError at construction if an argument's type is not that of the module's input, and ModuleViolation later.
    """

    def __init__(self, module: UserModule, arguments: Sequence[Argument]) -> None:
        self._shown = module.shown
        inputs = module.input_schema()
        if inputs is None:
            inputs = Schema(tuple(argument.column for argument in arguments))
        if len(inputs.columns) != len(arguments):
            raise PlanError(f"{module.shown} takes {len(inputs.columns)} columns ({inputs}), and got {len(arguments)}")
        for column, argument in zip(inputs.columns, arguments, strict=True):
            _check_input(module, column, argument.column)
        self._values_of = [argument.value_of for argument in arguments]
        pairs = list(zip(inputs.columns, arguments, strict=True))
        self._required = [
            at for at, (one, argument) in enumerate(pairs) if argument.column.nullable and not one.nullable
        ]
        self._is_single = module.input_schema() is not None and len(arguments) == 1
        self._named: Any = namedtuple("Row", inputs.names, rename=True)  # type: ignore[misc]
        self._columns = None if module.columns == ROWS else self._column_maker(module, pairs)
        self._forms = [self._form(*pair) for pair in pairs]
        self._converts = any(form is not None for form in self._forms)
        places = [argument.source for argument in arguments if isinstance(argument.source, int)]
        is_plain = len(places) == len(arguments) > 0 and not (self._converts or self._required or module.is_timed)
        self.block_columns: Sequence[int] | None = places if is_plain else None
        columns = [argument.column for argument in arguments]
        self._key, self._sorted = order_of(columns), sorted_rows(columns)
        self._is_timed = module.is_timed
        reads = module.properties.reads if module.is_timed else ()
        self.reads_start, self.reads_end = "start" in reads, "end" in reads
        self.inputs = Schema(tuple(replace(one, name=column.name) for column, one in _typed(pairs)))

    def _column_maker(self, module: UserModule, pairs: Sequence[tuple[Column, Argument]]) -> ColumnMaker:
        """Return what makes columns; their types are those that the module declares, with the digits that come."""
        given = [one if one.type != argument.column.type else argument.column for one, argument in pairs]
        columns = [replace(kind, nullable=one.nullable) for kind, (one, _) in zip(given, pairs, strict=True)]
        return ColumnMaker(module, columns, None if self._is_single else self._named)

    def _form(self, column: Column, argument: Argument) -> Converter | None:
        if column.type == "float" and argument.column.type == "int":
            return lambda value: None if value is None else float(value)
        if self._columns is not None and self._columns.takes_canonical(argument.column):
            return None
        return python_form(argument.column)

    @property
    def skips(self) -> bool:
        """Whether rows in which a value is missing are not given to the module."""
        return bool(self._required)

    def given(self, event: Lifetime) -> Given | None:
        """Return the inputs of an event, with its lifetime if the module gets it; None if it is not for the module.

        The values are those of the plan. Of a lifetime it has what the module reads.
        """
        values = tuple([value_of(event.row) for value_of in self._values_of])
        for at in self._required:
            if values[at] is None:
                return None
        if not self._is_timed:
            return values
        return Lifetime(values, event.vs if self.reads_start else NEG_INF, event.ve if self.reads_end else INF)

    def given_of_rows(self, rows: Sequence[Values]) -> list[Given]:
        """Return what ``given`` returns for events with these rows, for a module that reads no lifetimes."""
        found: list[Values] = list(zip(*(map(value_of, rows) for value_of in self._values_of), strict=True))
        for at in self._required:
            found = [values for values in found if values[at] is not None]
        return [Lifetime(values, NEG_INF, INF) for values in found] if self._is_timed else list(found)

    def rows(self, given: Iterable[Given]) -> Any:
        """Return the rows that the module gets of what ``given`` has returned, or the columns.

        They come in the order of the inputs and times alone.
        """
        if isinstance(given, BlockRows) and self.block_columns is not None:
            return self._of_blocks(given.blocks, self.block_columns)
        if not self._is_timed:
            return self._of_ordered(self._sorted(given))
        key = self._key
        ordered = sorted(cast(Iterable[Lifetime], given), key=lambda one: (one.vs, one.ve, key(one.row)))
        found = self._of_ordered([one.row for one in ordered])
        if self._columns is not None:
            return self._columns.timed(found, [one.vs for one in ordered], [one.ve for one in ordered])
        return [TimedRow(row, one.vs, one.ve) for row, one in zip(found, ordered, strict=True)]

    def _of_ordered(self, ordered: Sequence[Values]) -> Any:
        if self._columns is None:
            return self._rows(ordered)
        try:
            return self._columns.of_rows(ordered, self._forms)
        except ValueError as problem:
            raise ModuleViolation(f"{self._shown} cannot be given its columns: {problem}") from None

    def _of_blocks(self, blocks: Sequence[RowBlock], places: Sequence[int]) -> Any:
        """Return the rows or columns of blocks, whose columns ``places`` are the inputs as the module gets them."""
        from lmerge.temporal.native.blocks import ordered_arrays, ordered_values

        if self._columns is not None and self._columns.takes_arrow:
            return self._columns.of_arrow(ordered_arrays(blocks, places))
        values = ordered_values(blocks, places)
        if self._columns is not None:
            return self._of_ordered([(value,) for value in values] if len(places) == 1 else values)
        if self._is_single:
            return values
        return [self._named(value) for value in values] if len(places) == 1 else list(map(self._named._make, values))

    def _rows(self, ordered: Sequence[Values]) -> list[Any]:
        if self._converts:
            return list(map(self._row, ordered))
        return [values[0] for values in ordered] if self._is_single else list(map(self._named._make, ordered))

    def _row(self, values: Values) -> Any:
        """Return a row of which a value is converted."""
        pairs = zip(self._forms, values, strict=True)
        try:
            made = [value if form is None else form(value) for form, value in pairs]
        except ValueError as problem:
            raise ModuleViolation(f"{self._shown} cannot be given a row: {problem}") from None
        return made[0] if self._is_single else self._named(*made)


def _typed(pairs: Sequence[tuple[Column, Argument]]) -> list[tuple[Column, Column]]:
    """Return the inputs with the types that they have here: an argument's digits, and what can be missing."""
    found = []
    for column, argument in pairs:
        typed = column if column.type != argument.column.type else argument.column
        found.append((column, replace(typed, nullable=column.nullable and argument.column.nullable)))
    return found


def _check_input(module: UserModule, column: Column, given: Column) -> None:
    is_fitting = column.type == given.type or (column.type == "float" and given.type == "int")
    if is_fitting and column.type in ("list", "struct"):
        is_fitting = _shape(column) == _shape(given)
    if not is_fitting:
        raise PlanError(
            f"{module.shown} takes {column.name}: {column.describe()}, and column {given.name!r} is {given.describe()}"
        )


def _shape(column: Column) -> Any:
    children = [(child.name, _shape(child)) for child in column.children]
    return column.type, [shape for _, shape in children] if column.type == "list" else children


class ResultCheck:
    """Makes values of a plan from what a module returns. Raises ModuleViolation."""

    def __init__(self, module: UserModule, columns: Sequence[Column]) -> None:
        self._shown = module.shown
        self._columns = columns
        self._names = [column.name for column in columns]
        self._forms = [canonical_form(column) for column in columns]

    def listed(self, found: Any) -> list[Any]:
        """Return what an operator returned as a list of rows, stamped or not. Raises Refused."""
        return rows_of_result(found, self._columns)

    def value(self, value: Any, window: WindowDescriptor) -> Any:
        """Return the value of an aggregate."""
        return self._fitting(0, value, window)

    def row(self, row: Any, window: WindowDescriptor) -> Values:
        """Return a row of an operator."""
        if isinstance(row, Mapping):
            unknown = [name for name in row if name not in self._names]
            if unknown:
                raise self._refused(window, f"a row with a column {unknown[0]!r:.64}, which it does not declare")
            row = [row.get(name) for name in self._names]
        if not isinstance(row, (tuple, list)):
            raise self._refused(window, f"{row!r:.64} where a row is a tuple, a list or a mapping")
        if len(row) != len(self._columns):
            raise self._refused(window, f"a row with {len(row)} columns, and declares {len(self._columns)}")
        return tuple([self._fitting(at, value, window) for at, value in enumerate(row)])

    def stamped(self, result: Any, window: WindowDescriptor) -> Lifetime:
        """Return a result with its lifetime: its own, or the window's."""
        if not isinstance(result, Stamped):
            return Lifetime(self.row(result, window), window.start, window.end)
        for value in (result.start, result.end):
            if not isinstance(value, int) or isinstance(value, bool) or not is_time(value):
                raise self._refused(window, f"a lifetime with {value!r:.64}, which is no time")
        return Lifetime(self.row(result.row, window), int(result.start), int(result.end))

    def _fitting(self, at: int, value: Any, window: WindowDescriptor) -> Any:
        column = self._columns[at]
        if value is None and not column.nullable:
            raise self._refused(window, f"no value for {column.name}, which is {column.describe()}")
        if hasattr(value, "as_py"):  # a scalar of Arrow
            value = value.as_py()
        try:
            return self._forms[at](value)
        except ValueError as problem:
            raise self._refused(window, f"for {column.name}, which is {column.describe()}: {problem}") from None

    def _refused(self, window: WindowDescriptor, what: str) -> ModuleViolation:
        return ModuleViolation(f"{self._shown} returned in window {window} {what}")


def guarded(shown: str, where: str, events: Sequence[Given], call: Callable[[], Any]) -> Any:
    """Return what ``call`` returns. Raises ModuleViolation for whatever it raises, but for Ctrl-C.

    ``where``: in which window, if that is known. ``events``: those that the module was given.
    """
    try:
        return call()
    except Refused as problem:
        raise ModuleViolation(f"{shown} returned {problem}{where}{_given(events)}") from None
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise ModuleViolation(f"{shown} raised {type(error).__name__}: {error}{where}{_given(events)}") from error


def _given(events: Sequence[Given]) -> str:
    if len(events) == 1:
        return f", given the event {_shown(events[0])}"
    return f", given {len(events)} events" * bool(events)


def _shown(event: Given) -> str:
    """Return an event as text; a lifetime that was never read is left out."""
    if not isinstance(event, Lifetime):
        return show_values(event)
    return show_values(event.row) if (event.vs, event.ve) == (NEG_INF, INF) else str(event)
