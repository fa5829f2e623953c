"""Every dependency is explained in ARCHITECTURE.md, and the version is the same everywhere."""

from __future__ import annotations

import re
import sys
from fnmatch import fnmatch

from tidy_world import KEPT, text_of

import lmerge
from bench.peers.environments import ENVIRONMENTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest requires it there


def listed(pyproject: str) -> set[str]:
    """Return the dependencies of the project, of its extras and of its build."""
    table = tomllib.loads(pyproject)
    project = table["project"]
    requirements = [*table["build-system"]["requires"], *project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        requirements += extra
    names = {re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0] for requirement in requirements}
    return names - {project["name"]}


def crates(cargo: str) -> set[str]:
    """Return the crates that a Cargo.toml requires, without those of the project itself."""
    table = tomllib.loads(cargo)
    tables = [table, table.get("workspace", {}), *table.get("target", {}).values()]
    kinds = ("dependencies", "dev-dependencies", "build-dependencies")
    needs = [part.get(kind, {}) for part in tables for kind in kinds]
    return {name for need in needs for name, crate in need.items() if not (isinstance(crate, dict) and "path" in crate)}


def explained(architecture: str) -> set[str]:
    """Return the names in the first column of the table of dependencies."""
    section = architecture.partition("\n## Dependencies\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return {name.strip(" `") for cell in cells for name in re.split(r"[,;]", re.sub(r"\([^)]*\)", "", cell))}


def test_every_dependency_is_explained() -> None:
    cargo = [text_of(name) for name in KEPT if fnmatch(name, "native/*Cargo.toml")]
    peers = [re.split(r"[=<>~]", package, maxsplit=1)[0] for peer in ENVIRONMENTS.values() for package in peer.packages]
    names = listed(text_of("pyproject.toml")).union(peers, *map(crates, cargo))
    assert len(cargo) == 7
    assert len(names) > 30
    assert names - explained(text_of("ARCHITECTURE.md")) == set()


def test_the_version_is_the_same_everywhere() -> None:
    assert tomllib.loads(text_of("pyproject.toml"))["project"]["version"] == lmerge.__version__
    native = tomllib.loads(text_of("native/Cargo.toml"))
    assert native["workspace"]["package"]["version"] == lmerge.__version__


def test_a_dependency_without_its_own_line_is_found() -> None:
    pyproject = """
        [build-system]
        requires = ["builder>=1"]
        [project]
        name = "own"
        dependencies = ["types-rich>=1", "rich"]
        [project.optional-dependencies]
        one-line = ["short[extra]>=2; python_version < '3.11'", "own[more]"]
        more = ["known==1"]
    """
    architecture = "rich\n## Dependencies\n| library | saves |\n|---|---|\n| types-rich, known (`more`) | short |\n"
    assert listed(pyproject) - explained(architecture) == {"builder", "rich", "short"}
    cargo = """
        [dependencies]
        known = { version = "1", features = ["all"] }
        unknown = "0.3"
        own = { path = "../own" }
        [dev-dependencies]
        for-tests = "2"
        [target.'cfg(unix)'.dependencies]
        for-unix = "1"
    """
    assert crates(cargo) - explained(architecture) == {"unknown", "for-tests", "for-unix"}


def test_the_source_distribution_has_every_crate_that_is_built() -> None:
    members = tomllib.loads(text_of("native/Cargo.toml"))["workspace"]["members"]
    listed_there = text_of("MANIFEST.in").splitlines()
    assert members
    assert [name for name in members if f"recursive-include native/{name} *.toml *.rs" not in listed_there] == []
