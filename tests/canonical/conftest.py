"""The implementations that the oracle judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from implementations import built_implementations


@pytest.fixture(scope="session")
def implementations(demand: Callable[[str], None]) -> Sequence[str]:
    """Return all that are built. Each runs over streams of its own, and one query judges what all have emitted."""
    return built_implementations(demand)
