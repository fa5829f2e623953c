"""Options of the whole suite."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the expected outputs of scenario files again")


@pytest.fixture(scope="session")
def long_seeds() -> range:
    """Seeds of the long tests: LMERGE_SEEDS of them."""
    return range(int(os.environ.get("LMERGE_SEEDS", "200")))
