"""One API server for all tests of the folder, and one of its own for a test that kills or freezes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kube_world import KubeServer, kube_server


@pytest.fixture(scope="session")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """Return an API server that tests share; each test works in a namespace of its own."""
    with kube_server(tmp_path_factory.mktemp("kube")) as server:
        yield server


@pytest.fixture
def own_kube(tmp_path: Path) -> Iterator[KubeServer]:
    """Return an API server that the test may kill."""
    with kube_server(tmp_path) as server:
        yield server
