"""A quiet Spark session on this machine, with the source of the news, and its end.

Called by `__main__`. Spark's output does not reach the terminal: the JVM, and all that it starts, writes into a file in
the replica's folder, errors and warnings only. PySpark is loaded only when it is needed: its absence is an error with
the command that helps.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lmerge.errors import UsageError
from lmerge.spark.java import use_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PYSPARK_MIN: Final = (4, 3)
LOG: Final = "spark.log"
# The stop does not wait for a batch that waits for servers. Its elements are published after the restart.
STOP_S: Final = 10.0
JAVA_END_S: Final = 10.0

_LOG4J: Final = """
rootLogger.level = LEVEL
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def require_spark() -> None:
    """Let Spark find its Java. Raises UsageError, with the command that helps, if PySpark or Java is missing.

    What Python can import counts: in images of Apache Spark no package manager knows PySpark.
    """
    try:
        from pyspark import __version__ as found
    except ImportError as problem:
        raise UsageError(
            f"a Spark replica needs PySpark, which cannot be loaded ({problem}): run `pip install 'lmerge[spark]'`"
        ) from None
    if tuple(int(part) for part in found.split(".")[:2]) < PYSPARK_MIN:
        needed = ".".join(map(str, PYSPARK_MIN))
        raise UsageError(
            f"a Spark replica needs PySpark {needed} or newer, and here is {found}: "
            "run `pip install --upgrade 'lmerge[spark]'`"
        )
    use_java()


def new_session(folder: Path, threads: int) -> SparkSession:
    """Return a session of ``threads`` threads with its files in ``folder``."""
    from pyspark.sql import SparkSession

    from lmerge_replicas.spark.source import FlightNews

    # Spark's Python processes import this package, and get the import paths only from this variable.
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path or os.getcwd() for path in sys.path))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("lmerge replica")
    for name, value in _settings(folder, threads).items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.dataSource.register(FlightNews)
    return spark


def news(spark: SparkSession, log: Path, clock: Path, rows_max: int | None = None) -> DataFrame:
    """Return the log as a stream; a batch has at most ``rows_max`` rows."""
    reader = spark.readStream.format("flight_news").option("log", str(log)).option("clock", str(clock))
    return (reader if rows_max is None else reader.option("rows", rows_max)).load()


@contextlib.contextmanager
def errors_into(path: Path) -> Iterator[None]:
    """Make processes that are started inside this block write their standard error into the file."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def stop_query(query: Any) -> None:
    """End a query, which leaves the merge. A batch that hangs is left to the end of the JVM."""
    with contextlib.suppress(Exception):
        query.stop()


def end_session(spark: SparkSession) -> None:
    """End the JVM with all that it runs, and wait for its end."""
    with contextlib.suppress(Exception):
        for query in spark.streams.active:
            stop_query(query)
    gateway = spark.sparkContext._gateway  # noqa: SLF001  # no public name for the process
    with contextlib.suppress(Exception):
        spark.stop()
    _end_java(gateway)


def _end_java(gateway: Any) -> None:
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # the JVM ends when its standard input does
    try:
        process.wait(JAVA_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def log_option(folder: Path, level: str) -> str:
    """Return the option by which a JVM logs ``level`` (``off``: nothing) and above to its standard error.

    The option's file is written into ``folder``.
    """
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J.replace("LEVEL", level))
    return f"-Dlog4j2.configurationFile={log4j.as_uri()}"


def _settings(folder: Path, threads: int) -> dict[str, str]:
    # The plan runs for a minute, so compiling it well costs more than it saves.
    java = f"{log_option(folder, 'warn')} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return {
        "spark.master": f"local[{threads}]",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": java,
        "spark.local.dir": str(folder / "local"),
        # Over TCP a small batch waits 40 ms for a delayed acknowledgement of the loopback, in each task.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(threads),
        "spark.sql.streaming.stopTimeout": str(int(STOP_S * 1000)),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
