"""What users derive modules from: the eight kinds (seed 000, IV.A and IV.B).

====================  =============================================  =================================================
a module is           over the set of a window's rows                incremental: a state, to which rows are added
====================  =============================================  =================================================
an aggregate          ``Aggregate``                                  ``IncrementalAggregate``
... time-sensitive    ``TimedAggregate``                             ``IncrementalTimedAggregate``
an operator           ``Operator``                                   ``IncrementalOperator``
... time-sensitive    ``TimedOperator``                              ``IncrementalTimedOperator``
====================  =============================================  =================================================

An aggregate returns one value for a window, an operator zero or more rows. A time-insensitive module gets rows and sees
no times. A time-sensitive one gets ``TimedRow`` and the ``Window``, and an operator of that kind can stamp its results.

A row is the value, for a module with one input, else a named tuple of the inputs. Rows come in canonical order, never
in that of their arrival. A row in which an input is missing that may not be is not given to the module; an aggregate
without rows is missing. NaN is a float like others. States are changed or returned: what ``add`` and ``remove`` return
is the state from then on. Rows that come and go between two results are in neither.

A module that declares ``columns`` gets an array for each input where others get rows, in the same order: the array, or
a named tuple of them if it has several inputs. A time-sensitive one gets ``TimedColumns``. Operators can return columns
whatever they get: a mapping of arrays or lists by name, or a list of arrays; or ``StampedColumns``.
"""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

from lmerge.temporal.errors import PlanError
from lmerge.temporal.modules.properties import Properties, Results, TimedResults, TimedRow, Window
from lmerge.wire.schema import Column, Schema, SchemaLike, parse_schema

ROWS: Final = "rows"

Row = TypeVar("Row")
State = TypeVar("State")
Result = TypeVar("Result")


class UserModule:
    """What all modules declare. Parameters are those of the class's construction.

    ``name``: the class's name in small letters, if it is not set. ``version``: a number from 1. A plan records it, and
    a snapshot of another version is refused. ``inputs``: the columns that it takes, by type. Without them an operator
    takes the rows of any stream. ``columns``: "numpy", "arrow" or "list" for a module that gets columns, and no rows.
    In arrays of NumPy numbers and truth values that cannot be missing are as they are, and other values are objects.
    """

    name: str = ""
    version: int = 1
    inputs: ClassVar[SchemaLike | None] = None
    columns: Literal["rows", "list", "numpy", "arrow"] = ROWS
    properties: Properties = Properties()

    is_timed: ClassVar[bool] = False

    @classmethod
    def name_of_class(cls) -> str:
        """Return the name of the modules of a class."""
        return cls.name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    @property
    def module_name(self) -> str:
        """The module's name."""
        return self.name or self.name_of_class()

    @property
    def shown(self) -> str:
        """Name and version, for messages."""
        return f"module {self.module_name!r} version {self.version}"

    def input_schema(self) -> Schema | None:
        """Return the columns that the module takes, or None for any."""
        return None if self.inputs is None else parse_schema(self.inputs)


class AggregateModule(UserModule, ABC):
    """A module that returns one value. ``result``: its type, such as ``"float"``, or ``"float?"`` if it can be missing.

    Called by the plan; derive from the kinds below.
    """

    result: ClassVar[str] = ""

    def result_column(self, inputs: Schema) -> Column:
        """Return the type of the result for columns of these types; override it where it depends on them."""
        if not self.result:
            raise PlanError(f"{self.shown} declares no type of its result")
        return parse_schema({"result": self.result}).columns[0]


class OperatorModule(UserModule, ABC):
    """A module that returns rows. ``results``: their columns. Called by the plan; derive from the kinds below."""

    results: ClassVar[SchemaLike | None] = None

    def results_schema(self, inputs: Schema) -> Schema:
        """Return the columns of the results for rows of these columns; override it where it depends on them."""
        if self.results is None:
            raise PlanError(f"{self.shown} declares no columns of its results")
        return parse_schema(self.results)


class Incremental(ABC, Generic[Row, State]):
    """A module with a state for each window (IV.A.2). Equal sets must have states with equal results."""

    @abstractmethod
    def begin(self) -> State:
        """Return the state of no rows."""

    @abstractmethod
    def add(self, state: State, rows: Sequence[Row]) -> State:
        """Return the state with more rows: those that came since the last call, in canonical order."""

    @abstractmethod
    def remove(self, state: State, rows: Sequence[Row]) -> State:
        """Return the state with fewer rows, each as it was added."""

    def copied(self, state: State) -> State:
        """Return a state that changes independently."""
        return copy.deepcopy(state)

    def state_of(self, state: State) -> Any:
        """Return a state as plain values: numbers, text, bytes, lists, dicts with text keys."""
        return state

    def restore(self, plain: Any) -> State:
        """Return the state of plain values."""
        found: State = plain
        return found


class Mergeable(Incremental[Row, State]):
    """An incremental module whose states of two sets make the state of both (M5)."""

    @abstractmethod
    def merge(self, state: State, other: State) -> State:
        """Return the state of the rows of both; ``other`` must stay as it is."""


class Aggregate(AggregateModule, Generic[Row, Result]):
    """One value from the rows of a window."""

    @abstractmethod
    def compute(self, rows: Sequence[Row]) -> Result:
        """Return the value; there is at least one row."""


class IncrementalAggregate(AggregateModule, Incremental[Row, State], Generic[Row, State, Result]):
    """One value from a state."""

    @abstractmethod
    def compute(self, state: State) -> Result:
        """Return the value of a state with at least one row. It does not change the state."""


class TimedAggregate(AggregateModule, Generic[Row, Result]):
    """One value from the rows of a window, their lifetimes and the window."""

    is_timed = True

    @abstractmethod
    def compute(self, rows: Sequence[TimedRow[Row]], window: Window) -> Result:
        """Return the value; there is at least one row."""


class IncrementalTimedAggregate(AggregateModule, Incremental[TimedRow[Row], State], Generic[Row, State, Result]):
    """One value from a state of rows with lifetimes, and the window."""

    is_timed = True

    @abstractmethod
    def compute(self, state: State, window: Window) -> Result:
        """Return the value of a state with at least one row. It does not change the state."""


class Operator(OperatorModule, Generic[Row]):
    """Rows from the rows of a window."""

    @abstractmethod
    def compute(self, rows: Sequence[Row]) -> Results:
        """Return or yield rows; there is at least one row."""


class IncrementalOperator(OperatorModule, Incremental[Row, State]):
    """Rows from a state."""

    @abstractmethod
    def compute(self, state: State) -> Results:
        """Return or yield the rows of a state with at least one row. It does not change the state."""


class TimedOperator(OperatorModule, Generic[Row]):
    """Rows from the rows of a window, their lifetimes and the window, stamped or not."""

    is_timed = True

    @abstractmethod
    def compute(self, rows: Sequence[TimedRow[Row]], window: Window) -> TimedResults:
        """Return or yield rows; there is at least one row."""


class IncrementalTimedOperator(OperatorModule, Incremental[TimedRow[Row], State], Generic[Row, State]):
    """Rows from a state of rows with lifetimes, and the window, stamped or not."""

    is_timed = True

    @abstractmethod
    def compute(self, state: State, window: Window) -> TimedResults:
        """Return or yield the rows of a state with at least one row. It does not change the state."""
