"""The fluent surface of windows: groups, windows of a kind, and what is computed in each of them.

``Grouped`` and ``Windowed`` are steps on the way from a stream to the next one. ``S`` is the class of streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from lmerge.errors import UsageError
from lmerge.temporal.durations import Duration, duration_of
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.surface import Expression, Operand, Ranking, node_of
from lmerge.temporal.expressions.tree import ColumnReference, Node
from lmerge.temporal.modules.kinds import OperatorModule
from lmerge.temporal.modules.registry import MODULES, Declared
from lmerge.temporal.plan.applying import ApplyNode
from lmerge.temporal.plan.calls import CallParameters, WindowCall, constant
from lmerge.temporal.plan.groups import GroupApplyNode, GroupInputNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.ranking import TopNode
from lmerge.temporal.plan.windows import WINDOWS_MAX, AggregateNode, WindowPolicies
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Sessions, Snapshots, WindowKind
from lmerge.temporal.windows.policies import Clip, Form, Stamp

S = TypeVar("S")
Choice = TypeVar("Choice", bound=Enum)

RankedBy: TypeAlias = "Ranking | Expression | str"
"""What rows are ranked by: a column by its name, an expression, or either with ``desc()``."""

Taken: TypeAlias = "Operand | Sequence[Operand] | Mapping[str, Operand]"
"""What a module is given: a value for its only input, values in order, or by the names of its inputs."""


@dataclass(frozen=True)
class Grouped(Generic[S]):
    """A stream in groups. ``keys``: pairs of a column's name and its expression."""

    node: PlanNode
    keys: tuple[tuple[str, Node], ...]
    stream: Callable[[PlanNode], S]

    def tumbling(self, size: Duration, *, offset: Duration = 0, since: int | None = None) -> Windowed[S]:
        """Return windows of ``size`` in each group, one behind the other. ``since``: none begins before it."""
        length = _length_of(size, "tumbling", "a size")
        return self.over(
            _kind("tumbling", Hopping, length, length, duration_of(offset, "tumbling", "an offset"), since)
        )

    def hopping(self, size: Duration, hop: Duration, *, offset: Duration = 0, since: int | None = None) -> Windowed[S]:
        """Return windows of ``size`` in each group, one every ``hop``. ``since``: none begins before it."""
        lengths = _length_of(size, "hopping", "a size"), _length_of(hop, "hopping", "a hop")
        return self.over(_kind("hopping", Hopping, *lengths, duration_of(offset, "hopping", "an offset"), since))

    def snapshot(self) -> Windowed[S]:
        """Return the windows between consecutive starts and ends of a group's events."""
        return self.over(Snapshots())

    def count_windows(self, count: int, *, by: str = CountedEnd.STARTS.value) -> Windowed[S]:
        """Return windows over ``count`` distinct starts of a group, or ``by="ends"`` ends."""
        ends = choice_of(CountedEnd, by, "what a count window counts")
        return self.over(_kind("count_windows", CountWindows, count, ends))

    def sessions(self, gap: Duration) -> Windowed[S]:
        """Return a group's runs of events in which the next one starts at most ``gap`` behind all ends so far."""
        return self.over(_kind("sessions", Sessions, duration_of(gap, "sessions", "a gap")))

    def apply(self, sub_plan: Callable[[S], S], *, keys: bool = True) -> S:
        """Return the results of a sub-plan for each group: ``apply(lambda group: group.edges().extend(5))``.

        ``sub_plan`` is called once, with the stream of a group, and returns a stream of it. ``keys``: whether the
        group's key comes before its columns, which may not have the name of a key then.
        """
        result = sub_plan(self.stream(GroupInputNode.of_stream(self.node)))
        node = getattr(result, "node", None)
        if not isinstance(node, PlanNode):
            raise PlanError(f"a sub-plan returns a stream, not {result!r:.64}")
        return self.stream(GroupApplyNode((self.node,), "", self.keys, node, keys))

    def over(self, window: WindowKind) -> Windowed[S]:
        """Return windows of any kind."""
        return Windowed(self.node, self.keys, window, self.stream)


