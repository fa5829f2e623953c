"""Fixtures of the simulation's own tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from sim_world import SmallNetwork


@pytest.fixture
def small() -> Iterator[SmallNetwork]:
    world = SmallNetwork()
    yield world
    world.close()
