"""Nodes of joins: pairs of events that are valid together, and the parts of events without a partner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from lmerge.temporal.durations import show_duration, whole_duration
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.binding import BoundExpression, BoundProjection, bind, bind_all
from lmerge.temporal.expressions.json_format import node_from_json, node_to_json
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.tree import Node
from lmerge.temporal.operators.as_of import AsOfJoinOperator
from lmerge.temporal.operators.join import PAIRS_MAX, JoinKind, JoinOperator, JoinRules
from lmerge.temporal.operators.join_side import JoinInput
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.functions import check_deterministic
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.values import order_key
from lmerge.wire.schema import Column, Schema

KeyPairs: TypeAlias = tuple[tuple[Node, Node], ...]
"""Pairs of a left and a right expression that are equal in a pair of events."""


@dataclass(frozen=True)
class PairingNode(PlanNode):
    """What joins have in common: two streams, the keys that are equal in a pair, and the columns of both.

    A right column whose name the left stream has gets ``suffix``.
    """

    keys: KeyPairs = ()
    suffix: str = "_right"

    def __post_init__(self) -> None:
        if len(self.reads) != 2:
            raise PlanError(f"{self.title}: a join of {len(self.reads)} streams; it takes two")
        check_deterministic(self.title, [node for pair in self.keys for node in pair])
        for left, right in zip(self.bound_keys[0].columns, self.bound_keys[1].columns, strict=True):
            if replace(left, name="", nullable=False) != replace(right, name="", nullable=False):
                raise PlanError(
                    f"{self.title}: {left.name} is {left.describe()} and {right.name} is {right.describe()}; "
                    "only values of one type can be equal: cast one of them"
                )

    @cached_property
    def bound_keys(self) -> tuple[BoundProjection, BoundProjection]:
        """The keys for the rows of either side."""
        sides = ([left for left, _ in self.keys], [right for _, right in self.keys])
        left, right = (
            bind_all(side, read.schema, operator=self.title) for side, read in zip(sides, self.reads, strict=True)
        )
        return left, right

    @cached_property
    def pairs(self) -> Schema:
        """The columns of a left row with the right row behind it. Raises PlanError where two have one name."""
        left, right = self.reads
        taken = set(left.schema.names)
        columns = [
            replace(column, name=f"{column.name}{self.suffix}") if column.name in taken else column
            for column in right.schema.columns
        ]
        names = [*left.schema.names, *(column.name for column in columns)]
        clash = next((name for name in names if names.count(name) > 1), None)
        if clash is not None:
            raise PlanError(
                f"{self.title}: both streams have the column {clash!r:.64}, also with {self.suffix!r} behind it"
            )
        return Schema((*left.schema.columns, *columns))

    def padded(self, left: bool, right: bool) -> Schema:
        """Return the columns of a pair in which those of the left or the right row can be missing."""
        width = len(self.reads[0].schema.columns)
        columns = self.pairs.columns
        return Schema(_missing(columns[:width], left) + _missing(columns[width:], right))

    def inputs(self) -> tuple[JoinInput, JoinInput]:
        """Return what an operator has to know of either side."""
        left, right = (
            JoinInput(order_key(read.schema), len(read.schema.columns), bound.evaluate if self.keys else None)
            for read, bound in zip(self.reads, self.bound_keys, strict=True)
        )
        return left, right

    def shown_keys(self) -> list[str]:
        """Return the keys as text."""
        return [f"{shown(left)} == {shown(right)}" for left, right in self.keys]

    def fields(self) -> dict[str, Any]:
        keys = [[node_to_json(left), node_to_json(right)] for left, right in self.keys]
        return {"suffix": self.suffix, "keys": keys}


@dataclass(frozen=True)
class JoinNode(PairingNode):
    """Pairs of events that are valid together, and by ``how`` the parts of events without a partner.

    ``predicate`` sees the columns of both. ``pairs_max``: how many pairs a step compares at most.
    """

    kind = "join"

    how: JoinKind = JoinKind.INNER
    predicate: Node | None = None
    pairs_max: int = PAIRS_MAX

    def __post_init__(self) -> None:
        super().__post_init__()
        check_deterministic(self.title, [] if self.predicate is None else [self.predicate])
        if self.bound_predicate is not None and self.bound_predicate.column.type != "bool":
            raise PlanError(f"{self.title}: the predicate is {self.bound_predicate.column.describe()}, not bool")
        if not isinstance(self.pairs_max, int) or self.pairs_max < 1:
            raise PlanError(f"{self.title}: pairs_max is {self.pairs_max!r:.64}; a step compares at least 1 pair")
        self.operator(self.title)  # raises PlanError where the parts do not fit

    @cached_property
    def bound_predicate(self) -> BoundExpression | None:
        """The predicate for a left row with the right row behind it."""
        return None if self.predicate is None else bind(self.predicate, self.pairs, operator=self.title)

    @property
    def schema(self) -> Schema:
        if self.how is JoinKind.ANTI:
            return self.reads[0].schema
        return self.padded(self.how.reports_right, self.how.reports_left)

    @property
    def shown(self) -> str:
        parts = self.shown_keys() + ([] if self.predicate is None else [shown(self.predicate)])
        return f"{self.how} join on {' and '.join(parts)}"

    def operator(self, name: str) -> PlanOperator:
        rules = JoinRules(self.how, *self.inputs(), pairs_max=self.pairs_max)
        if self.predicate is not None and self.bound_predicate is not None:
            rules = replace(rules, predicate=self.bound_predicate.evaluate, shown=shown(self.predicate))
        return JoinOperator(name, order_key(self.schema), rules)

    def fields(self) -> dict[str, Any]:
        fields = super().fields() | {"how": str(self.how), "pairs_max": self.pairs_max}
        return fields if self.predicate is None else fields | {"predicate": node_to_json(self.predicate)}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> JoinNode:
        predicate = fields.get("predicate")
        node = None if predicate is None else node_from_json(predicate)
        how, pairs_max = JoinKind(fields["how"]), fields.get("pairs_max", PAIRS_MAX)
        return cls(tuple(reads), label, keys_of_fields(fields), fields["suffix"], how, node, pairs_max)


@dataclass(frozen=True)
class AsOfJoinNode(PairingNode):
    """Each left event with the latest right event of its key that has started when it starts.

    ``is_outer``: a left event without one is in the output too. ``within``: how long ago it started at most.
    """

    kind = "as_of"

    is_outer: bool = False
    within: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.within is not None:
            whole_duration(self.within, self.title, "a limit (within)")
        self.operator(self.title)  # raises PlanError where the parts do not fit

    @property
    def schema(self) -> Schema:
        return self.padded(False, self.is_outer)

    @property
    def shown(self) -> str:
        on = f" on {' and '.join(self.shown_keys())}" if self.keys else ""
        within = "" if self.within is None else f", within {show_duration(self.within)}"
        return f"{'left' if self.is_outer else 'inner'} as-of join{on}{within}"

    def operator(self, name: str) -> PlanOperator:
        left, right = self.inputs()
        return AsOfJoinOperator(name, order_key(self.schema), left, right, is_outer=self.is_outer, within=self.within)

    def fields(self) -> dict[str, Any]:
        fields = super().fields() | {"is_outer": self.is_outer}
        return fields if self.within is None else fields | {"within": self.within}

    @classmethod
    def of_fields(cls, reads: Sequence[PlanNode], label: str, fields: Mapping[str, Any]) -> AsOfJoinNode:
        is_outer = fields["is_outer"]
        if not isinstance(is_outer, bool):
            raise PlanError(f"is_outer is true or false, not {is_outer!r:.64}")
        return cls(tuple(reads), label, keys_of_fields(fields), fields["suffix"], is_outer, fields.get("within"))


def keys_of_fields(fields: Mapping[str, Any]) -> KeyPairs:
    """Return the keys that the fields of a join have. Raises PlanError."""
    return tuple((node_from_json(left), node_from_json(right)) for left, right in fields["keys"])


def _missing(columns: tuple[Column, ...], can_be: bool) -> tuple[Column, ...]:
    return tuple(replace(column, nullable=True) for column in columns) if can_be else columns
