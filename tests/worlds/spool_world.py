"""Shared by the tests of the spool: record batches, keyed rows, and a file system on which a process dies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.elements import INF, NEG_INF, Element, Event
from lmerge.core.tdb import Tdb
from lmerge.spark.sink.elements import RowPlan
from lmerge.spark.sink.partition_attempt import RowsWritten, write_rows
from lmerge.spark.spool import published_state
from lmerge.spark.spool.files import SpoolFiles
from lmerge.spark.spool.manifest import Manifest
from lmerge.spark.spool.published_state import PublishedState
from lmerge.spark.spool.spool import Spool
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

META = {"query": "q-1", "merge": "flights", "replica": "a", "mode": "update", "schema": "k: string, n: int"}
SCHEMA = parse_schema({"k": "string", "n": "int"})
CODEC = RowCodec(SCHEMA)
ARROW = pa.schema([("k", pa.string()), ("n", pa.int64()), ("vs", pa.int64()), ("ve", pa.int64())])
UPDATES = RowPlan("update", SCHEMA, ve="ve", keys=("k",))
APPENDS = RowPlan("append", SCHEMA, ve="ve")
INTERVALS = RowPlan("intervals", SCHEMA, ve="ve", keys=("k",))

KeyedRow = tuple[str, "int | None", "int | None", "int | None"]
"""A row: key, value, Vs, Ve."""


def forget_cached() -> None:
    """Empty the cache of keyed states, as in a new worker."""
    published_state._cache.clear()


def rows_of(rows: Sequence[KeyedRow]) -> Any:
    """Return a record batch as Spark passes it."""
    return pa.RecordBatch.from_pylist([dict(zip(ARROW.names, row)) for row in rows], schema=ARROW)


def payload_of(key: str, value: int | None) -> bytes:
    return CODEC.encode({"k": key, "n": value})


def run(
    spool: Spool,
    batch: int,
    partitions: Sequence[Sequence[KeyedRow]],
    stable: int | None = None,
    *,
    plan: RowPlan = UPDATES,
    attempt: int = 0,
) -> Manifest:
    """Run a whole batch: write its partitions and commit it."""
    written = [attempt_at(spool, batch, partition, rows, plan, attempt) for partition, rows in enumerate(partitions)]
    return spool.commit(batch, [one.part for one in written], stable, META)


def attempt_at(
    spool: Spool, batch: int, partition: int, rows: Sequence[KeyedRow], plan: RowPlan = UPDATES, attempt: int = 0
) -> RowsWritten:
    """Make one attempt at one partition, with a record batch for each row."""
    return write_rows(spool, plan, batch, partition, attempt, (rows_of([row]) for row in rows))


def elements_of(spool: Spool, manifest: Manifest) -> list[Element]:
    """Return the elements of a batch, with its stable."""
    elements = [e for part in manifest.parts for batch in spool.read_part(part) for e in batch.elements()]
    if manifest.stable is not None:
        elements += Batch(b"\2", [manifest.stable], [0], [0], [b""]).elements()
    return elements


def events_of(batch: AnyBatch | None, from_: int = NEG_INF) -> list[Event]:
    """Return the events of a batch that end at ``from_`` or later."""
    tdb = Tdb()
    tdb.apply_batch(Batch(b"", [], [], [], []) if batch is None else batch)
    return [event for event in tdb.events() if event.ve >= from_]


def state_of(spool: Spool, partitions: int = 2) -> dict[str, Any]:
    """Return all that a restart reads and that can still matter at the newest stable point."""
    newest, base = spool.record.newest, spool.record.base
    last = newest.batch if newest else base.batch if base else -1
    stable = spool.last_stable(last + 1)
    batches = (last, last + 1) if newest else (last + 1,)
    return {
        "newest": last,
        "stable": stable,
        "live": {batch: events_of(spool.live_before(batch), spool.last_stable(batch)) for batch in batches},
        "keyed": {
            (batch, partition): {
                key: value
                for key, value in PublishedState.load(spool, partition, batch - 1).entries.items()
                if isinstance(value[0], int) and value[1] >= spool.last_stable(batch)
            }
            for batch in batches
            for partition in range(partitions)
        },
    }


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class Killed(BaseException):
    """The process is dead. As a BaseException it passes all cleaning up."""


class DyingFiles(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Local files of a process that dies at change number ``dies_at``.

    A write, or the removal of a folder, in which it dies is half done.
    """

    def __init__(self, dies_at: int | None = None) -> None:
        self.local = fs.LocalFileSystem()
        self.dies_at = dies_at
        self.changes = 0

    def at(self, folder: Path) -> SpoolFiles:
        return SpoolFiles(fs.PyFileSystem(self), str(folder))

    def change(self, half: Any = None) -> None:
        """Count one more change. The process dies in it, after ``half`` of it, or has died before."""
        self.changes += 1
        if self.dies_at is not None and self.changes >= self.dies_at:
            if half is not None and self.changes == self.dies_at:
                half()
            raise Killed

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def get_type_name(self) -> str:
        return "dying"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Any) -> Any:
        return self.local.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        return self.local.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self.change()
        self.local.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        def half() -> None:
            found = sorted(Path(path).iterdir())
            for file in found[: -(-len(found) // 2)]:
                file.unlink()

        self.change(half)
        self.local.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self.change()
        self.local.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        self.change()
        self.local.move(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def open_input_stream(self, path: str) -> Any:
        return self.local.open_input_stream(path, compression=None)

    def open_input_file(self, path: str) -> Any:
        return self.local.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self.change()
        return pa.PythonFile(_DyingFile(self, path), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError


class _DyingFile:
    def __init__(self, files: DyingFiles, path: str) -> None:
        self._files = files
        self._file = Path(path).open("wb")  # noqa: SIM115 - Arrow closes it
        self.closed = False

    def write(self, data: bytes) -> int:
        self._files.change(lambda: self._file.write(bytes(data)[: len(data) // 2]))
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
        self.closed = True


def commit_elements(spool: Spool, batch: int, elements: list[Element], stable: int | None = None) -> Manifest:
    """Commit a batch of one part."""
    return spool.commit(batch, [spool.write_part(batch, 0, 0, [Batch.of(elements)])], stable, META)


def seed_of(spool: Spool, batch: int) -> list[Element]:
    """Return the elements with which a publisher begins."""
    seed = spool.live_before(batch)
    assert seed is not None
    return list(seed.elements())


def keyed_batches(spool: Spool, count: int) -> None:
    """Commit batches of ``rows_in``, each with its stable."""
    for batch in range(count):
        run(spool, batch, rows_in(batch), 20 + 10 * batch)


def rows_in(batch: int) -> list[list[KeyedRow]]:
    """Return the rows of two partitions in one batch."""
    here = 30 + 10 * batch
    return [
        [("a", batch, here, here + 20), (f"a{batch}", 1, here, INF)],
        [("b", 7 - batch % 2, 30 + 10 * batch, 60 + 10 * batch)],
    ]