@dataclass(frozen=True)
class Windowed(Generic[S]):
    """Windows of a stream by groups, for which something is computed."""

    node: PlanNode
    keys: tuple[tuple[str, Node], ...]
    window: WindowKind
    stream: Callable[[PlanNode], S]
    windows_max: int = WINDOWS_MAX

    def at_most(self, windows_max: int) -> Windowed[S]:
        """Return the same windows, of which a step opens no more in one group: above, the query ends with an error."""
        return replace(self, windows_max=windows_max)

    def agg(
        self,
        *unnamed: object,
        form: Form | str = Form.FINAL,
        output: Stamp | str = Stamp.ALIGN,
        clip: Clip | str = Clip.NONE,
        rechecks: bool = False,
        **calls: WindowCall,
    ) -> S:
        """Return one event for each window that has events: the keys, and the results of aggregates by their names.

        ``form``: when results are emitted, and whether they are revised. ``output``: their lifetimes, ``align`` or
        ``point-at-end``. ``clip``: how lifetimes are cut to the window for aggregates that read them. ``rechecks``:
        each result is computed twice, and a module that is not deterministic ends the query.
        """
        if unnamed:
            raise PlanError(f"agg: {unnamed[0]!r:.64} needs a name, that of its column: agg(n=count())")
        for result, call in calls.items():
            if not isinstance(call, WindowCall):
                raise PlanError(f"{result}={call!r:.64} is no aggregate: write count(), aggregate() or module()")
        policies = self._policies(clip, form, output, rechecks)
        return self.stream(AggregateNode((self.node,), "", self.keys, self.window, policies, tuple(calls.items())))

    def apply(
        self,
        call: WindowCall,
        *,
        form: Form | str = Form.FINAL,
        output: Stamp | str | None = None,
        clip: Clip | str = Clip.NONE,
        rechecks: bool = False,
    ) -> S:
        """Return the rows that a user's operator makes of each window: ``apply(module("followed_by", first="A"))``.

        ``output``: their lifetimes. Without it those are the module's own (``unchanged``) if it is time-sensitive, and
        the window's (``align``) if it is not. A result that such a module does not stamp has the window's.
        ``clip``, ``rechecks``: as in ``agg``.
        """
        if not isinstance(call, WindowCall):
            raise PlanError(f"{call!r:.64} is no call of a module: write module()")
        if output is None:
            module = call.module
            is_timed = isinstance(module, OperatorModule) and module.is_timed
            output = Stamp.UNCHANGED if is_timed else Stamp.ALIGN
        policies = self._policies(clip, form, output, rechecks)
        return self.stream(ApplyNode((self.node,), "", self.keys, self.window, policies, call))

    def top(
        self,
        k: int,
        *,
        by: RankedBy | Sequence[RankedBy],
        rank: str | None = "rank",
        form: Form | str = Form.FINAL,
        output: Stamp | str = Stamp.ALIGN,
    ) -> S:
        """Return the rows of each window and group with ``rank() <= k``: ``top(10, by=[col.delay.desc(), "number"])``.

        All rows that tie with the k-th are there. Missing values rank last in either direction. ``rank``: the name of a
        column for the rank, behind the keys and the other columns; None leaves it out.
        """
        order = tuple(map(_ranked, [by] if isinstance(by, (str, Expression, Ranking)) else by))
        policies = self._policies(Clip.NONE, form, output)
        return self.stream(TopNode((self.node,), "", self.keys, self.window, policies, k, order, rank))

    def _policies(
        self, clip: Clip | str, form: Form | str, output: Stamp | str, rechecks: bool = False
    ) -> WindowPolicies:
        stamp = choice_of(Stamp, output, "an output")
        chosen = choice_of(Clip, clip, "a clipping"), choice_of(Form, form, "a form"), stamp
        return WindowPolicies(*chosen, self.windows_max, rechecks)


def _kind(operator: str, make: Callable[..., WindowKind], *parts: object) -> WindowKind:
    """Return a kind of windows. Raises PlanError, which names the operator."""
    try:
        return make(*parts)
    except UsageError as problem:
        raise PlanError(f"{operator}: {problem}") from None


def _length_of(given: Duration, operator: str, what: str) -> int:
    """Return the length of a window or the distance of two. Raises PlanError."""
    found = duration_of(given, operator, what)
    if found < 1:
        raise PlanError(f"{operator}: {what} of {found}; it is at least one unit of time")
    return found


def aggregate(name: str, /, *arguments: Operand, on_empty: Operand | None = None, **parameters: Any) -> WindowCall:
    """Return a call of an aggregate by its name: ``aggregate("percentile_cont", "delay", p=0.9)``.

    Text is the name of a column; a constant text is ``lit("JFK")``.
    ``on_empty``: the result of a window without events, on a grid with ``since`` and without groups. Without it such a
    window has no results; beside calls that have it, a missing value.
    """
    constant_of = None if on_empty is None else constant(node_of(on_empty))
    version = MODULES.recorded_version(name)
    return WindowCall(name, tuple(map(_argument, arguments)), CallParameters(parameters), version, constant_of)


