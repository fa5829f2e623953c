"""The implementations on which the laws are judged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from implementations import demand_operators

from lmerge.core.engines.selection import NATIVE, PYTHON


@pytest.fixture(params=[PYTHON, NATIVE])
def implementation(request: pytest.FixtureRequest, demand: Callable[[str], None]) -> str:
    """Return each implementation in turn; the native core is left out where it is not built, or without operators."""
    return demand_operators(request.param, demand)
