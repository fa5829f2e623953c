"""The page on temporal plans is right: its snippets run and print what stands beside them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lmerge.temporal as lt
from lmerge.temporal.plan.grouped import Grouped
from lmerge.temporal.windows.policies import Form

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "temporal.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_has_snippets() -> None:
    assert len(SNIPPETS) == 5


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
