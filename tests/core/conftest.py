"""Runs every test of this folder on both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lmerge.core.engines import selection

PYTHON_ONLY = "python_engine"
TWINS = "twins"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{PYTHON_ONLY}: uses internals of the Python engine, or none; runs on it alone")
    config.addinivalue_line("markers", f"{TWINS}: compares the engine with Python's; runs on the native one alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {PYTHON_ONLY: selection.NATIVE, TWINS: selection.PYTHON}
    twice = [
        item
        for item in items
        for marker, engine in left_out.items()
        if item.get_closest_marker(marker) and _engine_of(item) == engine
    ]
    if twice:
        config.hook.pytest_deselected(items=twice)
        items[:] = [item for item in items if item not in set(twice)]


def _engine_of(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("engine")


@pytest.fixture(scope="module", autouse=True, params=[selection.PYTHON, selection.NATIVE])
def engine(request: pytest.FixtureRequest, demand: Callable[[str], None]) -> Iterator[str]:
    """Run with each engine in the place of ``auto``."""
    name: str = request.param
    demand(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "best", lambda: name)
        yield name
