"""A real server and a merge of several as systems under test (TESTING 5, X4 and X7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from judged_world import inputs_by_hand, payload, tree_of

import lmerge.temporal as lt
from lmerge.client.publish.publisher import AsyncPublisher
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Adjust, Element, Insert, Stable
from lmerge.errors import UsageError
from lmerge.testing import FunctionSystem
from lmerge.testing.checking.session import TreeBudget, check_scenario, every_operator
from lmerge.testing.checking.tree_verdict import check
from lmerge.testing.judging.verdict import Judge, Judgement
from lmerge.testing.streams.batches import InputBatch
from lmerge.testing.systems.engine import EngineSystem
from lmerge.testing.systems.merged import MergedSystem
from lmerge.testing.systems.registered import SYSTEMS
from lmerge.testing.systems.server import ServerSystem
from lmerge.testing.systems.system import System

LEFT = lt.source("left", {"k": "int"})
ELEMENTS: list[Element] = [Insert(payload(LEFT, 1), 0, 3), Insert(payload(LEFT, 2), 1, 4), Stable(2), Stable(INF)]
INPUTS = inputs_by_hand([("left", ELEMENTS[:2]), ("left", ELEMENTS[2:])])


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as one:
        yield one


@pytest.mark.parametrize("name", ["server", "merge"])
def test_trees_on_a_system_mean_what_they_do_on_the_engine(judge: Judge, name: str) -> None:
    """X4, X7 (3): fifty trees through a real server, and through a merge."""
    checked = check_scenario(every_operator(), SYSTEMS.find(name), judge, seed=3, budget=TreeBudget(trees=50))
    assert not checked.bad, str(checked.bad[0])
    assert checked.count(Judgement.EQUAL) == 50


@pytest.mark.parametrize("what", ["source 'left'", "result 'result'"])
def test_a_server_that_loses_an_event_is_found(judge: Judge, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """On the way to the engine, or from there: the engine is not blamed."""
    publish, lost, merge = AsyncPublisher.publish, payload(LEFT, 1), what.split("'")[1]

    async def losing(self: AsyncPublisher, batch: Batch) -> None:
        elements = [one for one in batch.elements() if isinstance(one, Stable) or one.payload != lost]
        await publish(self, Batch.of(elements) if self.merge == merge else batch)

    monkeypatch.setattr(AsyncPublisher, "publish", losing)
    verdict = check(tree_of(LEFT.shift(0)), ServerSystem(), judge, INPUTS)
    assert verdict.failure == f"{what} has another table behind the server"


def test_a_stream_without_end_comes_through_a_server_as_far_as_it_is_decided(judge: Judge) -> None:
    events: list[Element] = [
        Insert(payload(LEFT, 1), 0, 3),
        Stable(2),
        Insert(payload(LEFT, 2), 5, 9),
        Adjust(payload(LEFT, 2), 5, 9, 7),
    ]
    verdict = check(tree_of(LEFT.extend(1)), ServerSystem(), judge, inputs_by_hand([("left", events)]))
    assert verdict.outcome is Judgement.EQUAL, str(verdict)
    assert verdict.run is not None
    assert verdict.run.outputs["result"][0].elements[0] == Insert(payload(LEFT, 1), 0, 4)


# Merges.


def emitting(name: str, *elements: Element) -> System:
    """Return a system that emits the same stream behind the first batch, whatever comes."""
    left: list[Sequence[Element]] = [elements]
    return FunctionSystem(lambda: lambda batch: left.pop() if left else (), name)


@pytest.mark.parametrize(
    ("elements", "problem"),
    [
        (ELEMENTS[1:], "result 'result', the merge: "),
        ([Stable(1), *ELEMENTS], "result 'result', input 'other': the merge ended it"),
        ([Insert(b"?", 0, 3), *ELEMENTS], ""),
    ],
)
def test_what_a_merge_finds_wrong_names_the_input(judge: Judge, elements: list[Element], problem: str) -> None:
    verdicts = []
    for row in range(8):  # each has another policy and order, and the other input may be killed before it is wrong
        system = MergedSystem([EngineSystem(), emitting("other", *elements)])
        verdicts.append(check(replace(tree_of(LEFT.shift(0)), row=row), system, judge, INPUTS))
    assert any(one.is_bad and problem in one.failure for one in verdicts), verdicts


def test_a_merge_has_two_systems_of_different_names() -> None:
    with pytest.raises(UsageError, match="a merge of engine: it has two systems or more, of different names"):
        MergedSystem([EngineSystem()])
    with pytest.raises(UsageError, match="a merge of engine, engine"):
        MergedSystem([EngineSystem(), EngineSystem()])


def test_a_system_that_fails_is_named(judge: Judge) -> None:
    def broken(batch: InputBatch) -> list[Element]:
        raise ValueError("no result")

    system = MergedSystem([EngineSystem(), FunctionSystem(lambda: broken, "other")])
    verdict = check(tree_of(LEFT.shift(0)), system, judge, INPUTS)
    assert verdict.failure == "other: other raised at batch 1: ValueError('no result')"
    assert set(verdict.versions) >= {"engine: lmerge", "other: python"}
