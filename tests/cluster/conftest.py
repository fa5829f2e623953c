"""Fixtures of the tests on a real cluster, the one that KUBECONFIG names, with an image that its nodes have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_world import MISSING, TestNamespace, storage_values


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))
            if MISSING is not None:
                item.add_marker(pytest.mark.skip(reason=MISSING))


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestNamespace]:
    """A namespace with the restricted profile, deleted at the end, with values for this cluster."""
    made = TestNamespace.make(tmp_path_factory.mktemp("cluster"))
    try:
        with storage_values(made):
            yield made
    finally:
        made.delete()
