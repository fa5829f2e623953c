"""The tidy test: habits of the project that a machine can check."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lmerge
import lmerge.errors

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
FOLDERS = ("lmerge", "replicas", "scripts", "bench", "tests")
SOURCES = sorted(
    path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")
    if "generated" not in path.parts and "__pycache__" not in path.parts
)
LIBRARY = [path for path in SOURCES if path.is_relative_to(ROOT / "lmerge")]
TESTS = [path for path in SOURCES if path.is_relative_to(ROOT / "tests")]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_there_is_something_to_check() -> None:
    assert len(LIBRARY) > 50
    assert len(TESTS) > 30


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_files_and_functions_are_short(path: Path) -> None:
    lines = path.read_text().count("\n")
    assert lines <= FILE_LINES_MAX
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines" for node in functions(path)
        if node.end_lineno is not None and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert not long


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert not path.read_text().strip() or ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", LIBRARY, ids=named)
def test_public_classes_and_functions_are_documented(path: Path) -> None:
    bare = [
        node.name for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    assert not bare


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_nothing_is_left_for_later(path: Path) -> None:
    words = "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3))
    assert not re.search(rf"\b({words})\b", path.read_text())


@pytest.mark.parametrize("path", TESTS, ids=named)
def test_tests_do_not_sleep(path: Path) -> None:
    """Except for a moment, in a loop that looks at a condition."""
    tree = ast.parse(path.read_text())
    looped = {id(node) for loop in ast.walk(tree) if isinstance(loop, ast.While) for node in ast.walk(loop)}
    sleeps = [
        f"line {node.lineno}" for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sleep"
        and not (isinstance(node.args[0], ast.Constant) and node.args[0].value <= 0.005 * (id(node) in looped))
    ]
    assert not sleeps


@pytest.mark.parametrize("path", LIBRARY, ids=named)
def test_the_library_does_not_print(path: Path) -> None:
    prints = [
        f"line {node.lineno}" for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not prints or path.is_relative_to(ROOT / "lmerge/cli")


def test_every_dependency_is_explained() -> None:
    listed = re.findall(r'^\s+"([A-Za-z0-9-]+)[>=]', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    architecture = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(listed) > 15
    assert [name for name in listed if name not in architecture] == []


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md"])
def test_what_the_documents_name_is_there(name: str) -> None:
    text = (ROOT / name).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("http")]
    paths = re.findall(r"`((?:lmerge|proto|docs|scripts|bench|replicas|tests)/[A-Za-z0-9_./-]+)`", text)
    missing = [path for path in (*links, *paths) if not (ROOT / path).exists()]
    assert not missing


def test_the_readme_has_its_two_commands_and_no_open_places() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
    assert "<!-- measured" not in text


def test_every_error_is_drawn_in_the_tree() -> None:
    tree = lmerge.errors.__doc__ or ""
    errors = [name for name, kind in vars(lmerge.errors).items() if isinstance(kind, type)]
    assert len(errors) > 10
    assert [name for name in errors if name not in tree] == []


def test_the_version_is_the_same_everywhere() -> None:
    assert f'version = "{lmerge.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_metrics_are_named_lmerge_noun_unit() -> None:
    text = (ROOT / "lmerge/service/metrics.py").read_text()
    names = re.findall(r'"(lmerge_[a-z_]+)"', text)
    assert len(names) > 8
    assert [name for name in names if not re.fullmatch(r"lmerge(_[a-z]+)+", name)] == []
