"""Stateful processors of the tests. Spark's workers import them by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from lmerge.spark import skipped_until


class Echo(StatefulProcessor):
    """Outputs each row, with the number of rows of its name so far."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            before = self._count.get()
            count = 1 + (before[0] if before else 0)
            self._count.update((count,))
            yield Row(ts=row.ts, name=key[0], n=count)

    def close(self) -> None:
        pass


class SkipRecorder(StatefulProcessor):
    """Outputs each row, and writes the time before which events are not needed into ``folder``."""

    def __init__(self, checkpoint: str, folder: str) -> None:
        self._checkpoint, self._folder = checkpoint, folder

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._last = handle.getValueState("last", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        until = skipped_until(self._checkpoint)
        with Path(self._folder, f"{os.getpid()}-p").open("a") as file:
            file.write(f"p {until}\n")
        for row in rows:
            self._last.update((row.n,))
            yield Row(ts=row.ts, name=key[0], n=row.n, score=row.score)

    def close(self) -> None:
        pass
