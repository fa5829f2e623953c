"""Scenarios by intent (TESTING 2, A1 and A2): the sentence of section 3, the tree of figure 2, JSON, errors."""

from __future__ import annotations

import json

import pytest

import lmerge.temporal as lt
from lmerge.errors import UsageError
from lmerge.testing.intents.fluent import IntentScenario, scenario
from lmerge.testing.intents.json_format import NODES_MAX, scenario_from_json, scenario_to_json
from lmerge.testing.intents.placeholders import ANY
from lmerge.testing.intents.trees import in_order, placeholders_of


def equi_join() -> IntentScenario:
    s = scenario("equi-join over disorder")
    s.left.join(s.right).on(s.expr == s.expr)
    return s.data(disorder="out-of-order", speculation=True)


def everything() -> IntentScenario:
    """Return a scenario with every method of streams."""
    s = scenario("everything")
    flights = s.stream("flights", {"origin": "string", "delay": "int?"})
    late = flights.where(lt.col.delay > 15).select("origin", twice=lt.col.delay * 2)
    moved = late.shift().set_duration(3).clip_duration().extend().at_end(s.number(1, 4))
    signals = moved.edges(["origin"], lasts=ANY).coalesce().cleanse().union(moved)
    joined = signals.join(s.other, how=s.choice("left", "full")).on("origin", where=ANY)
    held = joined.as_of(flights, how=ANY, within=ANY)
    grouped = held.group_by(ANY).apply(lambda group: group.edges().where(s.expression("bool")))
    counted = grouped.group_by("origin").hopping().agg(n=lt.count(), most=lt.max(s.column("int")))
    s.output("counted", counted)
    s.output("ranked", flights.snapshot().top(by="delay", form="eager"))
    s.output("applied", flights.sessions(2).apply())
    s.output("open", flights.group_by().windows().agg())
    s.output("any", flights.count_windows(by="ends").agg().any(s.other))
    s.output("in groups", flights.group_by("origin").apply())
    return s


def test_the_sentence_of_section_3_is_a_scenario_with_four_open_leaves() -> None:
    """A1, A2 (3, 4): figure 2: both streams and both expressions of ``left.Join(right).On(left == right)`` are open."""
    s = equi_join()
    assert str(s) == "\n".join(
        [
            "scenario: equi-join over disorder",
            "inner join",
            "├─ left: any stream ?1",
            "├─ right: any stream ?2",
            "└─ on: any expression ?3 == any expression ?4",
            "data of every stream: disorder=out-of-order, speculation=True",
        ]
    )
    assert placeholders_of(list(s.results().values())) == ["?1", "?2", "?3", "?4"]


def test_a_join_without_a_condition_has_an_open_one() -> None:
    s = scenario("join")
    s.left.join(s.right)
    assert "on: any equality" in str(s)


def test_what_nothing_reads_is_a_result() -> None:
    s = scenario("two")
    late = s.left.where()
    late.shift(3)
    late.edges()
    assert [node.operator for node in s.results().values()] == ["lifetime", "edges"]
    assert list(s.results()) == ["result1", "result2"]


@pytest.mark.parametrize("make", [equi_join, everything])
def test_scenarios_survive_json(make: object) -> None:
    assert callable(make)
    stated: IntentScenario = make()
    document = json.loads(json.dumps(scenario_to_json(stated)))
    found = scenario_from_json(document)
    assert scenario_to_json(found) == document
    assert str(found) == str(stated)
    assert found.facets == stated.facets


def test_a_stream_that_is_read_twice_is_one_stream() -> None:
    s = scenario("diamond")
    s.left.where().join(s.left.shift())
    nodes = in_order(list(s.results().values()))
    assert [node.operator for node in nodes] == ["stream", "where", "lifetime", "join"]
    assert len(scenario_to_json(s)["nodes"]) == 4


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda s: s.results(), "has no operator, so there is nothing to test"),
        (lambda s: s.left.where().data(disorder="highly"), "only a source has data of its own"),
        (lambda s: s.choice(), "a choice has words to choose from"),
        (lambda s: s.number(4, 2), "no number is from 4 to 2"),
        (lambda s: s.left.union(scenario("other").right), "reads a stream of scenario 'other'"),
        (lambda s: s.stream("x", {"?1": "int"}), "has the name of a placeholder"),
        (lambda s: (s.stream("x", {"a": "int"}), s.stream("x", {"b": "int"})), "has another schema already"),
        (lambda s: s.left.group_by("a").tumbling().apply(), "a module of rows sees whole windows"),
        (lambda s: s.output("a", s.left.where()).output("a", s.left.where()), "has a result 'a' already"),
    ],
)
def test_what_cannot_be_meant_is_an_error(wrong: object, problem: str) -> None:
    assert callable(wrong)
    with pytest.raises(UsageError, match=problem):
        wrong(scenario("wrong"))


