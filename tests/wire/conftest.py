"""Runs on both engines what asks for ``engine``, and makes ``wire_world`` importable."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lmerge.core import engines

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(params=[engines.PYTHON, engines.NATIVE])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine that ``auto`` means."""
    return _on(request.param, monkeypatch)


def _on(engine: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A missing native core is a failure where it is required, as in CI."""
    problem = engines.native_problem() if engine == engines.NATIVE else None
    if problem:
        if os.environ.get("CI") or os.environ.get("LMERGE_REQUIRE_NATIVE"):
            pytest.fail(f"the native core is required here: {problem}")
        pytest.skip(f"no native core: {problem}")
    monkeypatch.setattr(engines, "best", lambda: engine)
    return engine
