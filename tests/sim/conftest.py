"""Fixtures of the simulation's own tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sim_world import SmallNetwork


@pytest.fixture
def small() -> Iterator[SmallNetwork]:
    world = SmallNetwork()
    yield world
    world.close()
