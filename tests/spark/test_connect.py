"""Spark Connect: the user declares what is otherwise read from the plan. The rest is the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from client_world import threaded_world
from cluster_world import environment_of, spark_home
from driver_world import FINAL, Driver, append_reference, batches, feed_of, final, update_reference
from spark_world import HERE, recorded, table

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are killed in groups"),
    pytest.mark.usefixtures("spark_is_here"),
]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_session_of_spark_connect_publishes_and_reads(tmp_path: Path) -> None:
    pytest.importorskip("grpc_status")
    rows = batches(2)
    feed_of(tmp_path, rows)
    environment = environment_of(spark_home(tmp_path)) | {"SPARK_TESTING": "1"}  # makes Spark take any port
    with threaded_world() as world:
        command = (sys.executable, str(HERE / "connect_app.py"))
        with (
            Driver(tmp_path, world.target, command=command, environment=environment) as driver,
            recorded(world.target) as counts,
            recorded(world.target, "appended") as flights,
        ):
            driver.ends()
            assert final(table(counts.until_stable(FINAL))) == final(update_reference(rows))
            assert final(table(flights.until_stable(FINAL))) == final(append_reference(rows))
    results = json.loads((tmp_path / "connect.json").read_text())
    assert results["session"] == "pyspark.sql.connect.session"
    assert "declare by hand what would have been derived from it: properties=" in results["append"]
    assert "stable_lag=, how far below the watermark" in results["append"]
    assert "properties=" not in results["update"]
    assert "keys=, the columns that identify the rows of one event" in results["update"]
    assert "cannot skip in a Spark Connect session" in results["skip"]
    assert "warning [unread] the plan: stays at the server and was not checked" in results["explain"]
    assert int(results["read"]) == len(final(update_reference(rows)))
    assert "name" in results["now"]
