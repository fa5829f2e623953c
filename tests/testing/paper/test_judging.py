"""Paper tests of rows T6, A7 and V8: what is reused, the way from an intent to a verdict, users' modules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

import pytest
from judged_world import blamed_names, payload, verdict_of

import lmerge.temporal as lt
from lmerge.core.elements import INF, Adjust, Element, Insert, Stable
from lmerge.temporal import method_of
from lmerge.temporal.modules.kinds import IncrementalAggregate
from lmerge.testing.checking.session import every_operator
from lmerge.testing.checking.tree_verdict import check
from lmerge.testing.judging.verdict import Judge, Judgement
from lmerge.testing.systems.engine import EngineSystem
from lmerge.testing.systems.inputs import inputs_of
from lmerge.testing.transforming.transformer import Transformer
from lmerge.wire.schema import SchemaLike

ROOT: Final = Path(__file__).parents[3]
LEFT: Final = lt.source("left", {"k": "int", "v": "int"})


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as one:
        yield one


@pytest.mark.parametrize("name", ["duckdb", "hypothesis", "covertable", "pytest"])
def test_t6_what_databases_and_their_tests_have_is_used(name: str) -> None:
    """T6 (1.2): the judge, shrinking, covering arrays and the running of tests are libraries, each with its reason."""
    used = re.compile(rf"^\s*(import|from) {name}\b|extra\(.{name}.,", re.MULTILINE)
    assert any(used.search(path.read_text()) for path in (ROOT / "lmerge" / "testing").rglob("*.py"))
    assert re.search(rf"^\| [^|]*\b{name}\b", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)


def test_a7_from_a_tree_to_the_tables_of_its_verdict(judge: Judge) -> None:
    """A7 (3): streams become tables, the tree becomes SQL, and the output is compared with what the SQL gives."""
    for tree in Transformer(every_operator(), 7).trees(10):
        verdict = check(tree, EngineSystem(), judge, inputs_of(tree))
        assert verdict.outcome is Judgement.EQUAL, str(verdict)
        assert verdict.operators
        assert all("SELECT" in one.sql.upper() for one in verdict.operators)


class ForgetfulTotal(IncrementalAggregate[int, int, int]):
    """The sum of a column, which forgets ``left_over`` too little of each row that leaves a window."""

    inputs: ClassVar[SchemaLike] = {"v": "int"}
    result = "int"

    def __init__(self, left_over: int) -> None:
        self._left_over = left_over

    def begin(self) -> int:
        return 0

    def add(self, state: int, rows: Sequence[int]) -> int:
        return state + sum(rows)

    def remove(self, state: int, rows: Sequence[int]) -> int:
        return state - sum(rows) + self._left_over * len(rows)

    def compute(self, state: int) -> int:
        return state


@pytest.mark.parametrize(("left_over", "blamed"), [(0, {}), (1, {"aggregate": "different"})])
def test_v8_a_users_module_is_judged_by_what_it_computes_of_the_whole_window(
    judge: Judge, left_over: int, blamed: dict[str, str]
) -> None:
    """V8 (6.1): its sequence of queries computes each window anew, so a wrong removal is found."""
    query = LEFT.hopping(6, 3).agg(total=method_of(ForgetfulTotal)(of=lt.col.v, left_over=left_over), form="eager")
    events = [Insert(payload(LEFT, 1, at), at, at + 9) for at in (0, 3, 5, 10)]
    taken_back = Adjust(payload(LEFT, 1, 5), 5, 14, 9)  # the window [9, 15) has a result by now, and loses this event
    elements: list[Element] = [*events, taken_back, Stable(INF)]
    verdict = verdict_of(judge, query, [("left", [one]) for one in elements])
    assert blamed_names(verdict) == blamed
