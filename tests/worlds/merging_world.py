"""Helpers for the tests of the merge in Spark: streams in batches, the core's output, and the query's output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.tdb import Tdb
from lmerge.spark.merging.shard import InputPlan, MergePlan
from lmerge.testing.streams.merge_inputs import MIXED, present, reference

# The columns of a user's rows of elements, as Spark reads them.
FIELDS = "kind string, payload string, vs long, ve long, vold long, `order` long"

Row = dict[str, Any]
InputBatches = list[list[Element]]  # the elements of one input, batch by batch


def row_of(element: Element, order: int) -> Row:
    """Return an element as a user's row. Missing values are null."""
    row: Row = dict.fromkeys(("payload", "vs", "ve", "vold")) | {"order": order}
    if isinstance(element, Stable):
        return row | {"kind": "stable", "vs": element.vc}
    row |= {"payload": element.payload.decode(), "vs": element.vs, "ve": None if element.ve == INF else element.ve}
    if isinstance(element, Insert):
        return row | {"kind": "insert"}
    return row | {"kind": "adjust", "vold": None if element.vold == INF else element.vold}


def element_of(row: Mapping[str, Any]) -> Element:
    if row["kind"] == "stable":
        return Stable(row["vs"])
    ve, vold = (INF if row[name] is None else row[name] for name in ("ve", "vold"))
    if row["kind"] == "insert":
        return Insert(bytes(row["payload"]), row["vs"], ve)
    return Adjust(bytes(row["payload"]), row["vs"], vold, ve)


def rows_of(batches: InputBatches) -> list[list[Row]]:
    """Return batches of rows, with orders that continue from batch to batch."""
    numbers = iter(range(10**9))
    return [[row_of(element, next(numbers)) for element in batch] for batch in batches]


def cut(random: Random, stream: Sequence[Element], batches: int, first: int = 0) -> InputBatches:
    """Cut a stream into ``batches`` batches, of which those before ``first`` are empty."""
    ends = sorted(random.randint(0, len(stream)) for _ in range(batches - first - 1))
    edges = [0] * (first + 1) + ends + [len(stream)]
    return [list(stream[a:b]) for a, b in pairwise(edges)]


class Twin:
    """The service's core, which gets the same batches, one input after the other. It is compared after each batch."""

    def __init__(self, plan: MergePlan) -> None:
        self.merge = plan.fresh()
        self.plan = plan
        self.tdb = Tdb("twin")
        self.ended: list[str] = []

    def batch(self, batches: Mapping[int, Sequence[Element]]) -> tuple[list[Event], int]:
        for number in sorted(batches):
            outcome = self.merge.apply(self.plan.inputs[number].name, Batch.of(batches[number]))
            self.tdb.apply_batch(outcome.batch)
            self.ended += [detached.reason for detached in outcome.detached]
        return self.tdb.events(), self.merge.stable_point


class Output:
    """The query's output. Every batch must be a legal continuation, and end with at most one stable."""

    def __init__(self) -> None:
        self.tdb = Tdb("spark")
        self.ended: list[str] = []
        self.counts = {"insert": 0, "adjust": 0, "stable": 0}
        self._order = -1

    def batch(self, rows: Iterable[Mapping[str, Any]]) -> tuple[list[Event], int]:
        ordered = sorted(rows, key=lambda row: row["order"])
        stables = [row for row in ordered if row["kind"] == "stable"]
        assert len(stables) <= 1
        assert not stables or ordered[-1] is stables[0], "something comes behind the stable of its batch"
        for row in ordered:
            assert row["order"] >= self._order, "the order goes back"
            if row["ended"]:
                self.ended += row["ended"].split("; ")
            if row["kind"] == "stable" and row["vs"] == NEG_INF:
                assert row["ended"], "an empty stable"
                continue
            assert (row["shard"] is None) == (row["kind"] == "stable")
            self.counts[row["kind"]] += 1
            self.tdb.apply(element_of(row))
            self._order = row["order"]
        return self.tdb.events(), self.tdb.stable_point


def plan_of(algorithm: str = "r4", shards: int = 2, names: str = "ab", **more: Any) -> MergePlan:
    return MergePlan(tuple(InputPlan(name) for name in names), algorithm, shards, **more)


def streams(random: Random, algorithm: str, inputs: int, count: int = 40, **numbers: Any) -> list[list[Element]]:
    events = reference(random, count, duplicates=algorithm == "r4")
    return [present(random, events, replace(MIXED, **numbers)) for _ in range(inputs)]
