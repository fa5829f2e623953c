"""Evidence (TESTING 8): smaller cases, reports with drawn timelines, files that repeat a case byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from judged_world import ENGINE, payload, tree_of

import lmerge.temporal as lt
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Insert, Stable
from lmerge.errors import UsageError
from lmerge.temporal.operators import lifetimes
from lmerge.testing.checking.session import TreeBudget, check_scenario, every_operator
from lmerge.testing.checking.tree_verdict import TreeVerdict, check
from lmerge.testing.evidence.cases import SavedCase, load, save_case
from lmerge.testing.evidence.documents import RunDocument, as_json, write_documents
from lmerge.testing.evidence.report import report, summary
from lmerge.testing.evidence.shrinking import Shrinker, histories_of, only
from lmerge.testing.evidence.timeline import DrawnEvent, timeline
from lmerge.testing.intents.fluent import IntentScenario, scenario
from lmerge.testing.intents.json_format import scenario_to_json
from lmerge.testing.judging.verdict import Judge, Judgement
from lmerge.testing.streams.batches import InputBatch
from lmerge.testing.systems.inputs import TreeInputs, inputs_of
from lmerge.testing.transforming.transformer import transform

LEFT = lt.source("left", {"k": "int", "v": "int"})


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as one:
        yield one


@pytest.fixture
def wrong_extend(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect: events that end at a multiple of 3 are extended by one unit too much."""
    monkeypatch.setattr(
        lifetimes.Extend, "altered", lambda self, vs, ve: (vs, lifetimes.plus(ve, self.d + (ve % 3 == 0)))
    )


def extending() -> IntentScenario:
    s = scenario("extended, then counted")
    s.stream("left", {"k": "int", "v": "int"}).where(lt.col.k >= 0).extend(2).tumbling(5).agg(n=lt.count())
    return s.data(disorder="highly", revisions="all", liveliness="tight", speculation=False)


def bad_verdict(judge: Judge) -> TreeVerdict:
    for tree in transform(extending(), most=20):
        verdict = check(tree, ENGINE, judge)
        if verdict.is_bad:
            return verdict
    raise AssertionError("the defect is not found")


@pytest.mark.usefixtures("wrong_extend")
def test_a_case_is_made_as_small_as_the_defect(judge: Judge) -> None:
    """U2 (8): cases are shrunk."""
    verdict = bad_verdict(judge)
    small = Shrinker(ENGINE, judge).shrunk(verdict, inputs_of(verdict.tree))
    assert (small.operators, small.elements) == (1, 1)
    assert small.verdict.blamed is not None
    assert small.verdict.blamed.name == "lifetime"
    assert len(small.inputs.batches) == 1


@pytest.mark.usefixtures("wrong_extend")
def test_the_report_shows_the_cause(judge: Judge) -> None:
    """U1 (6.3): a user finds the cause from the report alone."""
    verdict = bad_verdict(judge)
    small = Shrinker(ENGINE, judge).shrunk(verdict, inputs_of(verdict.tree))
    text = report(small.verdict)
    for part in ("Operator 'lifetime' is blamed", "missing: ", "extra: ", "[--", "Input input1:", "versions: lmerge "):
        assert part in text
    assert "What it must mean, in SQL:\n  CREATE TEMP TABLE extend_1 AS" in text
    assert "seed " in report(verdict)


@pytest.mark.usefixtures("wrong_extend")
def test_a_saved_case_repeats_byte_for_byte(judge: Judge, tmp_path: Path) -> None:
    """U3 (8): a case is a file."""
    verdict = bad_verdict(judge)
    small = Shrinker(ENGINE, judge).shrunk(verdict, inputs_of(verdict.tree))
    case = SavedCase(small.tree, small.inputs, "engine", "lifetime: wrong")
    path = save_case(tmp_path, "extend", case)
    found = load(path)
    assert isinstance(found, SavedCase)
    assert found == case
    again = check(found.tree, ENGINE, judge, found.inputs)
    assert report(again) == report(small.verdict)
    other = save_case(tmp_path / "again", "extend", found)
    assert other.read_bytes() == path.read_bytes()
    session = (tmp_path / "extend.session.jsonl").read_bytes()
    assert (tmp_path / "again" / "extend.session.jsonl").read_bytes() == session
    assert session.startswith(b'{"op":"attach","input":"input1"')


def test_a_scenario_is_loaded_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.scenario.json"
    path.write_text(json.dumps(scenario_to_json(extending())))
    found = load(path)
    assert isinstance(found, IntentScenario)
    assert str(found) == str(extending())


