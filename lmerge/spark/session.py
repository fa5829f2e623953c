"""What lmerge adds to a Spark session: its data sources, and word of a query's end.

A sink is not told when its query stops. Spark's listener is, in the process that made the session; it tells the query's
agent, which leaves the merge in good order. Without a listener (Spark Connect) the agent stays until the server's
JVM ends, or a newer run of the query begins; the merge then has an input that is silent, and waits for nobody.

The other way round the listener ends a query whose place another has taken (``lmerge cutover``): its last commit has
succeeded, and nothing went wrong, so it is stopped, and does not fail. A query in output mode ``update`` is ended by
its sink, which runs in this process as well, and knows that no batch is under way.

A stop in the middle of a batch is to be avoided. Spark interrupts the query's thread: it writes errors about the job,
and if that thread is handing over what Python has counted (each call of a data source does), its channel to this
process is closed by it, and PySpark's accumulator server prints a traceback that ends with EOFError.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from pyspark.sql.streaming.listener import StreamingQueryListener

from lmerge.core.engines.selection import native_problem
from lmerge.errors import LmergeError, UsageError
from lmerge.spark.datasource import LmergeDataSource, TickSource
from lmerge.spark.sink import agent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PYTHON_VARIABLE: Final = "PYSPARK_PYTHON"
_PYTHON_SETTING: Final = "spark.pyspark.python"
# Python begins within a second, on a machine that is busy starting Spark within a few.
_ANSWER_S: Final = 30.0
# What Spark has still to deliver when the program ends takes milliseconds, on a machine that is busy some seconds.
_PARTING_MS: Final = 10_000
# How often, and for how long, a query that is to end is asked whether a batch is under way: some seconds.
_LOOK_S: Final = 0.005
_BETWEEN_LOOKS: Final = 2_000
_warned: Final = threading.Event()
_registered: WeakSet[SparkSession] = WeakSet()
_self_ending: Final[set[str]] = set()  # runs whose sink ends them


def register(spark: SparkSession) -> None:
    """Make ``format("lmerge")`` known to the session. Doing so again changes nothing."""
    if spark in _registered:
        return
    is_connect = type(spark).__module__.startswith("pyspark.sql.connect")
    if not is_connect:
        _use_this_python(spark)
    _warn_of_slow_core()
    spark.dataSource.register(LmergeDataSource)
    spark.dataSource.register(TickSource)
    if not is_connect:
        listener = QueryEnds()
        spark.streams.addListener(listener)
        atexit.register(_part, spark, listener)
    _registered.add(spark)


def _use_this_python(spark: SparkSession) -> None:
    """Have Spark's Python workers on this machine run by the Python that runs the driver, where nobody has said by
    which: else PySpark takes the first ``python3`` of the PATH, which need not have lmerge. A cluster's machines have
    Pythons of their own. Raises UsageError if the user's choice has no lmerge.
    """
    context: Any = spark.sparkContext
    if not str(context.master).startswith("local"):
        return
    if not os.environ.get(_PYTHON_VARIABLE) and not context.getConf().get(_PYTHON_SETTING):
        context.pythonExec = sys.executable  # it is read where functions and data sources are handed to the JVM
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
    """Print once that rows are encoded, and elements merged, by Python alone."""
    if _warned.is_set() or native_problem() is None:
        return
    _warned.set()
    clone = Path(__file__).parents[2]
    how = f"make -C {clone} native" if (clone / "native" / "Cargo.toml").is_file() else (
        "pip install --force-reinstall --no-cache-dir lmerge, on a machine with Rust")
    sys.stderr.write(f"lmerge: the native core is not built, so this runs about 30 times slower; build it: {how}\n")


class QueryEnds(StreamingQueryListener):
    """Tells agents of the end of their queries, and ends those that others have replaced."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's names, here and below
        with suppress(OSError, LmergeError):
            agent.forget_end(str(event.id))  # of a run that nobody watched

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        if str(event.progress.runId) not in _self_ending:
            end_if_replaced(str(event.progress.id), str(event.progress.runId))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        _self_ending.discard(str(event.runId))
        with suppress(OSError, LmergeError):
            agent.leave(str(event.id), str(event.runId))


def ends_itself(run: str) -> None:
    """The sink of this run of a query asks ``end_if_replaced`` after each of its batches."""
    _self_ending.add(run)


def end_if_replaced(query_id: str, run: str, *, at_once: bool = False) -> Any | None:
    """Have the query stopped if another has taken its place, and print that; None: none has. Does not wait.
    ``at_once``: no job of the query is under way; else a moment is waited for when none is.
    """
    words = agent.end_of(query_id, run)
    # The session that a batch comes in is a copy, and knows no queries.
    found = (spark.streams.get(query_id) for spark in (list(_registered) if words else []))
    query = next((one for one in found if one is not None), None)
    if query is None:
        return None
    agent.forget_end(query_id)
    sys.stderr.write(f"lmerge: {words}; this query ends\n")
    threading.Thread(target=_stop, args=(query, 0 if at_once else _BETWEEN_LOOKS), daemon=True).start()
    return query


def _part(spark: SparkSession, listener: QueryEnds) -> None:
    """Before this Python ends: let Spark deliver the ends of queries, and then call the listener no more. Else its JVM,
    which outlives this process for a moment, writes that nobody answers.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    context: Any = vars(spark.sparkContext).get("_jsc")
    if context is None:
        return  # the session was stopped, and what it had to deliver is delivered
    with suppress(Py4JError, OSError):  # the JVM has gone
        bus = context.sc().listenerBus()
        with suppress(Py4JError):  # so much is under way that it takes too long
            bus.waitUntilEmpty(_PARTING_MS)
        spark.streams.removeListener(listener)
        bus.waitUntilEmpty(_PARTING_MS)  # a call that has begun


def _stop(query: Any, looks: int) -> None:
    """Stop the query, if it comes to that between two batches: else Spark writes that it cancels one. Where data waits
    the next batch begins at once, so the end of the data is waited for, and for half of the looks nothing less will do.
    """
    from py4j.protocol import Py4JError

    pause = threading.Event()
    with suppress(Py4JError, OSError):  # the session has gone meanwhile, and the query with it
        for look in range(looks):
            status = query.status
            is_between = not status["isTriggerActive"] and (look > looks // 2 or not status["isDataAvailable"])
            if is_between or not query.isActive:
                break
            pause.wait(_LOOK_S)
        query.stop()
