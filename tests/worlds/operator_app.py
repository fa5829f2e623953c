"""A program that prints what every operator emits and keeps, for rows of text: their hashes differ in each process."""

from __future__ import annotations

import random

from operator_world import interleaved
from temporal_world import random_stream

from lmerge.temporal.operators.as_of import AsOfJoinOperator
from lmerge.temporal.operators.cleanse import CleanseOperator
from lmerge.temporal.operators.coalesce import CoalesceOperator
from lmerge.temporal.operators.edges import EdgeOperator
from lmerge.temporal.operators.join import JoinKind, JoinOperator, JoinRules
from lmerge.temporal.operators.join_side import JoinInput
from lmerge.temporal.operators.lifetimes import Extend
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.operators.span import KeepRows, MapRows, SpanOperator, SpanPart
from lmerge.temporal.operators.union import UnionOperator
from lmerge.temporal.values import Values

ROWS = tuple((name, kind) for name in ("ada", "bob", "eve") for kind in ("x", "y"))


def by_text(row: Values) -> Values:
    return tuple((value is None, value or "") for value in row)


def by_name(row: Values) -> Values:
    return row[:1]


def operators() -> list[PlanOperator]:
    """Return one operator of each family, and each kind of join."""
    side = JoinInput(by_text, 2, by_name)
    parts: list[SpanPart] = [KeepRows(lambda row: row[0] != "bob"), MapRows(lambda row: row[:1]), Extend(2)]
    joins = [JoinRules(kind, side, side, lambda row: row[1] <= row[3]) for kind in JoinKind]
    return [
        SpanOperator("span", by_text, by_text, parts),
        UnionOperator("union", by_text, 2),
        *(JoinOperator("join", by_text, rules) for rules in joins),
        EdgeOperator("edges", by_text, by_name),
        AsOfJoinOperator("as of", by_text, side, side, is_outer=True),
        CoalesceOperator("coalesce", by_text),
        CleanseOperator("cleanse", by_text),
    ]


def main() -> None:
    for seed in range(10):
        for operator in operators():
            random_ = random.Random(seed)
            streams = [random_stream(random_, 30, ROWS) for _ in range(operator.inputs)]
            for at, deltas in enumerate(interleaved(random_, streams)):
                if at == 5:
                    print(operator.fast_forward(4))
                print(operator.step(deltas))
                print(operator.state())


if __name__ == "__main__":
    main()
