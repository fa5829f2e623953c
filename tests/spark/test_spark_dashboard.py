"""The dashboard of Spark with a real replica in Spark behind it: none of its queries is empty."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from board_world import draw_board
from fault_world import Fleet
from kube_world import free_port
from prometheus_world import Daemon, Watched

pytestmark = pytest.mark.usefixtures("spark_is_here")


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no {name}: apt install prometheus prometheus-alertmanager")
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="processes end with their parent")
@pytest.mark.timeout(240)
async def test_no_query_is_empty_behind_a_replica_in_spark(tmp_path: Path) -> None:
    port = free_port()
    with Fleet(tmp_path) as fleet:
        await fleet.serve("h1")
        work = ["--server", fleet.addresses, "--start", str(time.time()), "--speed", "0.5"]
        command = [sys.executable, "-m", "lmerge_replicas.spark", "append", *work, "--checkpoint", str(tmp_path / "c")]
        driver = Daemon(command, tmp_path / "driver.log", env={**os.environ, "LMERGE_METRICS_PORT": str(port)})
        beside = Daemon(
            [sys.executable, "-m", "lmerge_replicas.flights", "conservative", *work], tmp_path / "beside.log"
        )
        try:
            targets = {**fleet.targets, "spark": [f"127.0.0.1:{port}"]}
            async with Watched(program, tmp_path / "watched", targets) as watched:
                await watched.holds("lmerge_spark_batches_total >= 2 and on () sum(lmerge_input_joined_bool) == 2")
                begin_s = time.time()
                await watched.holds("lmerge_spark_batches_total >= 6 and on () sum(lmerge_staged_commits_total) > 2")
                beside.kill()
                await watched.holds('lmerge_detached_inputs_total{reason="connection-ended"} >= 1')
                await watched.holds("lmerge_spark_batches_total >= 9")
                empty, _ = await draw_board(watched, "lmerge-spark", begin_s, time.time(), tmp_path)
                assert empty == set()
        finally:
            beside.kill()
            driver.kill()
