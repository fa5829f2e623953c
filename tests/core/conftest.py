"""Runs every test of this folder on both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lmerge.core.engines import selection

MARKER = "python_engine"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARKER}: uses internals of the Python engine, or none; does not run twice")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    once = [item for item in items if item.get_closest_marker(MARKER) and _engine_of(item) == selection.NATIVE]
    if once:
        config.hook.pytest_deselected(items=once)
        items[:] = [item for item in items if item not in set(once)]


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
