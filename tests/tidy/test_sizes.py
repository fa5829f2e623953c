"""Files and functions are short, and the lines of documents fit a page."""

from __future__ import annotations

import ast

from tidy_world import DOCUMENTS, KEPT, LIBRARY, SOURCES, TESTS, found_in, parsed

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
DOCUMENT_COLUMNS_MAX = 120


def long_file(text: str) -> list[str]:
    lines = text.count("\n")
    return [f"{lines} lines"] if lines > FILE_LINES_MAX else []


def long_functions(text: str) -> list[str]:
    return [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]


def long_lines(text: str) -> list[str]:
    """Return the long lines of a document, but for rows of tables and fenced blocks, where no line can be broken."""
    found, in_block = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_block = not in_block
        elif len(line) > DOCUMENT_COLUMNS_MAX and not in_block and not line.lstrip().startswith("|"):
            found.append(f"line {number}: {len(line)} columns")
    return found


def test_there_is_something_to_check() -> None:
    assert len(LIBRARY) > 50
    assert len(TESTS) > 30
    assert len(KEPT) > 150
    assert len(DOCUMENTS) > 5


def test_files_are_short() -> None:
    assert found_in(SOURCES, long_file) == {}


def test_functions_are_short() -> None:
    assert found_in(SOURCES, long_functions) == {}


def test_lines_of_documents_are_short() -> None:
    assert found_in([*DOCUMENTS, "CHANGELOG.md"], long_lines) == {}


def test_a_long_file_is_found() -> None:
    assert long_file("\n" * (FILE_LINES_MAX + 1)) == ["501 lines"]
    assert long_file("\n" * FILE_LINES_MAX) == []


def test_a_long_function_is_found() -> None:
    assert long_functions("def f():\n" + "    pass\n" * FUNCTION_LINES_MAX) == ["f: 61 lines"]
    assert long_functions("def f():\n" + "    pass\n" * (FUNCTION_LINES_MAX - 1)) == []


def test_a_long_line_of_a_document_is_found() -> None:
    long = "x" * (DOCUMENT_COLUMNS_MAX + 1)
    assert long_lines(f"short\n{long}\n| {long} |\n```text\n{long}\n```\n    {long}\n") == [
        "line 2: 121 columns",
        "line 7: 125 columns",
    ]
