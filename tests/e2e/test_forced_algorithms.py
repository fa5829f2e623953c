"""What plans promise, against servers that are forced to an algorithm (IV.G, G3 to G6): each real, each in a process.

A server with ``--algorithm r0`` takes the streams for which r0 is derived, and refuses others with the reason.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import plan_modules  # noqa: F401  (it registers its modules)
import pytest
from cli_world import Served
from history_world import collect
from replica_world import Reading

from lmerge.client import describe_merge
from lmerge.core.elements import INF
from lmerge.core.properties import INSERT_ONLY, ORDERED
from lmerge.errors import LmergeError
from lmerge.replica import PythonItems, Query, run
from lmerge.temporal.changes import Change
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.properties import algorithm_of, explain
from lmerge.temporal.plan.stream import Stream, count, module, source

IN_ORDER = (INSERT_ONLY, ORDERED)


def numbers(*promises: str) -> Stream:
    return source("numbers", {"a": "int", "b": "int"}, promises=promises)


QUERIES: dict[str, tuple[Callable[[], Stream], str]] = {
    "G3: a count": (lambda: numbers(*IN_ORDER).tumbling(5).agg(n=count(), form="watermark"), "r0"),
    "G4: ranked rows": (lambda: numbers(*IN_ORDER).hopping(6, 4).top(2, by=col.b, form="final"), "r1"),
    "G5: a count by groups": (
        lambda: numbers(*IN_ORDER).group_by("a").tumbling(5).agg(n=count(), form="watermark"),
        "r1",
    ),
    "rows as they come": (lambda: numbers(*IN_ORDER).tumbling(5).apply(module("each_once"), form="eager"), "r2"),
    "G5: a snapshot by groups": (
        lambda: numbers(*IN_ORDER).group_by("a").snapshot().agg(n=count(), form="final"),
        "r3",
    ),
    "G6: a count by groups, without order": (
        lambda: numbers().group_by("a").tumbling(5).agg(n=count(), form="watermark"),
        "r3",
    ),
    "D16: the same when it is final": (lambda: numbers().group_by("a").tumbling(5).agg(n=count(), form="final"), "r1"),
    "lifetimes of their own": (
        lambda: numbers(*IN_ORDER).hopping(6, 4).apply(module("started_so_far"), form="settled"),
        "r4",
    ),
}


MERGES = {name: f"merge-{number}" for number, name in enumerate(QUERIES)}


@pytest.fixture(scope="module")
def forced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Served]]:
    """Return a function that returns the server that is forced to an algorithm."""
    servers: dict[str, Served] = {}

    def server_of(algorithm: str) -> Served:
        if algorithm not in servers:
            merges = (text for merge in MERGES.values() for text in ("--merge", merge))
            # The output ends with both replicas, also if one has everything before the other is there.
            options = ("--algorithm", algorithm, "--closing", "quorum:2", *merges)
            servers[algorithm] = Served(tmp_path_factory.mktemp(algorithm), *options)
        return servers[algorithm]

    yield server_of
    for server in servers.values():
        server.stop()


def in_order(random_: random.Random, *, is_ordered: bool) -> list[Change | int]:
    """Return a stream. Starts that are equal come in an order of its own, and without a promise all of them do."""
    shapes = random.Random(7)
    found: list[Change] = []
    for start in sorted(shapes.randint(0, 60) for _ in range(60)):
        row = (shapes.randint(0, 2), shapes.randint(0, 3))
        found.append(Change(row, start, start, start + shapes.randint(1, 9)))
    random_.shuffle(found)
    return [*(sorted(found, key=lambda change: change.vs) if is_ordered else found), INF]


def publish(stream: Stream, server: Served, merge: str, replica: str, items: Sequence[Any]) -> None:
    query = Query({"plan": stream}, {"numbers": PythonItems(items=[*items])})
    run(query, "plan", servers=server.target, merge=merge, replica=replica)


@pytest.mark.parametrize("name", QUERIES)
def test_a_server_that_is_forced_to_what_is_derived_takes_the_streams(
    name: str, forced: Callable[[str], Served]
) -> None:
    make, algorithm = QUERIES[name]
    stream, merge = make(), MERGES[name]
    assert algorithm_of(stream.node).case.algorithm == algorithm, explain(stream.node)
    server, is_ordered = forced(algorithm), ORDERED in compile_plan([stream.node]).sources[0].promises
    failures: list[LmergeError] = []

    def replica(number: int) -> None:
        try:
            publish(stream, server, merge, f"replica-{number}", in_order(random.Random(number), is_ordered=is_ordered))
        except LmergeError as error:
            failures.append(error)

    with Reading(server.target, merge) as reading:
        threads = [threading.Thread(target=replica, args=[number]) for number in range(2)]
        for thread in threads:
            thread.start()
        found = reading.table()
        for thread in threads:
            thread.join(60)
    assert not failures
    assert describe_merge(server.target, merge).summary.algorithm.lower() == algorithm
    items = in_order(random.Random(0), is_ordered=True)
    expected = collect(stream.node, {"numbers": [item for item in items if item != INF]})
    assert found == Counter((*event.row, event.vs, event.ve) for event in expected)


@pytest.mark.parametrize(
    ("form", "is_grouped", "algorithm", "lacks"),
    [
        ("eager", False, "r0", "insert-only"),
        ("eager", True, "r2", "insert-only"),
        ("watermark", True, "r0", "strictly-ordered"),
    ],
)
def test_a_server_that_is_forced_to_more_than_is_derived_refuses_with_the_reason(
    form: str, is_grouped: bool, algorithm: str, lacks: str, forced: Callable[[str], Served]
) -> None:
    grouped = numbers(*IN_ORDER).group_by("a") if is_grouped else numbers(*IN_ORDER)
    stream, server = grouped.tumbling(5).agg(n=count(), form=form), forced(algorithm)
    with pytest.raises(LmergeError) as refused:
        publish(stream, server, f"refused-{form}-{algorithm}", "eager", in_order(random.Random(0), is_ordered=True))
    assert algorithm in str(refused.value).lower()
    assert lacks in str(refused.value)
