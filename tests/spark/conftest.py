"""A Spark session for the tests that need one, and fixtures from ``spark_world``.

Java, a session and its first batch take about ten seconds, so all tests share one session. Spark's own processes run
code of tests/worlds. They find it by PYTHONPATH, which is set before the session is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from lmerge.errors import UsageError
from lmerge.spark.java import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lmerge.spark.source.readers import LmergeStreamReader


@pytest.fixture(autouse=True)
def _new_worker() -> None:
    """Empty the caches of this process before each test."""
    from spool_world import forget_cached

    forget_cached()


def _demanded(problem: str) -> None:
    if os.environ.get("CI") or os.environ.get("LMERGE_REQUIRE_SPARK"):
        pytest.fail(f"Spark is required here: {problem}")
    pytest.skip(f"no Spark: {problem}")


@pytest.fixture(scope="session")
def spark_is_here() -> None:
    """Skip the test if there is no PySpark, or no Java to run it."""
    try:
        import pyspark  # noqa: F401
    except ImportError as problem:
        _demanded(str(problem))
    try:
        use_java()
    except UsageError as problem:
        _demanded(str(problem))


@pytest.fixture(scope="session")
def spark(spark_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give a session of two threads that writes only errors."""
    import spark_world

    # As docs/spark.md advises. Programs that tests start keep Spark's defaults.
    fast = {"spark_python_unix_domain_socket_enabled": "true"}
    session = spark_world.session(tmp_path_factory.mktemp("spark"), **fast)
    yield session
    session.stop()


@pytest.fixture
def readers() -> Iterator[Callable[..., LmergeStreamReader]]:
    """Make readers as Spark's driver does, and stop them at the end."""
    from read_world import options

    from lmerge.spark.source import readers

    made: list[LmergeStreamReader] = []

    def make(target: str, **given: Any) -> LmergeStreamReader:
        chosen = options(target, **given)
        reader = readers.stream_reader(chosen, readers.schema({**chosen, "payload": "binary"}))
        made.append(reader)
        return reader

    yield make
    for reader in made:
        reader.stop()
