"""The transformer (TESTING 2, A3 to A5; 4, M1 to M4): closed trees, every pair covered, equal seeds, equal trees."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

import pytest
from judged_world import ENGINE

import lmerge.temporal as lt
from lmerge.core.elements import Adjust
from lmerge.errors import UsageError
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.showing import tree
from lmerge.testing.checking.session import every_operator
from lmerge.testing.intents.fluent import IntentStream, scenario
from lmerge.testing.intents.placeholders import ANY
from lmerge.testing.systems.inputs import inputs_of
from lmerge.testing.transforming.choices import OPERATORS, unfit
from lmerge.testing.transforming.concrete import tree_from_json
from lmerge.testing.transforming.covering import CoverageLedger, covering_rows, random_row
from lmerge.testing.transforming.expressions import TYPES, ExpressionDraw
from lmerge.testing.transforming.spaces import Factor, TestSpace, Unfit
from lmerge.testing.transforming.speculation import make_speculative
from lmerge.testing.transforming.transformer import Transformer, transform
from lmerge.wire.schema import parse_schema

GOLDEN = Path(__file__).parent / "golden.json"


@pytest.fixture(scope="module")
def whole() -> Transformer:
    return Transformer(every_operator())


def test_every_pair_of_levels_that_can_be_is_in_some_tree(whole: Transformer) -> None:
    """A4 (4): the test space is sampled by covering arrays; the ledger has the proof."""
    trees = whole.covering_trees()
    for one in trees:
        whole.ledger.add(one.cell)
    found = whole.ledger.report()
    assert found["missing"] == []
    assert found["covered"] + len(found["excluded"]) == found["combinations"] > 4000
    assert all(one["reason"] for one in found["excluded"])
    kinds = Counter(node.kind for one in trees for node in in_order(list(one.outputs.values())))
    assert set(kinds) == {
        *("source", "filter", "select", "lifetime", "edges", "coalesce", "cleanse", "union", "join", "as_of"),
        *("aggregate", "top", "apply", "group_apply"),
    }


def test_trees_have_nothing_open_and_survive_json(whole: Transformer) -> None:
    """A3 (3, 4): every concrete tree is closed, and compiles."""
    for one in list(whole.trees(40)):
        document = json.loads(json.dumps(one.to_json()))
        assert '"column": "?' not in json.dumps(document["plan"])
        found = tree_from_json(document)
        assert found == one
        assert found.to_json() == one.to_json()


def test_equal_seeds_give_equal_trees_on_every_platform(request: pytest.FixtureRequest) -> None:
    found = {}
    for seed in range(3):
        trees = [one.to_json() for one in Transformer(every_operator(), seed).trees(12)]
        text = json.dumps(trees, sort_keys=True)
        found[str(seed)] = hashlib.sha256(text.encode()).hexdigest()
    assert len(set(found.values())) == 3
    if request.config.getoption("--rewrite"):
        GOLDEN.write_text(json.dumps(found, indent=2) + "\n")
    assert found == json.loads(GOLDEN.read_text()), "the transformer gives other trees: seeds mean others now"


def test_trees_beyond_the_array_are_drawn(whole: Transformer) -> None:
    """A8 (7): models make trees of their own."""
    count = len(covering_rows(whole.space, 2, 0))
    later = whole.tree(random_row(whole.space, Random(1)), count + 3)
    assert later.row == count + 3
    assert set(later.cell) == {factor.name for factor in whole.space.factors}


def test_a_tree_satisfies_its_intent() -> None:
    """A3 (3, 4): what the intent states is in the tree."""
    s = scenario("three hours late")
    flights = s.stream("flights", {"origin": "string", "delay": "int"})
    flights.where(lt.col.delay > 3).group_by("origin").tumbling(5).agg(n=lt.count(), form=ANY, output="align")
    s.data(speculation=False)
    forms = set()
    for one in transform(s, most=30):
        text = tree(one.outputs["result"])
        assert text.startswith("n=count() by origin in tumbling(5), ")
        assert "└─ filter col.delay > 3\n   └─ flights (origin: string, delay: int" in text
        forms.add(text.split("\n")[0].split("), ")[1].split(",")[0])
    assert forms == {"final", "settled", "watermark", "eager"}


def test_a_placeholder_is_one_choice_wherever_it_stands() -> None:
    s = scenario("twice")
    amount = s.number(2, 90)
    s.left.shift(amount).extend(amount)
    s.data(speculation=False)
    for one in transform(s, most=10):
        outer, inner, _ = tree(one.outputs["result"]).split("\n")
        assert outer.split()[-1] == inner.split()[-1]


def test_what_the_scenario_states_of_its_data_is_in_every_tree() -> None:
    s = scenario("disordered")
    s.left.where().join(s.right)
    s.data(disorder="highly", events=9)
    s.right.data(liveliness="none")
    for one in transform(s, most=20):
        assert {data.facets["disorder"] for data in one.data.values()} == {"highly"}
        assert {data.facets["events"] for data in one.data.values()} == {9}
        assert one.data["right"].facets["liveliness"] == "none"
        assert inputs_of(one) == inputs_of(one)


def test_where_a_number_is_stated_the_levels_fit_it() -> None:
    s = scenario("in numbers")
    s.left.where().join(s.right)
    s.data(displaced=0.5, revised=0.2)
    s.right.data(stables=0.3)
    trees = list(transform(s, most=40))
    levels = {name: {one.data[name].facets.get("liveliness", "tight") for one in trees} for name in ("left", "right")}
    assert levels["right"] == {"lazy", "open"}
    assert len(levels["left"]) == 6
    assert all(data.facets["revised"] == 0.2 for one in trees for data in one.data.values())


STATED_WINDOWS: Final[Mapping[str, Callable[[IntentStream], object]]] = {
    "snapshot": lambda stream: stream.snapshot().top(2),
    "sessions": lambda stream: stream.sessions(3).agg(),
    "hopping": lambda stream: stream.hopping(6, 2).agg(),
    "count by ends": lambda stream: stream.count_windows(2, by="ends").apply(),
    "in groups": lambda stream: stream.group_by("k").apply(lambda group: group.snapshot().top(2)),
}


@pytest.mark.parametrize("kind", STATED_WINDOWS)
def test_what_is_open_beside_stated_windows_fits_them(kind: str) -> None:
    """The end of a snapshot can move, so no result is a point at it; no other output is lost."""
    s = scenario("stated windows")
    STATED_WINDOWS[kind](s.left)
    transformer = Transformer(s)
    for made in transformer.covering_trees():
        transformer.ledger.add(made.cell)
    assert transformer.ledger.report()["missing"] == []


def test_levels_from_which_nothing_is_drawn_can_be_stated() -> None:
    s = scenario("as of a merge")
    s.left.where()
    s.data(disorder="mixed", revisions="drawn", liveliness="drawn", places=3, meeting=0.5)
    for one in transform(s, most=5):
        assert one.data["left"].facets["disorder"] == "mixed"
        assert inputs_of(one).elements("left")


@pytest.mark.parametrize(
    ("facets", "problem"),
    [
        ({"disorder": "wild"}, "disorder is 'wild'; it is one of in-order"),
        ({"shape": "point", "duration": "long"}, "a point lasts one unit of time"),
        ({"speculation": "much"}, "speculation is 'much'; it is true, false or one of none"),
        ({"lateness": 3}, "there is no facet 'lateness'"),
    ],
)
def test_data_that_cannot_be_is_an_error(facets: dict[str, object], problem: str) -> None:
    s = scenario("wrong")
    s.left.where()
    s.data(**facets)
    with pytest.raises(UsageError, match=problem):
        list(transform(s, most=3))


@pytest.mark.parametrize(
    "state",
    [
        lambda s: s.stream("x", {"raw": "bytes"}).group_by(ANY).apply(),
        lambda s: s.stream("x", {"a": "int"}).where(lt.col.b > 3),
        lambda s: s.stream("x", {"a": "int"}).snapshot().agg(n=lt.count(), output="point-at-end"),
        lambda s: s.stream("x", {"a": "int"}).where(s.expression("struct")),
    ],
)
def test_an_intent_that_no_tree_satisfies_is_an_error_that_names_the_operator(state: object) -> None:
    assert callable(state)
    s = scenario("impossible")
    state(s)
    with pytest.raises(UsageError, match=r"no tree satisfies|is drawn"):
        list(transform(s, most=2))


# Expressions.


def test_every_type_of_expression_is_drawn_and_is_of_its_type(seeds_of: Callable[[int, int], range]) -> None:
    schema = parse_schema(
        {"k": "int", "s": "string?", "x": "float?", "d": "decimal(2)", "t": "timestamp", "f": "bool?"}
    )
    for seed in seeds_of(2000, 40):
        for of_type in TYPES:
            for is_extreme in (False, True):
                draw = ExpressionDraw(Random(seed), schema, is_extreme)
                assert draw.type_of(draw.expression(of_type)).type == of_type


# Speculation by the shape of the query (figure 4).


def test_speculation_stands_above_the_import_in_the_tree() -> None:
    """M2 (5.2): figure 4, as a tree."""
    s = scenario("SUM with speculative input")
    left = s.stream("left", {"k": "int", "v": "int"})
    left.tumbling(5).agg(total=lt.sum(lt.col.v), form="eager")
    s.data(speculation=True)
    (one,) = list(transform(s, most=1))
    assert tree(one.outputs["result"]).split("\n")[1].startswith("└─ make speculative: apply by k")
    assert "speculation=True" in str(s)
    s.data(speculation="multicast")
    (other,) = list(transform(s, most=1))
    assert tree(other.outputs["result"]).split("\n")[1] == "└─ multicast: union"


def test_speculation_inserts_and_takes_back_events_that_overlap(seeds_of: Callable[[int, int], range]) -> None:
    """M1, M4, D12 (5.2): the stream above MakeSpeculative has inserts, and adjusts of events that are there."""
    s = scenario("speculative")
    made = s.stream("left", {"k": "int", "v": "int"}).shift(0)
    s.output("result", made)
    s.data(speculation="multicast", disorder="highly", duration="mixed", overlap="medium", liveliness="none")
    s.data(batching="one", revisions="none", keys="few", shape="interval", contact="free", duplicates="none")
    twice = 0
    for one in transform(s, most=len(seeds_of(200, 16))):
        run = ENGINE.run(one, inputs_of(one))
        elements = [element for batch in run.outputs["result"] for element in batch.elements]
        adjusts = [element for element in elements if isinstance(element, Adjust)]
        assert adjusts, one.row
        twice += any(first == second for first, second in pairwise(adjusts))
    assert twice  # D12: duplicate retractions


def test_a_stream_without_a_key_cannot_be_made_speculative() -> None:
    with pytest.raises(UsageError, match="has no column to group by"):
        make_speculative(lt.source("x", {"raw": "bytes"}), Random(1))


# Spaces and ledgers.


SPACE = TestSpace(
    (Factor("a", "a", ("1", "2")), Factor("b", "b", ("1", "2", "3")), Factor("c", "c", ("x", "y"))),
    (Unfit("a", "1", "b", "1", "no ones together"),),
)


@pytest.mark.parametrize("strength", [1, 2, 3])
def test_a_small_space_is_covered_in_every_strength(strength: int) -> None:
    ledger = CoverageLedger(SPACE, strength)
    rows = covering_rows(SPACE, strength, 1)
    for row in rows:
        assert (row["a"], row["b"]) != ("1", "1")
        ledger.add(row)
    assert ledger.missing() == []
    if strength > 1:
        assert set(ledger.excluded().values()) == {"no ones together"}


def test_the_ledger_reports_what_is_missing() -> None:
    ledger = CoverageLedger(SPACE, 2)
    ledger.add({"a": "1", "b": "2", "c": "x"})
    found = ledger.report()
    assert (found["covered"], found["combinations"], len(found["missing"])) == (3, 16, 12)
    assert {"a": "2", "b": "1"} in found["missing"]
    assert ledger.by_factors()["a", "b"] == (1, 1, 6)


def test_what_follows_from_two_exclusions_is_excluded_with_its_reason() -> None:
    unfit_pairs = (Unfit("a", "1", "b", "1", "r"), Unfit("c", "x", "b", "2", "r"), Unfit("c", "x", "b", "3", "r"))
    space = TestSpace(SPACE.factors, unfit_pairs)
    ledger = CoverageLedger(space, 2)
    for row in covering_rows(space, 2, 0):
        ledger.add(row)
    assert ledger.excluded()[("a", "1"), ("c", "x")].startswith("every cell with these words")


def test_a_space_that_nothing_satisfies_is_an_error() -> None:
    space = TestSpace(
        (*SPACE.factors[:1], Factor("b", "b", ("1",))), tuple(Unfit("a", x, "b", "1", "never") for x in "12")
    )
    with pytest.raises(UsageError, match="no tree has all that is asked for: never"):
        covering_rows(space, 2, 0)


@pytest.mark.parametrize("strength", [0, 4])
def test_another_strength_is_refused(strength: int) -> None:
    with pytest.raises(UsageError, match="it is 1, 2 or 3"):
        covering_rows(SPACE, strength, 0)


def test_exclusions_have_reasons_in_either_order() -> None:
    assert unfit("window", "sessions", "output", "point-at-end") == unfit(
        "output", "point-at-end", "window", "sessions"
    )
    assert unfit("window", "tumbling", "output", "point-at-end") is None
    assert len(OPERATORS) == 22