def count(argument: Operand | None = None, *, on_empty: int | None = None) -> WindowCall:
    """Return the number of rows, or of those in which a value is not missing. ``on_empty``: as in ``aggregate``."""
    return aggregate("count", *([] if argument is None else [argument]), on_empty=on_empty)


def module(name: str, /, of: Taken | None = None, *, on_empty: Operand | None = None, **parameters: Any) -> WindowCall:
    """Return a call of a user's module: ``module("my_average", of=col.delay, digits=1)``.

    ``of``: what the module is given; text is the name of a column. Without it the columns go to the inputs of their
    names; an operator without declared inputs gets whole rows. ``on_empty``: as in ``aggregate``. The plan records the
    version that is installed. Raises PlanError if there is no such module, or for a parameter that does not fit.
    """
    constant_of = None if on_empty is None else constant(node_of(on_empty))
    call = WindowCall(name, None, CallParameters(parameters), MODULES.find(name).version, constant_of)
    found = call.module
    assert found is not None
    if of is None:
        return call
    if not isinstance(of, Mapping):
        values = of if isinstance(of, (list, tuple)) else [of]
        return replace(call, arguments=tuple(map(_argument, values)))
    inputs = found.input_schema()
    names = () if inputs is None else inputs.names
    if set(of) != set(names):
        there = ", ".join(names) or "none by name"
        raise PlanError(f"{found.shown} is given {', '.join(of) or 'nothing'}; its inputs are {there}")
    return replace(call, arguments=tuple(_argument(of[one]) for one in names))


def method_of(declared: Declared | str) -> Callable[..., WindowCall]:
    """Return a function that makes calls of a module: ``my_average(of=col.delay, digits=1)``.

    ``declared``: a module, which is registered if it is not installed, or its name. Raises PlanError if another module
    has that name.
    """
    name = declared if isinstance(declared, str) else MODULES.named(declared)

    def call(of: Taken | None = None, *, on_empty: Operand | None = None, **parameters: Any) -> WindowCall:
        return module(name, of, on_empty=on_empty, **parameters)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Return a call of module {name!r}."
    return call


def named_column(column: Expression | str) -> tuple[str, Node]:
    """Return a plain column with its name. Raises PlanError for an expression that computes something."""
    if isinstance(column, str):
        return column, ColumnReference(column)
    if not isinstance(column, Expression):
        raise PlanError(f"{column!r:.64} is no column: write its name, col.name, or name=value for a computed one")
    if not isinstance(column.node, ColumnReference):
        raise PlanError(f"({column}) needs a name: name={column}")
    return column.node.name, column.node


def grouping_keys(keys: Iterable[Expression | str], computed: Mapping[str, Operand]) -> tuple[tuple[str, Node], ...]:
    """Return the keys of groups, plain ones first."""
    return (*map(named_column, keys), *((name, node_of(value)) for name, value in computed.items()))


def choice_of(choices: type[Choice], given: object, what: str) -> Choice:
    """Return a member of an enum of texts, or the one with that text. Raises PlanError, which names all of them."""
    try:
        return choices(given)
    except ValueError:
        names = ", ".join(str(choice.value) for choice in choices)
        raise PlanError(f"{given!r:.64} is not {what}: there are {names}") from None


def _ranked(by: RankedBy) -> tuple[Node, bool]:
    if isinstance(by, Ranking):
        return by.node, by.descending
    return named_argument(by), False


def _argument(value: Operand) -> Node:
    """Return what a call is given: a column by its name, an expression or a constant."""
    return ColumnReference(value) if isinstance(value, str) else node_of(value)


def named_argument(given: Expression | str) -> Node:
    """Return a column by its name, or an expression. Raises PlanError for what is neither."""
    if isinstance(given, str):
        return ColumnReference(given)
    if not isinstance(given, Expression):
        raise PlanError(f"{given!r:.64} is neither the name of a column nor an expression")
    return given.node


def predicate_of(given: object, operator: str) -> Node:
    """Return the tree of a predicate. Raises PlanError, which names the operator, for what is no expression."""
    if not isinstance(given, Expression):
        hint = "; it is built once, over columns, and not called with rows" if callable(given) else ""
        raise PlanError(f"{operator}: {given!r:.64} is no expression, such as col.delay > 15{hint}")
    return given.node
