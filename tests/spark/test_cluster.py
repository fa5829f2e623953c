"""On a cluster: executors are processes of their own, some are killed; and the ways in which they get lmerge."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from client_world import threaded_world
from cluster_world import archive, environment_of, executor_of, spark_home, standalone
from driver_world import FINAL, Driver, batches, feed_of, final, stop_at, update_reference
from spark_world import HERE, MERGE, recorded, table

from lmerge.client import describe_merge
from lmerge.core.engines import selection
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are killed in groups"),
    pytest.mark.usefixtures("spark_is_here"),
]

APP = str(HERE / "cluster_app.py")


def result_of(scratch: Path, name: str) -> Any:
    return json.loads((scratch / f"{name}.json").read_text())


def run_and_kill(scratch: Path, command: Sequence[str], environment: dict[str, str], *master: str) -> None:
    """Kill an executor between write and commit, and another while it reads. Output and rows are still right."""
    rows = batches(3)
    feed_of(scratch, rows)
    with threaded_world() as world, recorded(world.target) as recorder:
        with stop_at(scratch, "written-1"), stop_at(scratch, "read-0"):
            driver = Driver(scratch, world.target, *master, command=command, environment=environment)
            with driver:
                for place in ("written-1", "read-0"):
                    executor_of(driver.reaches(place)).kill()
                    (scratch / "hooks" / place).unlink()
                driver.ends()
        expected = final(update_reference(rows))
        assert final(table(recorder.until_stable(FINAL))) == expected
        described = describe_merge(world.target, MERGE)
        assert described.missed_commits == 0  # the repeated attempt was staged again
        assert described.staged_commits > 0
    codec = RowCodec(parse_schema({"name": "string?", "count": "int"}))
    read = sorted(
        (row["vs"], codec.encode({"name": row["name"], "count": row["count"]}), row["ve"])
        for row in result_of(scratch, "read")
        if row["ve"] < FINAL
    )
    assert read == [tuple(event) for event in expected]
    unshared = result_of(scratch, "unshared")
    assert "the driver does not see it: the driver and all executors must see one folder" in unshared


@pytest.mark.timeout(1800)
def test_an_executor_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    run_and_kill(tmp_path, (sys.executable, APP), environment_of(spark_home(tmp_path)))
    assert {one["engine"] for one in result_of(tmp_path, "executors")} == {selection.best()}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_script_that_is_submitted_to_a_cluster_brings_its_environment_along(tmp_path: Path) -> None:
    """Run master and workers as separate processes. The native core comes to the executors in an archive."""
    home = spark_home(tmp_path)
    packed = archive(tmp_path)
    with standalone(tmp_path, home) as url:
        command = (
            str(home / "bin" / "spark-submit"),
            "--master",
            url,
            "--archives",
            f"{packed}#environment",
            "--conf",
            "spark.pyspark.python=./environment/bin/python",
            "--conf",
            f"spark.pyspark.driver.python={sys.executable}",
            APP,
        )
        environment = environment_of(home)
        del environment["PYSPARK_PYTHON"]
        run_and_kill(tmp_path, command, environment, url)
    for executor in result_of(tmp_path, "executors"):
        assert executor["engine"] == selection.best()
        assert executor["source"].startswith(str(tmp_path / "work-"))
