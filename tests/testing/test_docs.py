"""The snippets of docs/testing.md run, print what the page shows, and name what is there."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from lmerge.testing.streams.facets import FACET_LEVELS
from lmerge.testing.streams.patterns import PATTERNS
from lmerge.testing.transforming.speculation import SHAPES

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
SNIPPETS = re.findall(r"<!-- run -->\n```python\n(.*?)```", PAGE, re.DOTALL)
SHOWN = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_runs_and_prints_what_the_page_shows(snippet: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(_with_flights(snippet), "docs/testing.md", "exec"), {"__name__": "snippet"})
    if printed.getvalue():
        assert printed.getvalue() in SHOWN


def _with_flights(snippet: str) -> str:
    """Return a snippet behind the lines of the one before that it goes on from."""
    if "flights = " in snippet or "flights." not in snippet:
        return snippet
    lines = "import lmerge.temporal as lt\nflights = lt.source('flights', {'origin': 'string', 'delay': 'int?'})\n"
    return lines + snippet


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) == 5


def test_the_table_has_every_facet_with_its_levels() -> None:
    shown: dict[str, set[str]] = {}
    for names, levels in re.findall(r"^\| (`.*?) \| (.*) \|$", PAGE, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", names):
            shown[name] = set(re.findall(r"`([^`]+)`", levels))
    for name, levels in {**FACET_LEVELS, "pattern": PATTERNS.names(), "speculation": SHAPES}.items():
        assert set(levels) <= shown[name], name
