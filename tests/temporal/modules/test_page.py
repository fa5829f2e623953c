"""The page about modules is right: its snippets run, and its tables are complete."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from lmerge.temporal.modules import builtin, kinds
from lmerge.temporal.modules.builtin import BUILTIN_AGGREGATES
from lmerge.temporal.modules.properties import Properties
from lmerge.temporal.modules.registry import MODULES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "temporal-modules.md").read_text()


def test_snippets_print_what_stands_beside_them(capsys: pytest.CaptureFixture[str]) -> None:
    snippets = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(snippets) == 4
    before = set(MODULES.names())  # other tests of this process may have registered some of them
    for snippet in snippets:
        exec(compile(snippet, "snippet", "exec", dont_inherit=True), {"__name__": "snippet"})
        assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", snippet, re.MULTILINE)
    for name in set(MODULES.names()) - before:
        MODULES.forget(name)


def test_every_aggregate_is_on_the_page_and_in_the_module() -> None:
    on_page = set(re.findall(r"`(\w+)\(", PAGE.partition("## A function")[0])) - {"rank"}
    assert on_page == set(BUILTIN_AGGREGATES)
    in_module = builtin.__doc__ or ""
    assert [name for name in BUILTIN_AGGREGATES if name not in in_module.replace(", _samp", ", stddev_samp")] == []


def test_every_property_and_every_kind_is_on_the_page() -> None:
    declared = re.findall(
        r"^\| `(\w+)` \| ",
        PAGE.partition("## What a module declares")[2].partition("## Modules by name")[0],
        re.MULTILINE,
    )
    assert set(declared) == {one.name for one in dataclasses.fields(Properties)}
    found = set(re.findall(r"`((?:Incremental)?(?:Timed)?(?:Aggregate|Operator))`", PAGE))
    assert len(found) == 8
    assert all(hasattr(kinds, name) for name in found)
