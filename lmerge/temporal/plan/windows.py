"""Nodes of windows: groups, a division of time, and what is computed for each window (II.D.2, III.B, III.C)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from lmerge.errors import UsageError
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.binding import BoundProjection, bind_all
from lmerge.temporal.expressions.json_format import node_from_json, node_to_json
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.properties import places_of, plain_column
from lmerge.temporal.expressions.tree import Node
from lmerge.temporal.modules.aggregates import WindowAggregate, aggregate_module
from lmerge.temporal.modules.calls import NO_EMPTY_WINDOWS, WindowContext
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.calls import WindowCall, value_of_constant
from lmerge.temporal.plan.functions import check_deterministic
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.window_fields import fields_of_window, whole, window_of_fields
from lmerge.temporal.values import Values, order_key, order_of
from lmerge.temporal.windows.group import EmptyResults, WindowRules
from lmerge.temporal.windows.kinds import Hopping, Sessions, Snapshots, WindowDescriptor, WindowKind
from lmerge.temporal.windows.module import WindowModule
from lmerge.temporal.windows.policies import Clip, Form, Stamp
from lmerge.temporal.windows.window_operator import WindowOperator
from lmerge.wire.schema import Column, Schema

WINDOWS_MAX: Final = 1_000_000

COMPUTED: Final = object()
"""Stands for a value that a module computes for a window without events."""


@dataclass(frozen=True)
class WindowPolicies:
    """What a query writer chooses for windows (III.C, V.C). ``windows_max``: that a step may open in one group.

    ``rechecks``: modules compute each result twice. One that is not deterministic ends the query then.
    """

    clip: Clip = Clip.NONE
    form: Form = Form.FINAL
    stamp: Stamp = Stamp.ALIGN
    windows_max: int = WINDOWS_MAX
    rechecks: bool = False

    @property
    def shown(self) -> str:
        """The form, and what is not the default."""
        clip = "" if self.clip is Clip.NONE else f", clip {self.clip}"
        return f"{self.form}{clip}{'' if self.stamp is Stamp.ALIGN else f', {self.stamp}'}"

    def fields(self) -> dict[str, Any]:
        """Return the policies as JSON values."""
        fields = {"clip": str(self.clip), "form": str(self.form), "stamp": str(self.stamp)}
        return fields | {"windows_max": self.windows_max, "rechecks": self.rechecks}

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> WindowPolicies:
        """Return the policies of ``fields``. Raises PlanError."""
        limit, rechecks = whole(fields, "windows_max"), fields.get("rechecks", False)
        if not isinstance(rechecks, bool):
            raise PlanError(f"rechecks is {rechecks!r:.64}, which is neither true nor false")
        return cls(Clip(fields["clip"]), Form(fields["form"]), Stamp(fields["stamp"]), limit, rechecks)


@dataclass(frozen=True)
class WindowNode(PlanNode):
    """Something computed in the windows of each group. ``keys``: columns by which rows are grouped, which come first.

    Derived: which module computes it, and which columns its results have.
    """

    keys: tuple[tuple[str, Node], ...]
    window: WindowKind
    policies: WindowPolicies

    def __post_init__(self) -> None:
        if isinstance(self.window, (Snapshots, Sessions)) and self.policies.stamp is Stamp.POINT_AT_END:
            what = "snapshot" if isinstance(self.window, Snapshots) else "session"
            raise PlanError(f"{self.title}: the end of a {what} can move, so a result cannot be a point at it")
        if self.policies.windows_max < 1:
            raise PlanError(f"{self.title}: windows_max is {self.policies.windows_max}; a step opens at least 1")
        check_deterministic(self.title, [node for _, node in self.keys])
        _ = self.schema  # raises PlanError where two columns have one name

    @cached_property
    def bound_keys(self) -> BoundProjection:
        """The group's key for the rows that come in."""
        return bind_all(dict(self.keys), self.input_schema, operator=self.title)

    @property
    def context(self) -> WindowContext:
        """What a module learns of its windows."""
        return WindowContext(self.window, self.bound_keys.columns, self.can_be_empty)

    @property
    def can_be_empty(self) -> bool:
        """Whether windows without events can have results: on a grid that has a first window, without groups (V.D)."""
        return isinstance(self.window, Hopping) and self.window.since is not None and not self.keys

    @property
    def on_empty(self) -> EmptyResults | None:
        """What computes the results of a window without events, or None if it has none."""
        return None

    @property
    def module(self) -> WindowModule:
        """What computes the results of a window."""
        raise NotImplementedError

    @property
    def results(self) -> Sequence[Column]:
        """The columns of the results, behind the keys."""
        raise NotImplementedError

    @cached_property
    def schema(self) -> Schema:
        names = [name for name, _ in self.keys] + [column.name for column in self.results]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise PlanError(f"{self.title}: it has two columns named {twice!r:.64}: keys and results are columns")
        try:
            return Schema((*self.bound_keys.columns, *self.results))
        except UsageError as problem:
            raise PlanError(f"{self.title}: {problem}") from None

    @property
    def shown_windows(self) -> str:
        """Groups, windows and policies as text."""
        keys = [name if plain_column(node) == name else f"{name}={shown(node)}" for name, node in self.keys]
        by = f" by {', '.join(keys)}" if keys else ""
        return f"{by} in {self.window.shown}, {self.policies.shown}"

    @property
    def rules(self) -> WindowRules:
        """What is common to all windows of the operator."""
        chosen, key = self.policies, order_key(self.input_schema)
        policies = chosen.clip, chosen.stamp, chosen.form
        return WindowRules(
            self.window, self.module, *policies, key, chosen.windows_max, self.on_empty, None, chosen.rechecks
        )

    def operator(self, name: str) -> PlanOperator:
        rules, output_key, keys = self.rules, order_key(self.schema), self.bound_keys
        if not self.keys:
            return WindowOperator(name, rules, output_key)
        places = places_of([node for _, node in self.keys], self.input_schema)
        return WindowOperator(name, rules, output_key, keys.evaluate, order_of(keys.columns), places)

    def window_fields(self) -> dict[str, Any]:
        """Return groups, windows and policies as JSON values."""
        keys = [[name, node_to_json(node)] for name, node in self.keys]
        return {"keys": keys, "window": fields_of_window(self.window), **self.policies.fields()}


