"""Nothing is left for later, the library does not print, and every module of it has a use outside the tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from import_graph import Graph, graph_of
from tidy_world import LIBRARY, ROOT, SOURCES, found_in, parsed

FOR_USERS = ("lmerge.testing.", "lmerge.core.adapters")
"""What the project offers and does not use: the tools for tests of replicas, and streams in other models."""


def left_for_later(text: str) -> list[str]:
    marks = "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3))
    return re.findall(rf"\b(?:{marks})\b", text)


def prints(text: str) -> list[str]:
    return [
        f"line {node.lineno}" for node in ast.walk(parsed(text)) if isinstance(node, ast.Name) and node.id == "print"
    ]


def bare_ignores(text: str) -> list[str]:
    """Return the lines on which mypy is silenced without a code and a reason."""
    mark = "type: " + "ignore"
    return [
        f"line {number}"
        for number, line in enumerate(text.splitlines(), 1)
        if f"# {mark}" in line and not re.search(rf"# {mark}\[[a-z, -]+\]  # \w", line)
    ]


def unused(graph: Graph, of_tests: Iterable[str]) -> list[str]:
    """Return the modules of the library that only tests import. A package is used by what is in it."""
    tests = set(of_tests)
    used = {needed for name, needs in graph.items() if name not in tests for needed in needs}
    packages = {name.rpartition(".")[0] for name in graph}
    return sorted(
        name
        for name in graph
        if name.startswith("lmerge.") and name not in used | packages and not name.endswith(".__main__")
    )


def test_nothing_is_left_for_later() -> None:
    assert found_in(SOURCES, left_for_later) == {}


def test_the_library_does_not_print() -> None:
    assert found_in((name for name in LIBRARY if not name.startswith("lmerge/cli/")), prints) == {}


def test_tests_and_scripts_silence_mypy_with_a_reason() -> None:
    assert found_in((name for name in SOURCES if name.startswith(("tests/", "scripts/"))), bare_ignores) == {}


def test_no_module_is_there_for_tests_alone() -> None:
    graph = graph_of(ROOT)
    worlds = {path.stem for path in (ROOT / "tests" / "worlds").glob("*.py")}
    found = unused(graph, worlds | {name for name in graph if name.startswith("tests.")})
    assert [name for name in found if not name.startswith(FOR_USERS)] == []


def test_what_is_left_for_later_and_what_prints_is_found() -> None:
    assert left_for_later("# TO" + "DO: more")
    assert prints("def f():\n    print(1)") == ["line 2"]


def test_a_silenced_line_without_a_reason_is_found() -> None:
    mark = "x = f()  # type: " + "ignore"
    assert bare_ignores(f"{mark}\n{mark}[misc]\n{mark}[misc]  # a reason\n") == ["line 1", "line 2"]


def test_a_module_that_only_tests_import_is_found() -> None:
    graph = {
        "lmerge": frozenset({"lmerge.used"}),
        "lmerge.used": frozenset[str](),
        "lmerge.part": frozenset[str](),
        "lmerge.part.inner": frozenset({"lmerge.helper"}),
        "lmerge.helper": frozenset[str](),
        "lmerge.__main__": frozenset[str](),
        "tests.test_part": frozenset({"lmerge.part.inner"}),
    }
    assert unused(graph, ["tests.test_part"]) == ["lmerge.part.inner"]