def saved(folder: Path) -> dict[str, object]:
    """Save a case in a folder; return its document."""
    inputs = TreeInputs([InputBatch("left", [Insert(payload(LEFT, 1, 1), 0, 3), Stable(INF)])])
    save_case(folder, "case", SavedCase(tree_of(LEFT.extend(1)), inputs, "engine"))
    found: dict[str, object] = json.loads((folder / "case.scenario.json").read_text())
    return found


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"lmerge_case": 2}, "a case of version 2 cannot be read; this is version 1"),
        ({"more": 1}, "a case has no field 'more'"),
        ({"session": "../../etc/passwd"}, "a case has a session, a file beside it"),
        ({"session": "none.jsonl"}, "cannot read the scenario"),
        ({"batches": [["left", 1]]}, "1 elements are in no batch"),
        ({"batches": [["left", 3]]}, "batch 1 is of 3 elements of 'left'"),
        ({"batches": [["right", 2]]}, "batch 1 is of 2 elements of 'right'"),
        ({"batches": [["left", 0]]}, "a batch is a source and a number of elements"),
        ({"tree": {"lmerge_tree": 9}}, "a tree of version 9 cannot be read"),
        ({"tree": 3}, "this is no concrete tree"),
        ({"tree": {"lmerge_tree": 1}}, "the tree cannot be read"),
    ],
)
def test_a_case_that_is_wrong_is_an_error_that_names_file_and_part(
    tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    document = saved(tmp_path) | change
    path = tmp_path / "case.scenario.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=problem) as raised:
        load(path)
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is no JSON"),
        ('{"lmerge_case": 1, ', "it is no JSON"),
        ("[" * 100_000, "nested too deeply|no JSON"),
        ("3", "neither a scenario nor a case"),
        ("\0", "no JSON"),
    ],
)
def test_a_file_that_is_cut_or_hostile_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "x.scenario.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=problem):
        load(path)


def test_a_file_that_is_no_text_or_too_large_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.scenario.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is no text in UTF-8"):
        load(path)
    monkeypatch.setattr("lmerge.testing.evidence.cases.BYTES_MAX", 1)
    with pytest.raises(UsageError, match="more than 1 bytes"):
        load(path)


# Parts of the shrinker.


def test_what_is_kept_of_histories_is_legal() -> None:
    elements: list[Element] = [
        Insert(b"a", 0, 9),
        Stable(0),
        Adjust(b"a", 0, 9, 4),
        Insert(b"b", 3, INF),
        Adjust(b"b", 3, INF, 3),
        Stable(INF),
    ]
    inputs = TreeInputs([InputBatch("left", elements)])
    histories = histories_of(inputs)
    assert len(histories) == 3
    assert only(inputs, histories, [2, 2, 2]) == inputs
    plain = only(inputs, histories, [1, 0, 1]).elements("left")
    assert plain == [Insert(b"a", 0, 4), Stable(INF)]
    assert only(inputs, histories, [0, 0, 0]).elements("left") == [Stable(INF)]


def test_a_shrinker_without_time_gives_the_case_back(judge: Judge) -> None:
    tree = next(transform(extending(), most=1))
    verdict = check(tree, ENGINE, judge)
    small = Shrinker(ENGINE, judge, seconds=-1).shrunk(verdict, inputs_of(tree))
    assert small.tree == tree


# Timelines.


def test_a_timeline_has_every_event_on_one_scale() -> None:
    events = [DrawnEvent(" ", "(1)", 0, 60), DrawnEvent("+", "(2)", 30, None), DrawnEvent("-", "(3)", NEG_INF, INF)]
    first, second, third, axis = timeline(events, 30).split("\n")
    assert first.startswith("  (1)  [")
    assert first.endswith("0, 60")
    assert first.index("[") < second.index("[")
    assert second.rstrip().endswith("30, ...")
    assert "<" in third
    assert ">" in third
    assert axis.index("!") == second.index("[")
    assert axis.endswith("0 to 60 ! stable(30)")


@pytest.mark.parametrize("events", [[], [DrawnEvent(" ", "(1)", NEG_INF, INF)], [DrawnEvent(" ", "(1)", 5, 5)]])
def test_a_timeline_of_little_is_drawn_too(events: list[DrawnEvent]) -> None:
    assert len(timeline(events).split("\n")) == len(events) + 1


def test_long_timelines_are_cut() -> None:
    assert "... and 60 more" in timeline([DrawnEvent(" ", "x" * 90, at, at + 1) for at in range(100)])


# Documents.


@pytest.mark.usefixtures("wrong_extend")
def test_documents_have_verdicts_and_ledger(judge: Judge, tmp_path: Path) -> None:
    checked = check_scenario(extending(), ENGINE, judge, budget=TreeBudget(trees=6))
    run = RunDocument([checked], [("a.scenario.json", checked.verdicts[0])], 0)
    write_documents(tmp_path, run)
    found = json.loads((tmp_path / "verdicts.json").read_text())
    assert found == json.loads(json.dumps(as_json(run)))
    assert found["summary"] == summary(run.verdicts)
    bad = len(checked.bad)
    assert bad
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert next(suite.get("failures") for suite in root) == str(bad)
    assert any("is blamed" in str(failure.text) for failure in root.iterfind("./testsuite/testcase/failure"))
    page = (tmp_path / "index.html").read_text()
    assert "pairs of words are covered" in page
    assert "is blamed" in page
    assert page.count("<details>") == bad + 1, "trees that were not made smaller are folded"
    small = replace(run, smaller={one.tree.name: checked.bad[0] for one in checked.bad})
    write_documents(tmp_path, small)
    page = (tmp_path / "index.html").read_text()
    assert "<details>" not in page


def test_a_budget_bounds_the_trees(judge: Judge) -> None:
    assert len(check_scenario(every_operator(), ENGINE, judge, strength=1, budget=TreeBudget(trees=3)).verdicts) == 3
    none = check_scenario(every_operator(), ENGINE, judge, strength=1, budget=TreeBudget(seconds=0.0))
    assert none.verdicts == []
    assert none.count(Judgement.EQUAL) == 0
