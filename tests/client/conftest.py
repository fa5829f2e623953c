"""Makes ``client_world`` importable, and runs test coroutines, each in a loop of its own and with a deadline.

What asks for ``engine`` runs twice: all that depends on which one reads, merges or writes.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from pathlib import Path

import pytest

from lmerge.core import engines

sys.path.insert(0, str(Path(__file__).parent))

DEADLINE_S = 60.0  # far above what any test needs: a wait for what never comes must end


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), DEADLINE_S))
    return True


@pytest.fixture(params=[engines.PYTHON, engines.NATIVE])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine that ``auto`` means."""
    return _on(request.param, monkeypatch)


@pytest.fixture
def native_engine(monkeypatch: pytest.MonkeyPatch) -> str:
    """The same for what Python's engine has nothing of."""
    return _on(engines.NATIVE, monkeypatch)


def _on(engine: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A missing native core is a failure where it is required, as in CI."""
    problem = engines.native_problem() if engine == engines.NATIVE else None
    if problem:
        if os.environ.get("CI") or os.environ.get("LMERGE_REQUIRE_NATIVE"):
            pytest.fail(f"the native core is required here: {problem}")
        pytest.skip(f"no native core: {problem}")
    monkeypatch.setattr(engines, "best", lambda: engine)
    return engine
