"""Modules, public classes and functions, and packages have docstrings; those of packages name callers and imports."""

from __future__ import annotations

import ast
import re

from tidy_world import LIBRARY, SOURCES, found_in, parsed


def bare_module(text: str) -> list[str]:
    return ["no docstring"] if text.strip() and not ast.get_docstring(parsed(text)) else []


def undocumented(text: str) -> list[str]:
    return [
        node.name
        for node in parsed(text).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]


def vague_package(text: str) -> list[str]:
    """Return what the docstring of a package does not name: what it is for, who calls it, what it imports."""
    doc = ast.get_docstring(parsed(text)) or ""
    facts = {"purpose": r"\w", "callers": r"\b[Cc]all(?:s|ed|ers?)?\b", "imports": r"\b[Ii]mports?\b"}
    return [fact for fact, pattern in facts.items() if not re.search(pattern, doc)]


def test_every_module_has_a_docstring() -> None:
    assert found_in(SOURCES, bare_module) == {}


def test_public_classes_and_functions_are_documented() -> None:
    assert found_in(LIBRARY, undocumented) == {}


def test_every_package_names_its_callers_and_its_imports() -> None:
    packages = [name for name in LIBRARY if name.count("/") > 1 and name.endswith("/__init__.py")]
    assert len(packages) > 20
    assert found_in(packages, vague_package) == {}


def test_a_missing_docstring_is_found() -> None:
    assert bare_module("x = 1\n") == ["no docstring"]
    assert bare_module("'''What it is.'''\nx = 1\n") == bare_module("\n") == []
    assert undocumented("class A: pass\ndef f(): 'words'\ndef _g(): pass\nasync def h(): pass") == ["A", "h"]


def test_a_vague_package_is_found() -> None:
    assert vague_package("") == ["purpose", "callers", "imports"]
    assert vague_package("'''Reads files. Imports the wire.'''") == ["callers"]
    assert vague_package("'''Reads files. Called by ``x``.'''") == ["imports"]
    assert vague_package("'''Reads files. Called by ``x``. Imports nothing.'''") == []
