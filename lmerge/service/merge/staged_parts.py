"""Staged parts: kept from the time a worker of a replica stages them until its publisher commits them.

See STAGE in ``lmerge.proto``. There is one ``Staging`` a server, as a part may come before its merge exists. Any part
may be dropped at any time: if a commit misses a part, the publisher sends the elements itself. So the rules only decide
how much is kept, and for how long:

    query q1 of replica a, staged and committed           what is dropped, and the reason in metrics
      stage 4/0, stage 4/1, stage 4/1 (attempt 1)
      stage 5/0                                           nothing: batch 4 may still be committed
      commit 4: 4/0, 4/1 (attempt 1)                      4/1 (attempt 0): superseded
      stage 4/0                                           nothing: batch 4 is run again, after a restart
      stage 6/0                                           4/0: superseded, it is two batches behind
      stage 0/0 of query q2                               5/0, 6/0: superseded
    anything above the room of the replica or server      the oldest: room
    nothing staged or committed for q2 for a while        all: time

The bytes of an arriving part, and of parts on their way into the merge, count against the room, and such parts cannot
be dropped. Pure: times are arguments, those of the event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from lmerge.core.batch import AnyBatch
from lmerge.core.engines.selection import PYTHON
from lmerge.errors import LimitExceeded, Unavailable
from lmerge.service.settings import Settings

# What a part, and a message of it, count beside the bytes that came, so that empty ones are not free.
PART_BYTES: Final = 1024
MESSAGE_BYTES: Final = 256
# What an element costs as Python's objects: four numbers and a bytes object, without the payload.
PYTHON_ELEMENT_BYTES: Final = 200

REPLACED: Final = "replaced"
SUPERSEDED: Final = "superseded"
ROOM: Final = "room"
TIME: Final = "time"
REASONS: Final = (REPLACED, SUPERSEDED, ROOM, TIME)


class PartOwner(NamedTuple):
    """The input whose parts are staged. It need not be attached."""

    merge: str
    replica: str

    def __str__(self) -> str:
        return f"input {self.replica!r} of merge {self.merge!r}"


class PartKey(NamedTuple):
    """The identity of a part: its query, batch, partition and attempt."""

    query: str
    batch: int
    partition: int
    attempt: int

    def __str__(self) -> str:
        return f"part {self.partition} (attempt {self.attempt}) of batch {self.batch} of query {self.query!r}"


class PartSizes(NamedTuple):
    """What the parts of a commit hold together, as the publisher declares it. None: it does not declare this."""

    elements: int | None
    payload_bytes: int | None


class StagedPart:
    """A part, as far as it has come. ``batches``: with their bytes on the wire. ``bytes``: what it counts."""

    __slots__ = ("batches", "bytes", "elements", "payload_bytes")

    def __init__(self) -> None:
        self.batches: list[tuple[AnyBatch, int]] = []
        self.elements = 0
        self.payload_bytes = 0
        self.bytes = PART_BYTES


class _ReplicaParts:
    """All parts of one replica, which are of one query.

    ``held``: the bytes of parts that arrive or are on their way into the merge. ``bytes``: all bytes, with ``held``.
    """

    __slots__ = ("bytes", "held", "parts", "query", "used_s")

    def __init__(self, query: str, now_s: float) -> None:
        self.query = query
        self.parts: dict[PartKey, StagedPart] = {}  # the oldest first
        self.bytes = 0
        self.held = 0
        self.used_s = now_s


class Staging:
    """The staged parts of one server. ``dropped``: how many were dropped without a commit, by reason."""

    def __init__(self, settings: Settings) -> None:
        self.bytes = 0
        self.dropped: Counter[str] = Counter()
        self._bytes_max = settings.staged_bytes
        self._replica_bytes_max = min(settings.staged_bytes, settings.staged_bytes_per_replica)
        self._keep_s = settings.staged_keep_s
        self._element_bytes = PYTHON_ELEMENT_BYTES if settings.resolved_engine == PYTHON else 0
        self._kept: dict[PartOwner, _ReplicaParts] = {}
        self._order: dict[tuple[PartOwner, PartKey], None] = {}  # all parts, the oldest first

    # What workers do.

    @contextmanager
    def arriving(self, owner: PartOwner, key: PartKey, now_s: float) -> Iterator[ArrivingPart]:
        """Give a part that begins to arrive. It is discarded unless it is ``finish``ed inside. Raises LimitExceeded."""
        if not self._bytes_max:
            raise LimitExceeded(f"{key} of {owner} cannot be staged: this server keeps no staged parts")
        arriving = ArrivingPart(self, owner, key, now_s)
        try:
            yield arriving
        finally:
            self._release(owner, arriving.held)

    def hold(self, owner: PartOwner, key: PartKey, part_bytes: int, more: int, now_s: float) -> None:
        """Make room for ``more`` bytes of a part, which has ``part_bytes`` with them. Raises LimitExceeded."""
        if part_bytes > self._replica_bytes_max:
            raise LimitExceeded(
                f"{key} of {owner} cannot be staged: it takes {part_bytes} bytes or more, and the staged parts of a "
                f"replica may take {self._replica_bytes_max}"
            )
        kept = self._kept.setdefault(owner, _ReplicaParts(key.query, now_s))
        while kept.bytes + more > self._replica_bytes_max and kept.parts:
            self._drop(owner, next(iter(kept.parts)), ROOM)
        while self.bytes + more > self._bytes_max and self._order:
            self._drop(*next(iter(self._order)), ROOM)
        if kept.bytes + more > self._replica_bytes_max or self.bytes + more > self._bytes_max:
            self._forget(owner)
            raise LimitExceeded(f"{key} of {owner} cannot be staged: the parts that arrive now take all the room")
        kept = self._kept.setdefault(owner, kept)  # dropping its last part may have forgotten it
        self.bytes += more
        kept.bytes += more
        kept.held += more

    def finish(self, owner: PartOwner, key: PartKey, part: StagedPart, now_s: float) -> None:
        """Add a part that has arrived completely. From now on it can be committed, or dropped."""
        kept = self._kept[owner]
        if key in kept.parts:
            self._drop(owner, key, REPLACED)
        kept.held -= part.bytes
        kept.parts[key] = part
        self._order[owner, key] = None
        self._use(owner, kept, key.query, now_s, behind=key.batch - 1)

    # What publishers do.

    def take(
        self,
        owner: PartOwner,
        query: str,
        batch: int,
        parts: Sequence[tuple[int, int]],
        declared: PartSizes,
        now_s: float,
    ) -> list[StagedPart]:
        """Take the parts of a commit, by partition and attempt, in this order. They count until they are given back.

        All else that is staged of this batch, of older batches and of other queries is dropped. Raises Unavailable if a
        part is missing.
        """
        kept = self._kept.get(owner)
        keys = [PartKey(query, batch, partition, attempt) for partition, attempt in parts]
        missing = [key for key in keys if kept is None or key not in kept.parts]
        taken = [] if kept is None or missing else [self._take(owner, kept, key) for key in keys]
        try:
            if kept is not None:
                self._use(owner, kept, query, now_s, behind=batch + 1)
            if missing:
                others = f", nor is {len(missing) - 1} more of its commit" if missing[1:] else ""
                raise Unavailable(
                    f"{missing[0]} of {owner} is not staged here (any more){others}: attach again and send the elements"
                )
            _check(f"batch {batch} of query {query!r} of {owner}", taken, declared)
        except Unavailable:
            self.give_back(owner, taken)
            raise
        return taken

    def give_back(self, owner: PartOwner, parts: Iterable[StagedPart]) -> None:
        """Give back parts that were taken and are in the merge's inbox: they do not count any more."""
        self._release(owner, sum(part.bytes for part in parts))

    # Expiry and queries.

    def sweep(self, now_s: float) -> None:
        """Drop the parts of replicas that have staged and committed nothing for a while."""
        for owner, kept in list(self._kept.items()):
            if now_s - kept.used_s >= self._keep_s:
                for key in list(kept.parts):
                    self._drop(owner, key, TIME)

    @property
    def parts(self) -> int:
        return len(self._order)

    def of_merge(self, merge: str) -> tuple[int, int]:
        """Return the number of parts of one merge, and the bytes that they count."""
        kept = [kept for owner, kept in self._kept.items() if owner.merge == merge]
        return sum(len(k.parts) for k in kept), sum(k.bytes for k in kept)

    def check(self) -> None:
        """Assert that the sums are right."""
        assert self.bytes == sum(kept.bytes for kept in self._kept.values()) <= self._bytes_max
        assert set(self._order) == {(owner, key) for owner, kept in self._kept.items() for key in kept.parts}
        for kept in self._kept.values():
            assert kept.bytes == kept.held + sum(part.bytes for part in kept.parts.values()) <= self._replica_bytes_max
            assert kept.parts or kept.held
            assert {key.query for key in kept.parts} <= {kept.query}

    def cost(self, batch: AnyBatch, wire_bytes: int) -> int:
        """Return the bytes that a batch counts. ``wire_bytes``: its bytes on the wire."""
        return wire_bytes + MESSAGE_BYTES + batch.count * self._element_bytes

    # Dropping.

    def _use(self, owner: PartOwner, kept: _ReplicaParts, query: str, now_s: float, *, behind: int) -> None:
        """Note that ``query`` runs: drop parts of other queries, and of batches before ``behind``."""
        kept.used_s, kept.query = now_s, query
        for key in [key for key in kept.parts if key.query != query or key.batch < behind]:
            self._drop(owner, key, SUPERSEDED)

    def _take(self, owner: PartOwner, kept: _ReplicaParts, key: PartKey) -> StagedPart:
        part = kept.parts.pop(key)
        del self._order[owner, key]
        kept.held += part.bytes
        return part

    def _drop(self, owner: PartOwner, key: PartKey, why: str) -> None:
        kept = self._kept[owner]
        part = kept.parts.pop(key)
        del self._order[owner, key]
        self.dropped[why] += 1
        kept.bytes -= part.bytes
        self.bytes -= part.bytes
        self._forget(owner)

    def _release(self, owner: PartOwner, held: int) -> None:
        kept = self._kept.get(owner)
        if kept is not None:
            kept.held -= held
            kept.bytes -= held
            self.bytes -= held
            self._forget(owner)

    def _forget(self, owner: PartOwner) -> None:
        """Delete the record of a replica that has no parts and no held bytes."""
        kept = self._kept.get(owner)
        if kept is not None and not kept.parts and not kept.held:
            del self._kept[owner]


