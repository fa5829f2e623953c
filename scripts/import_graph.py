"""The imports between the project's modules, read from their text: nothing is imported to find them.

``scripts/check.py`` chooses tests by them, and the tidy tests find modules that only tests import. A module depends on
what it imports anywhere, also in functions, and on modules that its strings name: commands, lazily loaded classes and
patched attributes are named so, and programs by their files. A package that is only on the way to a module is no
dependency.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

FOLDERS = ("lmerge", "lmerge_replicas", "lmerge_controller", "bench", "monitoring", "scripts", "tests")
TOP_LEVEL = ("scripts", "tests/worlds")  # their modules are imported by their own names

Graph = Mapping[str, frozenset[str]]
"""For each module the modules that it depends on, all by their names."""


def module_of(path: str) -> str:
    """Return the name of the module in a file, a path from the project's root."""
    for folder in TOP_LEVEL:
        if path.startswith(f"{folder}/"):
            path = path.removeprefix(f"{folder}/")
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def modules_in(root: Path) -> dict[str, str]:
    """Return the modules of the project, without generated ones: the path of each name, from ``root``."""
    paths = [str(path.relative_to(root)) for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))]
    return {module_of(path): path for path in paths if "/generated/" not in path}


def graph_of(root: Path) -> Graph:
    """Return what each module of the project depends on."""
    modules = modules_in(root)
    return {
        name: frozenset(dependencies((root / path).read_text(), name, path.endswith("__init__.py"), modules)) - {name}
        for name, path in modules.items()
    }


def dependencies(text: str, module: str, is_package: bool, modules: Iterable[str]) -> set[str]:
    """Return those of ``modules`` on which a module with this text depends."""
    package = module if is_package else module.rpartition(".")[0]
    existing = set(modules)
    tree = ast.parse(text)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in prose:
            continue
        for name in _named(node, package):
            longest = _longest(name, existing)
            if longest is not None:
                found.add(longest)
        for prefix in _computed(node):
            found |= {name for name in existing if name.rpartition(".")[0] == prefix}
    return found


def _named(node: ast.AST, package: str) -> Iterator[str]:
    """Yield the dotted names that a node imports, or names in a string."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parents = package.split(".")
        base = (
            ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
            if node.level
            else (node.module or "")
        )
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        for name in re.findall(r"(?<![\w./])[a-z_]\w*(?:\.\w+)+", node.value):
            yield name.removesuffix(".py")
            yield f"{package}.{name}"


def _computed(node: ast.AST) -> Iterator[str]:
    """Yield the packages whose modules are loaded by a computed name, such as ``f"lmerge.cli.{name}"``."""
    if isinstance(node, ast.JoinedStr) and len(node.values) > 1:
        first = node.values[0]
        if isinstance(first, ast.Constant) and re.fullmatch(r"[a-z_]\w*(?:\.\w+)*\.", str(first.value)):
            yield str(first.value)[:-1]


def _longest(name: str, modules: set[str]) -> str | None:
    """Return the longest beginning of a dotted name that is a module."""
    parts = name.split(".")
    beginnings = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((beginning for beginning in beginnings if beginning in modules), None)


def importers(graph: Graph, changed: Iterable[str]) -> list[set[str]]:
    """Return the modules that depend on ``changed``: first those that import one of them, then those that import these.

    A package that only passes names on, as ``lmerge.client`` does, is no step: who imports the package comes first too.
    """
    reached = set(changed)
    steps: list[set[str]] = []
    last = set(reached)
    while last:
        found = _importers(graph, last) - reached
        packages = {name for name in found if any(other.startswith(f"{name}.") for other in last)}
        while packages:  # the modules that import a re-export
            more = _importers(graph, packages) - reached - found
            found |= more
            packages = {name for name in more if any(other.startswith(f"{name}.") for other in packages)}
        if found:
            steps.append(found)
        reached |= found
        last = found
    return steps


def _importers(graph: Graph, modules: set[str]) -> set[str]:
    return {name for name, needs in graph.items() if needs & modules}
