"""Every row of the lists has a test with its name: statements of the sources, departures, operators and examples."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from defect_list import defects_below
from defect_list.temporal_listed import LISTED
from defect_list.temporal_native_listed import LISTED_NATIVE

LAST = {"e": 15, "q": 23, "m": 15, "s": 16, "g": 7, "f": 3, "d": 16, "o": 16, "ex": 14}
"""The last row of each list, by its letter; ``ex``: the numbered examples."""


def rows_with_tests() -> set[str]:
    found = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                found |= set(re.findall(r"^test_([a-z]+[0-9]+)_", node.name))
    return found


@pytest.mark.parametrize("letter", LAST)
def test_every_row_has_its_test(letter: str) -> None:
    found = {row for row in rows_with_tests() if re.fullmatch(rf"{letter}[0-9]+", row)}
    assert found == {f"{letter}{number}" for number in range(1, LAST[letter] + 1)}


def test_every_test_of_a_row_has_its_section_or_its_counterexample() -> None:
    bare = [
        node.name
        for path in Path(__file__).parent.glob("test_*.py")
        if path.name not in ("test_rows.py", "test_examples.py", "test_departures.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert bare == []


PYTHON, NATIVE = ("lmerge/temporal/", "lmerge/replica/"), ("native/temporal/",)


@pytest.mark.parametrize(("listed", "places"), [(LISTED, PYTHON), (LISTED_NATIVE, NATIVE)], ids=["python", "native"])
def test_every_listed_defect_is_seeded(listed: Mapping[str, tuple[str, ...] | str], places: tuple[str, ...]) -> None:
    """In a list a text stands for the reason why there is no such defect."""
    names = {defect.name for place in places for defect in defects_below(place)}
    seeded = {name for defects in listed.values() if not isinstance(defects, str) for name in defects}
    assert seeded <= names, seeded - names
    assert all(listed.values())


def test_every_phrase_has_its_defects_in_python_and_in_the_native_core() -> None:
    assert LISTED.keys() == LISTED_NATIVE.keys()
    assert len(LISTED) == 65
    assert all(isinstance(defects, tuple) for defects in LISTED.values()), "the definition has all places"


def test_no_defect_is_listed_for_two_phrases() -> None:
    for listed in (LISTED, LISTED_NATIVE):
        names = [name for defects in listed.values() if isinstance(defects, tuple) for name in defects]
        assert len(names) == len(set(names))