def test_a_condition_that_comes_too_late_is_an_error() -> None:
    s = scenario("late")
    joined = s.left.join(s.right)
    joined.where()
    with pytest.raises(UsageError, match="its condition comes too late"):
        joined.on("a")


NODE = {"id": "n1", "operator": "stream", "name": "left", "schema": {"open": "?1"}}
DOCUMENT = {
    "lmerge_scenario": 1,
    "name": "where",
    "open": {"?1": {"kind": "schema"}, "?2": {"kind": "expression", "type": "bool"}},
    "nodes": [NODE, {"id": "n2", "operator": "where", "reads": ["n1"], "predicate": {"expression": {"column": "?2"}}}],
    "outputs": {"result": "n2"},
}


def test_a_document_by_hand_is_a_scenario() -> None:
    assert "predicate: any bool expression ?2" in str(scenario_from_json(DOCUMENT))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"lmerge_scenario": 2}, "a scenario of version 2 cannot be read; this is version 1"),
        ({"lmerge_scenario": True}, "a scenario of version True"),
        ({"name": 3}, "a scenario has a name"),
        ({"nodes": [NODE, NODE]}, "two nodes have the id 'n1'"),
        ({"nodes": [{"id": "n1", "operator": "sort"}]}, "there is no operator 'sort'"),
        ({"nodes": [{"id": "n1", "operator": "where", "reads": ["n0"]}]}, "which is no node before it"),
        ({"nodes": [{"id": "n1", "operator": "where", "reads": []}]}, "where reads 1 streams or more, not 0"),
        ({"nodes": [NODE | {"size": 3}]}, "stream has no 'size'"),
        ({"nodes": [NODE | {"schema": {"open": "?9"}}]}, "there is no placeholder '\\?9'"),
        ({"nodes": [NODE | {"name": 7}]}, "a stream has a name of its own"),
        ({"nodes": [{"operator": "where"}]}, "an object with an id"),
        ({"nodes": [NODE] * (NODES_MAX + 1)}, f"it has at most {NODES_MAX}"),
        ({"outputs": {"result": "n7"}}, "output 'result' is node 'n7', and there is none"),
        ({"outputs": {}}, "outputs by name"),
        ({"open": {"1": {"kind": "schema"}}}, "its name begins with \\?"),
        ({"open": {"?1": {"kind": "thing"}}}, "has no kind 'thing'"),
        ({"open": {"?1": {"kind": "number", "least": "a"}}}, "least and most are whole numbers"),
        ({"open": {"?1": {"kind": "choice", "choices": [1]}}}, "its choices are a list of texts"),
        ({"open": {"?1": {"kind": "schema", "size": 1}}}, "has no field 'size'"),
        ({"open": []}, "are objects"),
        ({"data": {"left": 3}}, "are an object of facets"),
        ({"more": 1}, "a scenario has no field 'more'"),
    ],
)
def test_a_document_that_is_wrong_is_an_error_that_names_the_part(change: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        scenario_from_json(DOCUMENT | change)


def test_deep_sub_trees_are_refused() -> None:
    plan: dict[str, object] = {"plan": [{"id": "n1", "operator": "group"}]}
    for _ in range(40):
        inner = [
            {"id": "n1", "operator": "group"},
            {"id": "n2", "operator": "group_apply", "reads": ["n1"], "plan": plan},
        ]
        plan = {"plan": inner}
    node = {"id": "n3", "operator": "group_apply", "reads": ["n1"], "plan": plan}
    with pytest.raises(UsageError, match="nested deeper than"):
        scenario_from_json(DOCUMENT | {"nodes": [NODE, node], "outputs": {"result": "n3"}})


@pytest.mark.parametrize("document", [None, 3, [], {}, {"lmerge_plan": 1}])
def test_what_is_no_scenario_is_refused(document: object) -> None:
    with pytest.raises(UsageError, match="this is no scenario"):
        scenario_from_json(document)
