"""Refuses payloads that are no rows of the merge's schema, before they are merged.

Readers decode every event by the schema of the merge. One payload that does not fit would end all readers, again and
again, as it stays in the output. So no active input may deliver one, whether it declares the schema or not: a foreign
client may declare the schema and encode something else. Observers are exempt: their elements are never emitted.

The hub calls this for each turn's batches, in a thread if they are large. While the merge has no schema, nothing is
checked.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lmerge.core.elements import show_time
from lmerge.core.engines.selection import NATIVE, PYTHON, best
from lmerge.core.inputs import InputRole
from lmerge.errors import InvalidRow
from lmerge.service.merge.attachments import Attached, columns_of
from lmerge.service.merge.inbox import PublisherSession, Work
from lmerge.wire.fitting import Fitting, Misfit
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.schema import Schema

# Bytes of payloads that are checked within about 20 ms, whatever number of values they hold: up to one a byte.
LOOP_BYTES_MAX: Final = {PYTHON: 64 * 2**10, NATIVE: 2 * 2**20}


class SiftedWork(NamedTuple):
    """The work that may be merged, and the sessions to end, each with its reason."""

    fitting: list[tuple[Work, Attached]]
    misfits: list[tuple[PublisherSession, InvalidRow]]


class RowCheck:
    """The check of one merge."""

    def __init__(self, merge: str) -> None:
        self._merge = merge
        self._engine = best()  # not the merge's engine: native is some 100 times as fast, and accepts the same rows
        self._schema: pb.Schema | None = None  # the one that ``_fitting`` checks
        self._fitting: Fitting | None = None

    def takes_long(self, schema: pb.Schema | None, works: list[tuple[Work, Attached]]) -> bool:
        """Whether the check of these batches belongs in a thread."""
        if schema is None:
            return False
        return sum(work.batch.payload_sizes[0] for work, _ in works) > LOOP_BYTES_MAX[self._engine]

    def sift(self, schema: pb.Schema | None, works: list[tuple[Work, Attached]]) -> SiftedWork:
        """Separate the work that may be merged from the sessions to end.

        If a batch, or a piece of one, holds a payload that does not fit, none of it may be merged, and none of what its
        input delivered behind it.
        """
        if schema is None:
            return SiftedWork(works, [])
        if self._fitting is None or self._schema is not schema:
            self._schema, self._fitting = schema, Fitting(Schema.from_message(schema), self._engine)
        fitting: list[tuple[Work, Attached]] = []
        misfits: dict[str, tuple[PublisherSession, InvalidRow]] = {}
        for work, inp in works:
            if inp.name in misfits:
                continue
            misfit = self._fitting.misfit(work.batch, work.index_base) if inp.role is InputRole.ACTIVE else None
            if misfit is None:
                fitting.append((work, inp))
            else:
                misfits[inp.name] = work.session, self._error(schema, work, inp, misfit)
        return SiftedWork(fitting, list(misfits.values()))

    def _error(self, schema: pb.Schema, work: Work, inp: Attached, misfit: Misfit) -> InvalidRow:
        advice = "encode the rows by the schema that it declares"
        if not inp.has_schema:
            advice = "it declares no schema: declare the merge's and deliver rows of it"
        return InvalidRow(
            f"input {inp.name!r} of merge {self._merge!r}: batch {work.number}, element {work.index_base + misfit.at} "
            f"(Vs {show_time(misfit.vs)}, Ve {show_time(misfit.ve)}) is no row of the merge's columns "
            f"({columns_of(schema)}): {misfit.problem}; {advice}, or begin the merge anew with lmerge reset"
        )
