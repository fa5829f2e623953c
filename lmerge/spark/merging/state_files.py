"""The state of one shard of a merge in Spark, as files: one for each batch, whose name is the number of the batch.

    <folder>/<shard>/<batch>        a head, and what the batch has applied (a *log*) or a snapshot (a *base*)

A file is written whole or not at all. A batch that runs again writes the same state once more. Batch N begins with the
state after batch N-1, so it is found by its name, without a listing, and a file that a task cannot see is an error,
never an older state. The state after batch N-1 is the newest base up to it and the logs since.

The folder is one that the driver and all executors share, like that of a checkpoint, on any of its file systems.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from json import dumps, loads
from typing import Any, Final

from lmerge.core.elements import NEG_INF
from lmerge.errors import StoreDamaged
from lmerge.spark.spool.files import SpoolFiles
from lmerge.spark.spool.layout import batch_numbers

# A query may be set back by so many batches: Spark runs the last one again, asynchronous commits a few more.
KEPT_BATCHES: Final = 10
_KIND: Final = "merge-state"


@dataclass
class Head:
    """The state after a batch, but for the merge itself.

    ``bases``: the batches with a snapshot that are kept. ``oldest``: the oldest file. ``calls``: for each part of the
    log its input, whether it is a frame, and its place if it is in a file of packs. ``orders``: the last order of each
    input. ``taken``: elements taken so far. ``reported``: the stable point that was last reported. ``query``, ``run``:
    the query that wrote it, and its run.
    """

    settings: dict[str, Any]
    bases: list[int] = field(default_factory=list)
    oldest: int = 0
    base_bytes: int = 0
    log_bytes: int = 0
    calls: list[tuple[int, bool, str | None]] = field(default_factory=list)
    orders: dict[str, int] = field(default_factory=dict)
    taken: int = 0
    reported: int = NEG_INF
    query: str = ""
    run: str = ""

    @property
    def base(self) -> int:
        """The batch with the newest snapshot; -1: there is none."""
        return self.bases[-1] if self.bases else -1

    @property
    def settled(self) -> int:
        """The last batch whose packs the shard does not need any more."""
        return self.oldest if self.oldest in self.bases else self.oldest - 1


class StateFiles:
    """The files of one shard. ``folder``: a path or URI as Spark writes it."""

    def __init__(self, folder: str, shard: int) -> None:
        self._files = SpoolFiles.at(folder)
        self._shard = shard
        self.folder = folder

    @property
    def place(self) -> str:
        """The folder of the shard, for messages."""
        return self._files.path(str(self._shard))

    def read(self, batch: int) -> tuple[Head, list[bytes]] | None:
        """Return the head of a batch and the parts of its log or base; None if there is no such file.

        Raises StoreDamaged and UsageError.
        """
        name = self._name(batch)
        if self._files.first_missing([name]) is not None:
            return None
        text, *parts = self._files.read_frames(name, _KIND)
        try:
            head = Head(**loads(text))
            head.calls = [(number, is_frame, place) for number, is_frame, place in head.calls]
        except (ValueError, TypeError) as problem:
            raise self._files.damaged(name, f"its head cannot be read: {problem}") from problem
        return head, parts

    def known(self, batch: int) -> tuple[Head, list[bytes]]:
        """Return what ``read`` returns. Raises StoreDamaged if the file is missing."""
        found = self.read(batch)
        if found is None:
            raise StoreDamaged(f"the state of the merge after batch {batch}, {self.place}/{batch}, is missing")
        return found

    def oldest_head(self) -> Head | None:
        """Return the head of the oldest file; None if there is none. Raises StoreDamaged."""
        numbers = self._batches()
        found = self.read(numbers[0]) if numbers else None
        return found[0] if found is not None else None

    def write(self, batch: int, head: Head, parts: list[bytes]) -> None:
        """Write the state after a batch, and remove files that no batch needs any more. Raises StoreFull."""
        needed = max((base for base in head.bases if base <= batch - KEPT_BATCHES), default=head.oldest)
        obsolete = range(head.oldest, needed)
        head.oldest = max(head.oldest, needed)
        head.bases = [base for base in head.bases if base >= needed]
        self._files.write_frames(self._name(batch), _KIND, [dumps(asdict(head)).encode(), *parts])
        for one in obsolete:
            self._files.remove(self._name(one))

    def remove_below(self, batch: int) -> None:
        """Remove files that an interrupted ``write`` has left."""
        for one in self._batches():
            if one < batch:
                self._files.remove(self._name(one))

    def _batches(self) -> list[int]:
        return batch_numbers(self._files.names(str(self._shard)), "")

    def _name(self, batch: int) -> str:
        return f"{self._shard}/{batch}"
