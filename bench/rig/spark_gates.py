"""``format("lmerge")`` with places at which a replica is killed. The option ``path`` is the replica's folder.

A place is a file in it: while it is there, whoever comes there makes ``<place>.reached`` and stands still.

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
    """Registered under the name of the real one."""

    def streamWriter(self, schema: Any, overwrite: bool) -> GatedWriter:  # noqa: N802  # Spark's name
        return GatedWriter(self.options, schema)


class GatedWriter(LmergeStreamWriter):
    """See above."""

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
    """The file that closes a place."""
    return folder / place.replace(" ", "-")


def reached(folder: Path, place: str) -> Path:
    """The file that tells that somebody stands there."""
    return gate(folder, place).with_suffix(".reached")


def come_to(folder: Path, place: str) -> None:
    """Go on, or stand still."""
    closed = gate(folder, place)
    if closed.exists():
        reached(folder, place).touch()
        while closed.exists():
            time.sleep(_LOOK_S)
