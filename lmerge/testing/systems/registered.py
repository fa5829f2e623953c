"""The systems under test by name."""

from __future__ import annotations

from typing import Final

from lmerge.testing.registry import PartRegistry
from lmerge.testing.systems.engine import EngineSystem
from lmerge.testing.systems.system import System

SYSTEMS: Final[PartRegistry[System]] = PartRegistry(
    "lmerge.testing.systems",
    "system",
    {"engine": EngineSystem()},
    {"server": "lmerge.testing.systems.server:SERVER", "merge": "lmerge.testing.systems.merged:MERGED"},
)
