"""The page about expressions is right: its snippets run, its table is that of the code, each row has a test."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import lmerge.temporal.expressions
from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.binding import bind
from lmerge.temporal.expressions.families import ALL_RULES
from lmerge.temporal.expressions.json_format import from_json, to_json
from lmerge.temporal.expressions.surface import col
from lmerge.wire.schema import parse_schema

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "temporal-expressions.md").read_text()
BESIDE_THE_TABLE = {"22": "test_binding", "27": "test_page"}


def rows_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(r"\| E\d", line)]


def test_the_table_of_the_page_is_that_of_the_code() -> None:
    assert rows_of(PAGE) == rows_of(lmerge.temporal.expressions.__doc__ or "")
    assert [row.split("|")[1].strip() for row in rows_of(PAGE)] == [f"E{number}" for number in range(1, 28)]


def test_every_row_has_a_test() -> None:
    for number in range(1, 28):
        file = BESIDE_THE_TABLE.get(str(number), "test_semantics")
        assert f"def test_e{number}_" in (Path(__file__).parent / f"{file}.py").read_text()


def test_snippets_print_what_stands_beside_them(capsys: pytest.CaptureFixture[str]) -> None:
    snippets = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(snippets) == 3
    for snippet in snippets:
        exec(snippet, {"__name__": "snippet"})
        assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", snippet, re.MULTILINE)


def test_the_document_of_the_page_is_one() -> None:
    (document,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert to_json(col.delay > 15) == json.loads(document)
    assert from_json(to_json(col.delay > 15)).node == (col.delay > 15).node


@pytest.mark.parametrize("name", ["Vs", "ve"])
def test_e27_no_operation_reads_a_lifetime(name: str) -> None:
    with pytest.raises(PlanError, match="; no expression reads the lifetime of an event"):
        bind(col[name] > 5, parse_schema({"delay": "int"}))


def test_every_operation_is_on_the_page() -> None:
    of_python = {
        "add",
        "subtract",
        "multiply",
        "divide",
        "floor_divide",
        "modulo",
        "negate",
        "equal",
        "not_equal",
        "less",
    }
    of_python |= {"less_equal", "greater_equal", "greater", "and", "or", "not", "case"}
    assert [name for name in ALL_RULES.keys() - of_python if f"`{name}(" not in PAGE] == []
