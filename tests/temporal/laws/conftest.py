"""The implementations on which the laws are judged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lmerge.core.engines.selection import NATIVE, PYTHON


@pytest.fixture(params=[PYTHON, NATIVE])
def implementation(request: pytest.FixtureRequest, demand: Callable[[str], None]) -> str:
    """Return each implementation in turn; the native core is left out where it is not built, or without operators."""
    name: str = request.param
    if name == NATIVE:
        demand(name)
        try:
            import lmerge.temporal.native.describing  # noqa: F401  (built with the operators)
        except ImportError as problem:
            pytest.skip(f"the native core was built without operators: {problem}")
    return name
