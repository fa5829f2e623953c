"""Names are those of the glossary, and a class is found by its name alone."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest
from tidy_world import SOURCES, found_in, parsed, text_of

BANNED = frozenset(
    (
        "say",
        "says",
        "said",
        "saying",
        "unsaid",
        "tell",
        "tells",
        "told",
        "telling",
        "untold",
        "hear",
        "hears",
        "heard",
        "hearing",
        "unheard",
        "speak",
        "speaks",
        "spoke",
        "spoken",
        "speaking",
        "unspoken",
        "know",
        "knows",
        "knew",
        "knowing",
        "want",
        "wants",
        "wanted",
        "wanting",
        "unwanted",
        "word",
        "words",
        "somebody",
        "nobody",
        "anybody",
        "everybody",
    )
)
"""What people do and code does not: see the last section of docs/glossary.md. A *known* end is a term of the field."""


def parts_of(identifier: str) -> list[str]:
    """Return the parts of a name in snake_case or CamelCase, in small letters."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)]


def banned_names(text: str) -> list[str]:
    """Return the names that a module defines with a word that the glossary excludes."""
    return sorted({name for name in _defined(parsed(text)) if not BANNED.isdisjoint(parts_of(name))})


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias) and node.asname is not None:
            yield node.asname


def classes(text: str) -> list[str]:
    return [node.name for node in ast.walk(parsed(text)) if isinstance(node, ast.ClassDef)]


def repeated(classes_of: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the names of several classes, with their files. Tests may repeat names of tests only."""
    places: dict[str, list[str]] = defaultdict(list)
    for file, names in classes_of.items():
        for name in names:
            places[name].append(file)
    return {
        name: files
        for name, files in places.items()
        if len(files) > 1 and not all(file.startswith("tests/") for file in files)
    }


def test_no_name_has_a_part_that_the_glossary_excludes() -> None:
    assert found_in(SOURCES, banned_names) == {}
    assert [name for name in SOURCES if not BANNED.isdisjoint(parts_of(name))] == []


def test_no_two_classes_have_one_name() -> None:
    assert repeated({name: classes(text_of(name)) for name in SOURCES}) == {}


@pytest.mark.parametrize(
    "code",
    [
        "def tell_peers(): pass",
        "class WhoSaid: pass",
        "async def f(*, heard=None): pass",
        "is_told = True",
        "self.wants_more = 1",
        "for said_so in range(3): pass",
        "import spoken as x, y as nobody_asked",
        "def test_what_somebody_publishes(): pass",
        "HTTPSaid = 1",
    ],
)
def test_a_banned_name_is_found_in_every_form(code: str) -> None:
    assert len(banned_names(code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        "essay = keyword_of = hearth = retold_ = wanton = known = unknown_merge = 1",
        "'say'",
        "thing.said",  # of a library
        "call(tell=1)",
    ],
)
def test_what_only_looks_like_one_is_not(code: str) -> None:
    assert banned_names(code) == []


def test_a_repeated_class_name_is_found() -> None:
    places = {"lmerge/a.py": ["A", "B"], "lmerge/b.py": ["B", "C"], "tests/c.py": ["C", "D"], "tests/d.py": ["D"]}
    assert repeated(places) == {"B": ["lmerge/a.py", "lmerge/b.py"], "C": ["lmerge/b.py", "tests/c.py"]}
    assert repeated({"bench/a.py": classes("class A:\n    class B: pass\ndef f():\n    class A: pass")}) == {
        "A": ["bench/a.py", "bench/a.py"]
    }
