"""The count in PyFlink: Flink SQL's window table-valued function TUMBLE by event time, in streaming mode.

It runs in the JVM, and Python only submits it. Only the run that is checked has checkpoints.
"""

from __future__ import annotations

import platform
import tempfile
from importlib.metadata import version
from pathlib import Path

from bench.counts.definition import DELAY_MS, WINDOW_MS
from bench.peers.flink_job import new_environment
from bench.peers.job import serve


def run(data: Path, variant: str, output: Path | None) -> float:
    with tempfile.TemporaryDirectory() as checkpoints:
        flink = new_environment("event time", checkpoints if output else "")
        flink.get_config().set("table.local-time-zone", "UTC")
        given = (data / "rows.parquet").absolute().as_uri()
        flink.execute_sql(f"""
            CREATE TABLE given (
                ts BIGINT, `key` STRING, event_time AS TO_TIMESTAMP_LTZ(ts, 3),
                WATERMARK FOR event_time AS event_time - INTERVAL '{DELAY_MS // 1000}' SECOND
            ) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '{given}')
        """)
        sink = "'connector' = 'blackhole'"
        if output is not None:
            sink = f"'connector' = 'filesystem', 'path' = '{output.as_uri()}', 'format' = 'csv'"
        flink.execute_sql(f"CREATE TABLE counted (window_start BIGINT, `key` STRING, n BIGINT) WITH ({sink})")
        done = flink.execute_sql(f"""
            INSERT INTO counted
            SELECT UNIX_TIMESTAMP(CAST(window_start AS STRING)) * 1000, `key`, COUNT(*)
            FROM TABLE(TUMBLE(TABLE given, DESCRIPTOR(event_time), INTERVAL '{WINDOW_MS // 1000}' SECOND))
            GROUP BY window_start, window_end, `key`
        """)
        done.wait()
        # The figure of the job manager: without planning, submission and the start of the local cluster.
        seconds: float = done.get_job_client().get_job_execution_result().result().get_net_runtime() / 1000
    if output is not None:
        for path in [path for path in output.rglob("part-*") if path.is_file()]:
            path.with_name(f"{path.name}.csv").write_text("window_start,key,n\n" + path.read_text())
    return seconds


if __name__ == "__main__":
    new_environment("event time")
    serve(run, {"apache-flink": version("apache-flink"), "python": platform.python_version()})
