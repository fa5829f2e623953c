"""Where large packs are: in files that the tasks of a query share, so that they do not go through Spark's shuffle.

    <folder>/packs/<batch>/<token>      what one task has packed: frames and tables, one after another

A task writes one file under a name of its own, and its rows name it (``PackPlace``). So an attempt that fails, or goes
on after another has won, changes nothing that a shard reads. The same file is the log of the shards: it is kept until
no shard needs it to restore its state, and removed with the folder of its batch.

Spark's way of the same bytes (Arrow, rows, compressed shuffle files, rows, Arrow) costs several times as much CPU as a
merge does; the figures are in docs/benchmarks.md. Small packs stay in Spark's rows: they cost less there than a file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, NamedTuple

from lmerge.errors import StoreDamaged, StoreFull
from lmerge.spark.merging.packs import Pack
from lmerge.spark.spool.files import SpoolFiles
from lmerge.spark.spool.layout import batch_numbers, token

_PACKS: Final = "packs"
# A task that packs less than this writes no file.
INLINE_BYTES: Final = 2**18


class PackPlace(NamedTuple):
    """Where a pack is in a file: its elements, and their orders behind them."""

    name: str
    at: int
    size: int
    crc32: int
    orders_size: int
    orders_crc32: int


class PackFiles:
    """The files of packs of a merge. ``folder``: a path or URI as Spark writes it."""

    def __init__(self, folder: str) -> None:
        self._files = SpoolFiles.at(folder)

    def placed(self, packs: Iterable[Sequence[Pack]], batch: int) -> Iterator[list[Pack]]:
        """Yield the packs of a task: in files if they have many bytes, otherwise as they are. Raises StoreFull."""
        few: list[Pack] = []
        given = iter(packs)
        for some in given:
            few += some
            if sum(pack.size for pack in few) > INLINE_BYTES:
                yield self._written(chain(few, chain.from_iterable(given)), batch)
                return
        if few:
            yield few

    def loaded(self, pack: Pack) -> Pack:
        """Return a pack with its bytes. Raises StoreDamaged."""
        if pack.place is None:
            return pack
        place = PackPlace(*json.loads(pack.place))
        data = self._read(place.name, place.at, place.size + place.orders_size)
        elements, orders = data[: place.size], data[place.size :]
        if zlib.crc32(elements) != place.crc32 or zlib.crc32(orders) != place.orders_crc32:
            raise self._damaged(place)
        return replace(pack, elements=elements, orders=orders)

    def elements(self, text: str) -> bytes:
        """Return the elements of the pack at a place. Raises StoreDamaged."""
        place = PackPlace(*json.loads(text))
        data = self._read(place.name, place.at, place.size)
        if zlib.crc32(data) != place.crc32:
            raise self._damaged(place)
        return data

    def remove_up_to(self, batch: int) -> None:
        """Remove the packs of all batches up to this one."""
        for one in batch_numbers(self._files.names(_PACKS), ""):
            if one <= batch:
                try:
                    self._files.remove_folder(f"{_PACKS}/{one}")
                except StoreFull:
                    continue  # an abandoned task still writes there: the next removal takes it

    def _written(self, packs: Iterable[Pack], batch: int) -> list[Pack]:
        name = f"{_PACKS}/{batch}/{token()}"
        placed: list[Pack] = []
        self._files.write(name, _pieces(name, packs, placed))
        return placed

    def _read(self, name: str, at: int, size: int) -> bytes:
        path = self._files.path(name)
        try:
            with self._files.filesystem.open_input_file(path) as file:
                data: bytes = file.read_at(size, at)
        except OSError as problem:
            raise StoreDamaged(
                f"cannot read elements of the merge in {path}: {problem}; all executors need the checkpoint's folder"
            ) from problem
        return data

    def _damaged(self, place: PackPlace) -> StoreDamaged:
        path = self._files.path(place.name)
        return StoreDamaged(f"the file {path} of the merge cannot be used: its checksum at byte {place.at} is wrong")


def _pieces(name: str, packs: Iterable[Pack], placed: list[Pack]) -> Iterator[bytes]:
    """Yield the bytes of all packs, and append to ``placed`` the packs with their places."""
    at = 0
    for pack in packs:
        elements, orders = pack.elements, pack.orders
        place = PackPlace(name, at, len(elements), zlib.crc32(elements), len(orders), zlib.crc32(orders))
        at += len(elements) + len(orders)
        yield from (elements, orders)
        placed.append(replace(pack, elements=b"", orders=b"", place=json.dumps(place)))
