"""The systems under test by name."""

from __future__ import annotations

from typing import Final

from lmerge.testing.registry import PartRegistry
from lmerge.testing.systems.engine import EngineSystem
from lmerge.testing.systems.merged import MergedSystem
from lmerge.testing.systems.server import ServerSystem
from lmerge.testing.systems.system import System

SYSTEMS: Final[PartRegistry[System]] = PartRegistry(
    "lmerge.testing.systems", "system", {one.name: one for one in (EngineSystem(), ServerSystem(), MergedSystem())}
)
