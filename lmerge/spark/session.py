"""What lmerge adds to a Spark session: its data sources, and a listener for the end of queries (``query_ends``)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from lmerge.client.metrics import MetricsPort, asked_port
from lmerge.core.engines.selection import native_problem
from lmerge.errors import UsageError
from lmerge.spark.datasource import LmergeDataSource, TickSource
from lmerge.spark.metrics import export_metrics
from lmerge.spark.sink import query_ends

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PYTHON_VARIABLE: Final = "PYSPARK_PYTHON"
_PYTHON_SETTING: Final = "spark.pyspark.python"
# Python begins within a second, on a machine that is busy starting Spark within a few.
_ANSWER_S: Final = 30.0
_warned: Final = threading.Event()
_exported: Final[list[MetricsPort]] = []
_registered: WeakSet[SparkSession] = WeakSet()


def register(spark: SparkSession) -> None:
    """Register ``format("lmerge")`` with the session. Registering again changes nothing."""
    if spark in _registered:
        return
    is_connect = type(spark).__module__.startswith("pyspark.sql.connect")
    if not is_connect:
        _use_this_python(spark)
    _warn_of_slow_core()
    spark.dataSource.register(LmergeDataSource)
    spark.dataSource.register(TickSource)
    query_ends.follow(spark, listens=not is_connect)
    if not is_connect:
        export_if_asked(spark)
    _registered.add(spark)


def export_if_asked(spark: SparkSession) -> None:
    """Serve metrics if LMERGE_METRICS_PORT asks for them, once in this process. Raises AddressInUse, UsageError."""
    asked = asked_port(os.environ)
    if asked is None or _exported:
        return
    port, host = asked
    _exported.append(export_metrics(spark, port, host))
    sys.stderr.write(f"metrics at http://{host}:{_exported[0].port}/metrics\n")


def _use_this_python(spark: SparkSession) -> None:
    """Make this machine's Python workers run by the driver's Python, if the user has not chosen one.

    Otherwise PySpark takes the first ``python3`` of the PATH, which may lack lmerge. The machines of a cluster have
    Pythons of their own. Raises UsageError if the user's choice has no lmerge.
    """
    context: Any = spark.sparkContext
    if not str(context.master).startswith("local"):
        return
    if not os.environ.get(_PYTHON_VARIABLE) and not context.getConf().get(_PYTHON_SETTING):
        context.pythonExec = sys.executable  # PySpark reads it when it sends functions and data sources to the JVM
    chosen = str(context.pythonExec)
    if chosen != sys.executable and not _has_lmerge(chosen):
        raise UsageError(
            f"Spark runs its Python workers by {chosen!r}, which has no lmerge: set "
            f"{_PYTHON_VARIABLE}={sys.executable} before the session is made, or install lmerge there"
        )


def _has_lmerge(python: str) -> bool:
    script = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('lmerge', 'pyarrow'))))"
    try:
        done = subprocess.run([python, "-c", script], capture_output=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _warn_of_slow_core() -> None:
    """Print once that Python alone encodes rows and merges elements."""
    if _warned.is_set() or native_problem() is None:
        return
    _warned.set()
    clone = Path(__file__).parents[2]
    how = (
        f"make -C {clone} native"
        if (clone / "native" / "Cargo.toml").is_file()
        else ("pip install --force-reinstall --no-cache-dir lmerge, on a machine with Rust")
    )
    sys.stderr.write(f"lmerge: the native core is not built, so this runs about 30 times slower; build it: {how}\n")
