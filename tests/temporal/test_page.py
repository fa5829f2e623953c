"""The page on temporal plans is right: its snippets run and print what stands beside them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lmerge.temporal as lt
from lmerge.temporal.plan.grouped import Grouped
from lmerge.temporal.plan.properties import explain
from lmerge.temporal.windows.policies import Form

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "temporal.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_has_snippets() -> None:
    assert len(SNIPPETS) == 7


@pytest.mark.parametrize("snippet", SNIPPETS[1:], ids=range(1, len(SNIPPETS)))
def test_a_snippet_prints_what_stands_below_it(snippet: str) -> None:
    printed = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == re.findall(r"^# (.*)$", snippet, re.MULTILINE)


def test_every_form_and_every_kind_of_window_is_on_the_page() -> None:
    assert set(re.findall(r"^\| `(\w+)` \| \w+ ", PAGE, re.MULTILINE)) >= {str(form) for form in Form}
    windows = {name for name in vars(Grouped) if not name.startswith("_")} - {"over", "node", "keys", "apply", "stream"}
    assert windows == set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))


def test_operators_that_are_named_are_there() -> None:
    for name in re.findall(r"`(\w+)`", PAGE.partition("Operators that go")[2].partition("## Windows")[0]):
        assert hasattr(lt.Stream, name) or name in ("how", "by"), name


def test_the_picture_of_the_flights_is_what_its_snippet_makes() -> None:
    (snippet,) = (snippet for snippet in SNIPPETS if "picture = " in snippet)
    made: dict[str, str] = {}
    exec(snippet, made)
    assert made["picture"] == (ROOT / "docs/img/flights-plans.svg").read_text()


def test_the_three_plans_side_by_side_are_what_explain_shows() -> None:
    (snippet,) = (snippet for snippet in SNIPPETS if "algorithm_of" in snippet)
    named: dict[str, lt.WindowedStream] = {}
    exec(snippet.partition("for plan")[0], named)
    hours, by_origin = named["hours"], named["by_origin"]
    plans = (hours.agg(n=lt.count()), by_origin.agg(n=lt.count()), hours.agg(n=lt.count(), form="eager"))
    shown = [explain(plan.node).splitlines() for plan in plans]
    rows = [
        ("the source promises", 1, "    promises "),
        ("the windows promise", 3, "    promises "),
        ("algorithm", 4, "algorithm "),
    ]
    for title, line, begin in rows:
        (cells,) = (row.split(" | ")[1:] for row in PAGE.splitlines() if row.startswith(f"| {title} |"))
        assert [begin + cell.removesuffix(" |") for cell in cells] == [lines[line] for lines in shown]
