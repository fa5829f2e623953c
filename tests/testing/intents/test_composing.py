"""Composition (TESTING 1, T5): results become streams, scenarios become nodes, to any depth, judged at every edge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from judged_world import ENGINE

import lmerge.temporal as lt
from lmerge.errors import UsageError
from lmerge.testing import scenario
from lmerge.testing.checking.tree_verdict import check
from lmerge.testing.intents.fluent import IntentScenario
from lmerge.testing.intents.json_format import scenario_from_json, scenario_to_json
from lmerge.testing.judging.verdict import Judge, Judgement
from lmerge.testing.transforming.transformer import transform

COLUMNS = {"k": "int", "v": "int"}


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as one:
        yield one


def late() -> IntentScenario:
    s = scenario("late")
    s.stream("flights", COLUMNS).where(lt.col.v > 1)
    return s.data(disorder="out-of-order")


def counted() -> IntentScenario:
    s = scenario("counted")
    s.events.group_by("k").tumbling().agg(n=lt.count())
    return s


def joined() -> IntentScenario:
    s = scenario("joined")
    s.left.join(s.right).on(s.expr == s.expr)
    return s


def test_the_result_of_one_is_the_stream_of_the_next() -> None:
    made = late() >> counted()
    assert str(made).split("\n")[:5] == [
        "scenario: late, then counted",
        "aggregate",
        "├─ where",
        "│  ├─ flights: stream of k int, v int",
        "│  └─ predicate: col.v > 1",
    ]
    assert made.facets == {"*": {"disorder": "out-of-order"}}
    assert scenario_to_json(scenario_from_json(scenario_to_json(made))) == scenario_to_json(made)


def test_a_composition_of_depth_4_is_judged_at_every_edge(judge: Judge) -> None:
    """T5, U8 (1.2, 7): tests of one operator compose, to any depth."""
    extended = scenario("extended")
    extended.events.extend()
    lasting = scenario("lasting")
    lasting.events.edges()
    made = late() >> counted() >> extended >> lasting
    for tree in transform(made, most=8):
        verdict = check(tree, ENGINE, judge)
        assert verdict.outcome is Judgement.EQUAL, str(verdict)
        assert len(verdict.operators) >= 3
    assert len(list(late().results())) == 1


def test_a_scenario_is_a_node_of_another() -> None:
    made = joined().embed("left", late() >> counted())
    text = str(made)
    assert "├─ aggregate\n│  ├─ where\n│  │  ├─ flights: stream of k int, v int" in text
    assert "├─ right: any stream" in text
    assert made.name == "joined, on late, then counted"


def test_scenarios_side_by_side_share_their_streams(judge: Judge) -> None:
    moved = scenario("moved")
    moved.stream("flights", COLUMNS).shift()
    made = late() & moved
    assert list(made.results()) == ["result", "result2"]
    for tree in transform(made, most=6):
        assert list(tree.sources) == ["flights"]
        assert check(tree, ENGINE, judge).outcome is Judgement.EQUAL


def test_placeholders_of_both_stay_apart() -> None:
    made = joined() >> joined()
    names = list(made.placeholders)
    assert len(names) == len(set(names)) == 4 + 2  # both have the stream on the right


@pytest.mark.parametrize(
    ("compose", "problem"),
    [
        (lambda: (late() & joined()) >> counted(), "has 2 results, 'counted' 1 streams"),
        (lambda: joined().embed("middle", late()), "has no stream 'middle'; there are left, right"),
        (lambda: joined().embed("left", late() & counted()), "has 2 results; one takes the place"),
    ],
)
def test_what_does_not_fit_is_an_error(compose: object, problem: str) -> None:
    assert callable(compose)
    with pytest.raises(UsageError, match=problem):
        compose()


def test_a_shared_stream_has_one_schema() -> None:
    other = scenario("other")
    other.stream("flights", {"k": "string"}).where()
    with pytest.raises(UsageError, match="both scenarios have a stream 'flights', with other columns"):
        late() & other
