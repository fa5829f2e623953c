"""The job in PyFlink: Flink SQL's deduplication (ROW_NUMBER() = 1) over a union, in streaming mode.

Variants: ``event time`` keeps the first row by event time and clears its state as the watermark passes.
``processing time`` emits the first row that arrives and clears its state by a wall-clock time to live, which must
exceed the lag between inputs (an hour here, so nothing expires in a run). Both are queries that Flink documents. Both
run in the JVM, and Python only submits them. Only the run that is checked has checkpoints.
"""

from __future__ import annotations

import platform
import tempfile
from importlib.metadata import version
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from bench.peers.job import DELAY_MS, INPUTS, serve

JARS = sorted((Path(__file__).parents[2] / "build" / "peers" / "flink" / "jars").glob("*.jar"))
ORDERED_BY = {"event time": "event_time", "processing time": "arrival"}


def new_environment(variant: str, checkpoints: str = "") -> TableEnvironment:
    settings = Configuration()
    settings.set_string("parallelism.default", "2")
    settings.set_string("pipeline.object-reuse", "true")
    settings.set_string("pipeline.jars", ";".join(jar.as_uri() for jar in JARS))
    if variant == "processing time":
        settings.set_string("table.exec.state.ttl", "1 h")
    settings.set_string("restart-strategy.type", "none")
    if checkpoints:  # a sink of files completes them at checkpoints
        settings.set_string("execution.checkpointing.interval", "5 s")
        settings.set_string("execution.checkpointing.storage", "filesystem")
        settings.set_string("execution.checkpointing.dir", Path(checkpoints).as_uri())
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )


def run(data: Path, variant: str, output: Path | None) -> float:
    with tempfile.TemporaryDirectory() as checkpoints:
        return run_in(new_environment(variant, checkpoints if output else ""), data, variant, output)


def run_in(flink: TableEnvironment, data: Path, variant: str, output: Path | None) -> float:
    for at in range(INPUTS):
        recorded = (data / f"rows{at}.parquet").as_uri()
        flink.execute_sql(f"""
            CREATE TABLE input{at} (
                vs BIGINT, payload STRING, ve BIGINT,
                event_time AS TO_TIMESTAMP_LTZ(vs, 3), arrival AS PROCTIME(),
                WATERMARK FOR event_time AS event_time - INTERVAL '{DELAY_MS // 1000}' SECOND
            ) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '{recorded}')
        """)
    sink = "'connector' = 'blackhole'"
    if output is not None:
        sink = f"'connector' = 'filesystem', 'path' = '{output.as_uri()}', 'format' = 'csv'"
    flink.execute_sql(f"CREATE TABLE merged (vs BIGINT, payload STRING, ve BIGINT) WITH ({sink})")
    inputs = " UNION ALL ".join(f"SELECT * FROM input{at}" for at in range(INPUTS))
    done = flink.execute_sql(f"""
        INSERT INTO merged SELECT vs, payload, ve FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY vs, payload ORDER BY {ORDERED_BY[variant]} ASC) AS place
            FROM ({inputs})
        ) WHERE place = 1
    """)
    done.wait()
    # The figure of the job manager: without planning, submission and the start of the local cluster.
    seconds: float = done.get_job_client().get_job_execution_result().result().get_net_runtime() / 1000
    if output is not None:
        publish(output)
    return seconds


def publish(output: Path) -> None:
    """Give the part files the header and the name that the check requires."""
    for path in [path for path in output.rglob("part-*") if path.is_file()]:
        path.with_name(f"{path.name}.csv").write_text("vs,payload,ve\n" + path.read_text())


if __name__ == "__main__":
    new_environment("event time")
    serve(run, {"apache-flink": version("apache-flink"), "python": platform.python_version()})
