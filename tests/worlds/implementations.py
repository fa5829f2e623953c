"""Which implementations of the operators there are: in Python always, and native where the core is built with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lmerge.core.engines.selection import NATIVE, PYTHON


def demand_operators(name: str, demand: Callable[[str], None]) -> str:
    """Return the name of an implementation, or skip the test where it is not built; where it is required, fail."""
    if name == NATIVE:
        demand(name)
        try:
            import lmerge.temporal.native.describing  # noqa: F401  (built with the operators)
        except ImportError as problem:
            pytest.skip(f"the native core was built without operators: {problem}")
    return name


def built_implementations(demand: Callable[[str], None]) -> tuple[str, ...]:
    """Return the implementations that there are, for tests that judge all of them by one query."""
    try:
        return PYTHON, demand_operators(NATIVE, demand)
    except pytest.skip.Exception:
        return (PYTHON,)
