"""The programs of Prometheus that these tests run. Where they are missing, the tests are reported as not run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """Return a function that gives the path of a program, or ends the test; as a failure where it is required."""

    def program(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            if os.environ.get("CI") or os.environ.get("LMERGE_REQUIRE_PROMETHEUS"):
                pytest.fail(f"{name} is required here")
            pytest.skip(f"there is no {name}: apt install prometheus prometheus-alertmanager")
        return path

    return program
