"""Packages that declare modules, as an installer leaves them in a folder."""

from __future__ import annotations

import textwrap
from pathlib import Path

from lmerge.temporal.expressions.installed import GROUP


def write_package(folder: Path, package: str, code: str = "", **entries: str) -> None:
    """Make a package that declares modules: ``name="module:attribute"``. ``code``: of the module of its name."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
    info.joinpath("entry_points.txt").write_text(f"[{GROUP}]\n{lines}")
    if code:
        folder.joinpath(f"{package}.py").write_text(textwrap.dedent(code))
