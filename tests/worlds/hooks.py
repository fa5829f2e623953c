"""Data sources that stop, or fail, at a chosen place of a chosen batch, so that a driver can be killed there.

A place is a file in a folder. While ``<place>-<batch>`` exists, a process that reaches the place makes
``<place>-<batch>.reached``, with its process id in it, and waits. A process that finds ``fail-<place>-<batch>`` removes
that file and fails, once.

    write     a task is about to write its rows
    written   its rows are written
    commit    all rows are written, the driver is about to commit
    done      the batch is committed, and Spark has not recorded it
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lmerge.spark.datasource import LmergeDataSource
from lmerge.spark.session import register
from lmerge.spark.sink.writers import LmergeStreamWriter, WriteTask

PLACES = ("write", "written", "commit", "done")


class HookedSource(LmergeDataSource):
    """The sink with places, registered under the name of the real one. Its option ``path`` is the folder of places."""

    def streamWriter(self, schema: Any, overwrite: bool) -> HookedWriter:  # noqa: N802
        return HookedWriter(self.options, schema)


class HookedWriter(LmergeStreamWriter):
    def __init__(self, options: Any, schema: Any) -> None:
        super().__init__(options, schema)
        self.folder = Path(options["path"]) if "path" in options else None

    def write(self, iterator: Iterator[Any]) -> Any:
        batch = WriteTask.current(self.batch_options).batch
        reach(self.folder, "write", batch)
        written = super().write(iterator)
        reach(self.folder, "written", batch)
        return written

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        reach(self.folder, "commit", batchId)
        super().commit(messages, batchId)
        reach(self.folder, "done", batchId)


def hook(spark: Any) -> None:
    """Give all further queries of the session with the option ``path`` these places."""
    register(spark)
    spark.dataSource.register(HookedSource)


def reach(folder: Path | None, place: str, batch: int) -> None:
    """Reach a place: wait or fail if a file asks for it."""
    if folder is None:
        return
    failing = folder / f"fail-{place}-{batch}"
    if failing.exists():
        failing.unlink(missing_ok=True)
        raise RuntimeError(f"made to fail at {place} of batch {batch}")
    gate = folder / f"{place}-{batch}"
    if gate.exists():
        reached = gate.with_suffix(".reached")
        unseen = reached.with_name(f"{reached.name}.{os.getpid()}")
        unseen.write_text(str(os.getpid()))
        unseen.rename(reached)
        while gate.exists():
            time.sleep(0.005)
