"""Finds the first payload of a batch that is no row of a schema.

Called by the service before it merges a batch (``row_check``). ``RowCodec.decode`` is the definition of a row. Where
the native core is built, it checks all payloads first, and the codec decodes only those that the core does not accept.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from lmerge.core.batch import AnyBatch
from lmerge.core.elements import STABLE, Stable
from lmerge.core.engines.selection import NATIVE
from lmerge.errors import InvalidRow
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema


class Misfit(NamedTuple):
    """The element at index ``at`` of the batch, and why its payload is no row."""

    at: int
    vs: int
    ve: int
    problem: InvalidRow


class Precheck(Protocol):
    """A fast check that accepts most rows of a batch at once."""

    def first_doubt(self, batch: AnyBatch, start: int) -> int | None:
        """Return the index of the first payload from ``start`` that the codec must decode; None: the rest are rows."""


class Fitting:
    """Checks batches of any engine against ``schema``, on ``engine``. Not for use by several threads at once."""

    def __init__(self, schema: Schema, engine: str) -> None:
        self._codec = RowCodec(schema)
        self._precheck: Precheck | None = None
        if engine == NATIVE:
            from lmerge.wire.native_fitting import NativePrecheck

            self._precheck = NativePrecheck(schema)

    def misfit(self, batch: AnyBatch, base: int = 0) -> Misfit | None:
        """Return the first misfit among inserts and adjusts: both carry payloads. ``base`` is added to its index."""
        index = self._doubt(batch, 0)
        while index is not None:
            element = batch.element(index)
            assert not isinstance(element, Stable), "a stable carries no payload"
            try:
                self._codec.decode(element.payload, base + index)
            except InvalidRow as problem:
                return Misfit(index, element.vs, element.ve, problem)
            index = self._doubt(batch, index + 1)
        return None

    def _doubt(self, batch: AnyBatch, start: int) -> int | None:
        if self._precheck is not None:
            return self._precheck.first_doubt(batch, start)
        kinds = batch.kinds
        return next((index for index in range(start, len(kinds)) if kinds[index] != STABLE), None)
