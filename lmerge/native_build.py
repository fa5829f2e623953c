"""The record that the installation made about the native core, and the reason for the engine that ``auto`` means here.

setup.py writes the record beside the extension, or in its place: pip does not show why an extension was left out. Read
by ``lmerge info`` and by a server when it starts. ``core.engines.selection`` makes the choice; it reads no file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from lmerge.core.engines import selection

RECORD: Final = Path(__file__).with_name("_native_build.json")


class NativeBuild(NamedTuple):
    """``problem``: why it was not built, None if it was. ``crates``: what it was built with, name -> version."""

    problem: str | None = None
    rust: str | None = None
    crates: Mapping[str, str] = {}


def native_build(record: Path = RECORD) -> NativeBuild | None:
    """Return what the installation recorded; None if nothing was ever installed, as in a bare source tree."""
    try:
        return NativeBuild(**json.loads(record.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def why_not_native(import_problem: str | None, build: NativeBuild | None) -> str | None:
    """Return why the native core is unusable, as text; None if usable. ``import_problem``: of ``native_problem()``."""
    if import_problem is None:
        return None
    if build is None:
        return "not built; lmerge was not installed, only its sources are here"
    if build.problem is not None:
        return f"not built; {build.problem}"
    return f"built, but it cannot be loaded; {import_problem}"


def reason(engine: str) -> str:
    """Return the reason for what ``engine``, a name in ENGINES, means here."""
    if engine != selection.AUTO:
        return "asked for"
    return f"native core: {why_not_native(selection.native_problem(), native_build()) or 'built'}"
