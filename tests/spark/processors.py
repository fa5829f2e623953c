"""Stateful processors of the tests: Spark's workers import them by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


class Echo(StatefulProcessor):
    """Gives each row back, with how many of its name there were."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            before = self._count.get()
            self._count.update((1 + (before[0] if before else 0),))
            yield Row(ts=row.ts, name=key[0], n=self._count.get()[0])

    def close(self) -> None:
        pass
