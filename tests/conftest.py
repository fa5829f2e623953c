"""The options of the whole suite, its test coroutines, and the engines on which a test runs.

A test with the fixture ``engine`` runs twice: on the engine that reads, merges or writes. Tests of the core always do.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from interrupts import accept_interrupts

from lmerge.core.engines import selection

# The speed at which a machine draws examples and runs them decides nothing.
settings.register_profile("lmerge", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lmerge")

accept_interrupts()

DEADLINE_S = 60.0  # far above any test's time, so that a wait without an end ends


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the expected outputs of scenario files again")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run each test coroutine in a loop of its own and with a deadline: its ``timeout`` mark, if it has one."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    mark = pyfuncitem.get_closest_marker("timeout")
    deadline_s = mark.args[0] if mark is not None and mark.args else DEADLINE_S
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), deadline_s))
    return True


@pytest.fixture(scope="session")
def long_seeds() -> range:
    """Return the seeds of the long tests: LMERGE_SEEDS of them."""
    return range(int(os.environ.get("LMERGE_SEEDS", "200")))


@pytest.fixture(scope="session")
def demand() -> Callable[[str], None]:
    """Return a function that ends the test if an engine is missing: as a failure where it is required, as in CI."""

    def demand(engine: str) -> None:
        problem = selection.native_problem() if engine == selection.NATIVE else None
        if problem:
            if os.environ.get("CI") or os.environ.get("LMERGE_REQUIRE_NATIVE"):
                pytest.fail(f"the native core is required here: {problem}")
            pytest.skip(f"no native core: {problem}")

    return demand


@pytest.fixture(params=[selection.PYTHON, selection.NATIVE])
def engine(request: pytest.FixtureRequest, demand: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the engine that ``auto`` means."""
    name: str = request.param
    demand(name)
    monkeypatch.setattr(selection, "best", lambda: name)
    return name


@pytest.fixture
def native_engine(demand: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the native engine, for what Python's engine does not have."""
    demand(selection.NATIVE)
    monkeypatch.setattr(selection, "best", lambda: selection.NATIVE)
    return selection.NATIVE
