"""The third opinion (TESTING 6, V7): definition, SQL and engine agree over few events, and who is blamed if not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final

import pytest
from judged_world import ENGINE

import lmerge.temporal as lt
from lmerge.temporal.operators import lifetimes
from lmerge.temporal.row_forms import RowForms
from lmerge.testing.canonical import joins, presence, samples, spans, windows
from lmerge.testing.checking.session import every_operator
from lmerge.testing.checking.tree_verdict import check
from lmerge.testing.decided import Events
from lmerge.testing.intents.fluent import scenario
from lmerge.testing.judging.definitions import EVENTS_MAX
from lmerge.testing.judging.operator_run import OperatorRun
from lmerge.testing.judging.verdict import Judge, Judgement, defined_table, final_table
from lmerge.testing.systems.inputs import inputs_of
from lmerge.testing.transforming.concrete import ConcreteTree
from lmerge.testing.transforming.transformer import Transformer


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as one:
        yield one


def small_trees(seed: int, most: int | None = None) -> Iterator[ConcreteTree]:
    """Yield trees over few events, of every operator."""
    s = every_operator()
    s.data(events=4, shape="interval", duration="mixed", liveliness="tight")
    yield from Transformer(s, seed).trees(most)


def tables_of(operator: OperatorRun) -> list[Events]:
    """Return the tables of the streams that an operator has read."""
    reads = enumerate(operator.reads)
    return [final_table(read, (taken[at] for _, taken, _ in operator.steps)) for at, read in reads]


def test_definition_sql_and_engine_agree_over_few_events(judge: Judge, seeds_of: Callable[[int, int], range]) -> None:
    """V1, V7, A7 (6.1, 6.3, 3): every operator has its sequence of queries."""
    kinds: Counter[str] = Counter()
    for seed in seeds_of(40, 40):
        for tree in small_trees(seed, 40):
            verdict = check(tree, ENGINE, judge)
            assert not verdict.is_bad, str(verdict)
            assert verdict.run is not None
            for operator in verdict.run.operators:
                defined = defined_table(operator, tables_of(operator))
                if defined is None:
                    continue
                kinds[operator.result.kind] += 1
                found = final_table(operator.result, (given for _, _, given in operator.steps))
                if operator.has_ended():
                    assert defined == found, (tree.name, operator.name)
    assert len(kinds) >= 10, kinds


def empty_windows(seed: int) -> Iterator[ConcreteTree]:
    """Yield trees of a grid that has a first window and no groups."""
    s = scenario("empty windows")
    since = s.stream("left", {"k": "int", "v": "int"}).tumbling(since=-20 * (seed % 5))
    since.agg(n=lt.count(on_empty=0), m=lt.max(lt.col.v))
    s.data(events=3, shape="interval", duration="short", liveliness="tight", overlap="low", speculation=False)
    yield from Transformer(s, seed).trees(4)


def test_windows_without_events_are_judged_by_all_three(judge: Judge, seeds_of: Callable[[int, int], range]) -> None:
    """V.D: a grid that has a first window, and no groups, has results there."""
    judged = 0
    for seed in seeds_of(60, 4):
        for tree in empty_windows(seed):
            verdict = check(tree, ENGINE, judge)
            assert verdict.outcome is Judgement.EQUAL, str(verdict)
            assert verdict.run is not None
            for operator in verdict.run.operators:
                found = final_table(operator.result, (given for _, _, given in operator.steps))
                assert defined_table(operator, tables_of(operator)) == found, str(tree)
                forms = RowForms(operator.result.schema)
                judged += sum(forms.of_payload(payload) == (0, None) for payload, _, _ in found)
    assert judged > 10


WRONG_SQL: Final[dict[str, tuple[Any, str, Callable[[str], str]]]] = {
    "spans.extended": (spans, "extended", lambda query: query.replace("+ (", "+ 1 + (", 1)),
    "spans.shifted": (spans, "shifted", lambda query: query.replace("HUGEINT) + (", "HUGEINT) + 1 + (", 1)),
    "presence.coalesced": (presence, "coalesced", lambda query: query.replace("vs <= max(ve)", "vs < max(ve)")),
    "samples.edges": (samples, "edges", lambda query: query.replace("ORDER BY vs)", "ORDER BY vs DESC)")),
    "joins.inner": (joins, "inner", lambda query: query.replace("l.vs < r.ve", "l.vs <= r.ve - 2")),
    "windows.in_hopping": (windows, "in_hopping", lambda query: query.replace("+ 1 AS BIGINT)", "AS BIGINT)")),
    "windows.in_snapshots": (windows, "in_snapshots", lambda query: query.replace("e.ve > w", "e.ve >= w")),
    "windows.in_sessions": (windows, "in_sessions", lambda query: query.replace("<= ", "< ")),
    "windows.ranked": (windows, "ranked", lambda query: query.replace("rank()", "row_number()")),
    "windows.at_end": (windows, "at_end", lambda query: query.replace("window_end - 1", "window_end - 2")),
    "windows.clipped": (windows, "clipped", lambda query: query.replace("greatest(vs", "least(vs")),
}


@pytest.mark.parametrize("name", WRONG_SQL)
def test_an_error_in_the_sql_is_blamed_on_the_sql(judge: Judge, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """V7 (6.3): the third opinion decides."""
    module, function, wrong = WRONG_SQL[name]
    right = getattr(module, function)
    monkeypatch.setattr(module, function, lambda *args, **kwargs: wrong(right(*args, **kwargs)))
    outcomes: Counter[Judgement] = Counter()
    for tree in chain.from_iterable(small_trees(seed, 400) for seed in range(6, 12)):
        verdict = check(tree, ENGINE, judge)
        outcomes.update(one.outcome for one in verdict.operators)
        if outcomes[Judgement.BROKEN]:
            break
    assert outcomes[Judgement.BROKEN], name


WRONG_ENGINE: Final[dict[str, tuple[Any, str, Any]]] = {
    "extend": (lifetimes.Extend, "altered", lambda self, vs, ve: (vs, lifetimes.plus(ve, self.d + 1))),
    "set duration": (lifetimes.SetDuration, "altered", lambda self, vs, ve: (vs, lifetimes.plus(vs, self.d + 1))),
}


@pytest.mark.parametrize("name", WRONG_ENGINE)
def test_an_error_in_the_engine_is_blamed_on_the_operator(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    owner, method, wrong = WRONG_ENGINE[name]
    monkeypatch.setattr(owner, method, wrong)
    for tree in small_trees(2, 400):
        verdict = check(tree, ENGINE, judge)
        bad = [one for one in verdict.operators if one.is_bad]
        assert all(one.outcome is Judgement.DIFFERENT for one in bad), str(verdict)
        if bad:
            return
    raise AssertionError("the defect is not found")


def test_larger_inputs_have_no_third_opinion(judge: Judge) -> None:
    tree = next(Transformer(every_operator(), 0).trees(1))
    run = ENGINE.run(tree, inputs_of(tree))
    operator = run.operators[0]
    tables = tables_of(operator)
    assert max(events.total() for events in tables) > EVENTS_MAX
    assert defined_table(operator, tables) is None


def test_an_error_in_the_sql_of_empty_windows_is_blamed_on_the_sql(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = windows.grid
    monkeypatch.setattr(windows, "grid", lambda *args: right(*args).replace("greatest(", "greatest(2 + ", 1))
    outcomes = {check(tree, ENGINE, judge).outcome for seed in range(5) for tree in empty_windows(seed)}
    assert outcomes - {Judgement.EQUAL} == {Judgement.BROKEN}