def keys_of_fields(fields: Mapping[str, Any]) -> tuple[tuple[str, Node], ...]:
    """Return the keys of ``window_fields``."""
    return tuple((name, node_from_json(node)) for name, node in fields["keys"])


@dataclass(frozen=True)
class AggregateNode(WindowNode):
    """Aggregates in the windows of each group. ``calls``: pairs of a result's name and the call."""

    kind = "aggregate"

    calls: tuple[tuple[str, WindowCall], ...]

    def __post_init__(self) -> None:
        if not self.calls:
            raise PlanError(f"{self.title}: it computes nothing")
        stamp = self.policies.stamp
        if stamp.keeps_own:
            raise PlanError(f"{self.title}: an aggregate has no lifetime of its own, so the output cannot be {stamp}")
        super().__post_init__()
        for _, call in self.calls:
            call.check_policies(self.title, self.policies.clip, stamp)

    @cached_property
    def aggregates(self) -> tuple[WindowAggregate, ...]:
        """The aggregates for the rows that come in."""
        schema, context = self.input_schema, self.context
        return tuple(call.bound_aggregate(result, schema, self.title, context) for result, call in self.calls)

    @cached_property
    def module(self) -> WindowModule:
        """What computes the results of a window."""
        return aggregate_module(self.aggregates, self.input_schema)

    @cached_property
    def results(self) -> Sequence[Column]:
        return [
            replace(one.result, name=name, nullable=one.result.nullable or value is None)
            for one, (name, _), value in zip(self.aggregates, self.calls, self._empty_values, strict=True)
        ]

    @cached_property
    def _empty_values(self) -> Sequence[Any]:
        """Return for each call its constant for a window without events.

        It is None where the value is missing, and ``COMPUTED`` where there is no such window, or a module computes it.
        """
        if not any(call.takes_empty for _, call in self.calls):
            return [COMPUTED] * len(self.calls)
        if not self.can_be_empty:
            raise PlanError(f"{self.title}: on_empty: {NO_EMPTY_WINDOWS}")
        values: list[Any] = []
        for aggregate, (_, call) in zip(self.aggregates, self.calls, strict=True):
            if call.on_empty is not None:
                values.append(value_of_constant(call.on_empty, aggregate.result))
            else:
                values.append(COMPUTED if call.takes_empty else None)
        return values

    @property
    def on_empty(self) -> EmptyResults | None:
        if not any(call.takes_empty for _, call in self.calls):
            return None
        parts = list(zip(self.aggregates, self._empty_values, strict=True))

        def row(window: WindowDescriptor) -> Sequence[Values]:
            return [tuple([one.over((), window) if value is COMPUTED else value for one, value in parts])]

        return row

    @property
    def shown(self) -> str:
        return f"{', '.join(f'{result}={call.shown}' for result, call in self.calls)}{self.shown_windows}"

    def fields(self) -> dict[str, Any]:
        return self.window_fields() | {"calls": [{"result": name, **call.fields()} for name, call in self.calls]}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> AggregateNode:
        calls = []
        for one in fields["calls"]:
            rest = {key: value for key, value in one.items() if key != "result"}
            calls.append((one["result"], WindowCall.of_fields(rest)))
        window, policies = window_of_fields(fields["window"]), WindowPolicies.of_fields(fields)
        return cls(tuple(reads), label, keys_of_fields(fields), window, policies, tuple(calls))
