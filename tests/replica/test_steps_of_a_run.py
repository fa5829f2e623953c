"""How many items a run takes at once, before and behind what feedback leaves out."""

from __future__ import annotations

from lmerge.core.elements import INF
from lmerge.replica import PythonItems, Query
from lmerge.replica.feeds import DirectFeed
from lmerge.replica.replica_run import STEP_ITEMS_FIRST, ReplicaOptions, ReplicaRun
from lmerge.replica.sources.declared import SourceContext
from lmerge.temporal.changes import Change
from lmerge.temporal.expressions.functions import FunctionRegistry
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.stream import source
from lmerge.temporal.running import Item, QueryRun
from lmerge.wire.schema import parse_schema

SCHEMA = {"x": "int"}


def feed_of_items(items: list[Item]) -> DirectFeed:
    declared = PythonItems(items=lambda: items)
    return DirectFeed("numbers", declared, declared.open(SourceContext("numbers", parse_schema(SCHEMA)), None))


def insert(at: int, end: int) -> Change:
    return Change((at,), at, at, end)


def test_items_are_unneeded_up_to_the_first_event_that_is_needed() -> None:
    feed = feed_of_items([insert(1, 3), 1, insert(2, 9), insert(3, 10), insert(4, 5), INF])
    assert feed.next_release() == 1
    assert feed.count_unneeded() == 0, "without feedback every event is needed"
    feed.fast_forward(10)
    assert feed.count_unneeded() == 3
    assert len(feed.take(2, None)) == 2
    assert feed.count_unneeded() == 1
    feed.take(1, None)
    assert feed.count_unneeded() == 0
    feed.take(1, None)
    assert feed.count_unneeded() == 2, "the end of the stream comes with what is before it"


def test_an_adjust_is_needed_if_the_event_was_or_will_be() -> None:
    for change in (Change((1,), 1, 20, 3), Change((1,), 1, 3, 20), Change((1,), 1, 20, 1)):
        feed = feed_of_items([change])
        feed.next_release()
        feed.fast_forward(10)
        assert feed.count_unneeded() == 0


def test_stable_points_alone_are_no_reason_for_a_step_of_their_own() -> None:
    feed = feed_of_items([1, 2, insert(3, 20)])
    feed.next_release()
    feed.fast_forward(10)
    assert feed.count_unneeded() == 0


def test_a_plan_that_has_caught_up_begins_with_small_steps() -> None:
    """The events that were left out took no time, which tells nothing of those that are computed."""
    calls: list[int] = []

    @FunctionRegistry().scalar(["int"], "bool", name="never")
    def never(x: int) -> bool:
        calls.append(x)
        return False

    items: list[Item] = [insert(at, at + 1) for at in range(10_000)]
    query = Query({"plan": source("numbers", SCHEMA).where(never(col.x))}, {"numbers": PythonItems(items=items)})
    run = ReplicaRun(query, None, servers="nowhere:7171", merge="m", replica="a", options=ReplicaOptions())
    run.query = QueryRun({"plan": run.node})
    run.feeds = [feed_of_items(items)]
    (feed,) = run.feeds
    run.query.fast_forward("plan", 8_000)
    feed.fast_forward(8_000)
    while not calls:
        assert feed.next_release() is not None
        run._step(feed)
    assert calls == list(range(7_999, 7_999 + STEP_ITEMS_FIRST))
