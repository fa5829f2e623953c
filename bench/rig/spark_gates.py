"""``format("lmerge")`` with places at which a replica can be stopped and killed.

The option ``path`` is the replica's folder. A place is closed by a file in it. A process that comes to a closed place
creates ``<place>.reached`` and waits there.

    before write                   a task has its rows and has written none
    between write and commit       all rows are written and staged; the driver is about to commit
    between commit and checkpoint  a server has merged the batch, and Spark has not noted it
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lmerge.spark.datasource import LmergeDataSource
from lmerge.spark.sink.writers import LmergeStreamWriter

WRITE, COMMIT, DONE = "before write", "between write and commit", "between commit and checkpoint"
PLACES = (WRITE, COMMIT, DONE)
_LOOK_S = 0.002


class GatedSource(LmergeDataSource):
    """The data source, registered under the name of the real one."""

    def streamWriter(self, schema: Any, overwrite: bool) -> GatedWriter:  # noqa: N802  # Spark's name
        return GatedWriter(self.options, schema)


class GatedWriter(LmergeStreamWriter):
    """The writer of ``GatedSource``."""

    def __init__(self, options: Any, schema: Any) -> None:
        super().__init__(options, schema)
        self.folder = Path(options["path"])

    def write(self, iterator: Iterator[Any]) -> Any:
        come_to(self.folder, WRITE)
        return super().write(iterator)

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803  # Spark's name
        come_to(self.folder, COMMIT)
        super().commit(messages, batchId)
        come_to(self.folder, DONE)


def gate(folder: Path, place: str) -> Path:
    """Return the file that closes a place."""
    return folder / place.replace(" ", "-")


def reached(folder: Path, place: str) -> Path:
    """Return the file that shows that a process waits there."""
    return gate(folder, place).with_suffix(".reached")


def come_to(folder: Path, place: str) -> None:
    """Pass an open place, or wait at a closed one."""
    closed = gate(folder, place)
    if closed.exists():
        reached(folder, place).touch()
        while closed.exists():
            time.sleep(_LOOK_S)
