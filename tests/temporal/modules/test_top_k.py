"""Top-k: SQL's ``rank() <= k``, with all ties (ENGINE O10)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from aggregate_definition import SCHEMA, order_of, random_event, same

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.errors import PlanError
from lmerge.temporal.modules.arguments import column_argument
from lmerge.temporal.modules.top_k import OrderBy, TopK
from lmerge.temporal.values import NAN, Values
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.wire.schema import Schema, parse_schema

WINDOW = WindowDescriptor(0, 10)
PAIRS = parse_schema({"name": "string", "value": "float?"})


def top(schema: Schema, k: int, *by: str, rank: str | None = None) -> TopK:
    """``by``: columns, descending with a minus before them."""
    keys = [OrderBy(column_argument(schema, name.lstrip("-"), "top"), name.startswith("-")) for name in by]
    return TopK(schema, k, keys, rank)


def results(module: TopK, rows: Sequence[Values]) -> list[Values]:
    return list(module.compute([Lifetime(row, 0, 1) for row in rows], WINDOW))


def goes_before(left: Values, right: Values, by: Sequence[tuple[int, bool]]) -> bool:
    """Return whether the rank of one row is better; missing values are last in either direction."""
    for place, descending in by:
        one, other = left[place], right[place]
        if (one is None) != (other is None):
            return other is None
        if order_of(one) != order_of(other):
            return bool(order_of(one) < order_of(other)) is not descending
    return False


@pytest.mark.parametrize("by", [("f",), ("-f",), ("-s", "i"), ("i", "-d"), ("-p", "l")])
def test_the_rows_are_those_whose_rank_is_at_most_k(by: tuple[str, ...]) -> None:
    places = [(SCHEMA.names.index(name.lstrip("-")), name.startswith("-")) for name in by]
    for seed in range(15):
        random_ = random.Random(seed)
        k = random_.randint(1, 5)
        module = top(SCHEMA, k, *by, rank="rank")
        state, events = module.begin(), list[Lifetime]()
        for _ in range(20):
            if events and random_.random() < 0.4:
                events.remove(gone := random_.choice(events))
                state = module.remove(state, gone)
            else:
                events.append(random_.choice(events) if events and random_.random() < 0.2 else random_event(random_))
                state = module.add(state, events[-1])
            found = []
            for event in events:
                rank = 1 + sum(goes_before(other.row, event.row, places) for other in events)
                if rank <= k:
                    found.append((*event.row, rank))
            found.sort(key=lambda row: (row[-1], tuple(map(order_of, row[:-1]))))
            assert same(module.result(state, WINDOW), found)
            assert same(module.state_of(module.restore(module.state_of(state))), module.state_of(state))
        left = module.copied(state)
        for event in events:
            left = module.remove(left, event)
        assert len(left) == 0
        assert same(module.state_of(module.merge(module.copied(state), state))[::2], module.state_of(state))


def test_all_ties_at_rank_k_come_out_and_the_ranks_behind_them_are_skipped() -> None:
    rows = [("a", 3.0), ("b", 2.0), ("c", 2.0), ("d", 2.0), ("e", 1.0)]
    for order in itertools.permutations(rows):
        assert results(top(PAIRS, 2, "-value"), order) == rows[:4]
        assert results(top(PAIRS, 4, "-value", rank="place"), order) == [
            ("a", 3.0, 1), ("b", 2.0, 2), ("c", 2.0, 2), ("d", 2.0, 2)
        ]  # fmt: skip
        assert results(top(PAIRS, 5, "-value"), order) == rows


def test_missing_values_are_last_in_either_direction_and_nan_is_the_largest() -> None:
    rows: list[Any] = [("a", None), ("b", 1.0), ("c", NAN), ("d", 2.0)]
    assert [row[0] for row in results(top(PAIRS, 4, "value"), rows)] == ["b", "d", "c", "a"]
    assert [row[0] for row in results(top(PAIRS, 4, "-value"), rows)] == ["c", "d", "b", "a"]


def test_equal_rows_are_as_many_rows() -> None:
    assert results(top(PAIRS, 1, "value"), [("a", 1.0), ("a", 1.0), ("b", 2.0)]) == [("a", 1.0), ("a", 1.0)]


def test_the_schema_of_the_results() -> None:
    assert top(PAIRS, 2, "value").results == PAIRS
    assert str(top(PAIRS, 2, "value", rank="place").results) == "name: string, value: float?, place: int"


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(PlanError, match=r"top\(0 by value\): k is 0; it must be at least 1"):
        top(PAIRS, 0, "value")
    with pytest.raises(PlanError, match="nothing to order by"):
        TopK(PAIRS, 1, [])
    with pytest.raises(PlanError, match="have a column 'name' already"):
        top(PAIRS, 1, "value", rank="name")
