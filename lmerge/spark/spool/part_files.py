"""Writes and reads the elements of a spool's files, as messages in frames.

Called by ``spool`` for parts, by ``live_events`` and ``trimming`` for snapshots. A message is what a publisher sends
(``batch`` of PublishRequest). So nothing is encoded again on the way to a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from lmerge.core.batch import AnyBatch
from lmerge.core.elements import INF, NEG_INF
from lmerge.core.engines import selection
from lmerge.errors import InvalidBatch, UsageError
from lmerge.spark.frames import from_frame
from lmerge.spark.spool.files import SpoolFiles
from lmerge.spark.spool.layout import number_of, part_name
from lmerge.spark.spool.manifest import SpoolPart, sample
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.frames import groups
from lmerge.wire.limits import BatchLimits

# Like a publisher's own messages: large enough to amortise gRPC, small enough for a server's turns.
MESSAGE_LIMITS: Final = BatchLimits(elements=8192)
# Batches are collected up to this size before they are written, so that small Arrow batches make whole messages.
COLLECTED_BYTES: Final = 4 * 2**20
# A sample of the ends of a part. It shows within some per cent how many ends are before a given time.
ENDS_MAX: Final = 32
_ENDS_PER_MESSAGE: Final = 16


class PartSummary:
    """Counts and bounds of elements, collected while they are written."""

    def __init__(self) -> None:
        self.messages = self.elements = self.adjusts = 0
        self.largest_end = NEG_INF
        self.smallest_vold = INF
        self._ends: list[int] = []

    @property
    def ends(self) -> tuple[int, ...]:
        """A sample of the inserts' ends, in order."""
        return sample(sorted(self._ends), ENDS_MAX)

    def add(self, batches: Sequence[AnyBatch]) -> None:
        """Add the batches of one message. Raises UsageError if one of them holds a stable."""
        self.messages += 1
        for batch in batches:
            _, adjusts, stables = batch.counts(batch.count)
            if stables:
                raise UsageError("a part of a batch holds a stable; only the whole batch may have one, at its end")
            largest, smallest_former, ends = batch.end_bounds(_ENDS_PER_MESSAGE)
            self.elements += batch.count
            self.adjusts += adjusts
            self.largest_end = max(self.largest_end, largest)
            self.smallest_vold = min(self.smallest_vold, smallest_former)
            self._ends += ends


def write_part(
    files: SpoolFiles, part: SpoolPart, batches: Iterable[AnyBatch], on_message: Callable[[bytes], None] | None = None
) -> SpoolPart:
    """Write the elements of the attempt ``part`` as they come. Return the part with its file, counts and bounds.

    A part without elements has no file. ``on_message`` receives each message as it is written. Raises UsageError if an
    element is a stable, LimitExceeded if a payload is too large, and StoreFull.
    """
    summary = PartSummary()
    messages = messages_of(batches, summary)
    if on_message is not None:
        messages = _with_callback(messages, on_message)
    first = next(messages, None)
    if first is None:
        return part
    name = part_name(part.batch, part.partition, part.attempt)
    size = files.write_frames(name, "part", chain([first], messages))
    return replace(
        part,
        name=name,
        messages=summary.messages,
        elements=summary.elements,
        adjusts=summary.adjusts,
        bytes=size,
        largest_end=summary.largest_end,
        smallest_vold=summary.smallest_vold,
        ends=summary.ends,
    )


def read_part(files: SpoolFiles, part: SpoolPart) -> list[AnyBatch]:
    """Return the elements of a part. Raises StoreDamaged, or UsageError if a newer lmerge wrote its file."""
    if not part.name:
        return []
    messages = files.read_frames(part.name, "part")
    if len(messages) != part.messages:
        raise files.damaged(part.name, f"it has {len(messages)} messages instead of {part.messages}")
    return read_elements(files, part.name, messages)


def files_of(part: SpoolPart) -> list[str]:
    """Return the files that an attempt has written."""
    names = [part.name] if part.name else []
    if part.keyed_state is not None and number_of(part.keyed_state.name.rpartition("/")[2]) == part.batch:
        names.append(part.keyed_state.name)
    return names


def messages_of(batches: Iterable[AnyBatch], summary: PartSummary) -> Iterator[bytes]:
    """Encode ``batches`` as messages, as they come. Raises UsageError, LimitExceeded, InvalidBatch."""
    encode = frames_of(selection.best()).encode_publish
    for collected in _collected(batches):
        for group in groups(collected, MESSAGE_LIMITS):
            summary.add(group)
            yield encode(summary.messages, group)


def read_elements(files: SpoolFiles, name: str, messages: Sequence[bytes]) -> list[AnyBatch]:
    """Return the batches in the messages of a file. Raises StoreDamaged."""
    batches = []
    for number, message in enumerate(messages):
        try:
            batches.append(from_frame(message))
        except InvalidBatch as problem:
            raise files.damaged(name, f"message {number}: {problem}") from problem
    return batches


def _collected(batches: Iterable[AnyBatch]) -> Iterator[list[AnyBatch]]:
    collected: list[AnyBatch] = []
    elements = used = 0
    for batch in batches:
        if not batch.count:
            continue
        collected.append(batch)
        elements += batch.count
        used += batch.payload_sizes[0]
        if elements >= MESSAGE_LIMITS.elements or used >= COLLECTED_BYTES:
            yield collected
            collected, elements, used = [], 0, 0
    if collected:
        yield collected


def _with_callback(messages: Iterable[bytes], on_message: Callable[[bytes], None]) -> Iterator[bytes]:
    for message in messages:
        on_message(message)
        yield message