class ArrivingPart:
    """A part that is arriving; made by ``Staging.arriving``. ``held``: bytes to give back if it does not finish."""

    def __init__(self, staging: Staging, owner: PartOwner, key: PartKey, now_s: float) -> None:
        self.part = StagedPart()
        self.held = 0
        self._staging = staging
        self._owner = owner
        self._key = key
        self._now_s = now_s
        self._hold(self.part.bytes)

    def add(self, batch: AnyBatch, wire_bytes: int) -> None:
        """Add one batch. Raises LimitExceeded."""
        part = self.part
        cost = self._staging.cost(batch, wire_bytes)
        part.bytes += cost
        self._hold(cost)
        part.batches.append((batch, wire_bytes))
        part.elements += batch.count
        part.payload_bytes += batch.payload_sizes[0]

    def finish(self, now_s: float) -> StagedPart:
        """Add the part to the staged ones: all of it has come."""
        self._staging.finish(self._owner, self._key, self.part, now_s)
        self.held = 0
        return self.part

    def _hold(self, more: int) -> None:
        self._staging.hold(self._owner, self._key, self.part.bytes, more, self._now_s)
        self.held += more


def _check(what: str, parts: Sequence[StagedPart], declared: PartSizes) -> None:
    """Raise Unavailable if the parts do not hold what the publisher declares: another run may have staged them."""
    found = PartSizes(sum(part.elements for part in parts), sum(part.payload_bytes for part in parts))
    for name, is_there, expected in zip(PartSizes._fields, found, declared, strict=True):
        if expected is not None and expected != is_there:
            raise Unavailable(
                f"the staged parts of {what} hold {is_there} {name.replace('_', ' ')} where the commit declares "
                f"{expected}: attach again and send the elements"
            )
