"""One shard of a merge in Spark: a ``core.merge.Merge`` that outlives its process, batch by batch.

A merge is a pure function of the calls made to it. So its state is a snapshot (the *base*) and the calls since (the
*log*), both in Spark's state store. A batch writes its own calls and no more, and a new base is written when the log
has grown as long as the last base. So the bytes written for an element are bounded, however many events are live.

A worker that still holds the merge as of the store's version continues with it. Any other worker restores the base and
repeats the log. The store's ``token`` decides which: each attempt at a batch writes a token of its own, so what a
failed attempt left in a process is never used.

This module does not depend on Spark: ``ShardStore`` is all that it needs of ``processor``.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from lmerge.core.detaching import DetachCause
from lmerge.core.elements import NEG_INF, STABLE
from lmerge.core.engines.selection import AUTO
from lmerge.core.merge import Merge, Outcome, earliest_joining
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.errors import UsageError
from lmerge.spark.merging import packs

# A shorter log is not worth a new base: to repeat it takes a few milliseconds.
LOG_BYTES_MIN: Final = 2**20
# The size of one entry of the state: well under what Spark's pipe to Python and RocksDB handle well in one piece.
CHUNK_BYTES: Final = 4 * 2**20
# Merges that a worker holds for later batches. Those of queries that have ended are dropped first.
HELD_MAX: Final = 64
_MALFORMED_ROW: Final = "it sent a row that is no element"


@dataclass(frozen=True)
class InputPlan:
    """One input of the merge. ``join_at``: see ``Merge.attach``."""

    name: str
    properties: tuple[str, ...] = ()
    join_at: int | None = None


@dataclass(frozen=True)
class MergePlan:
    """The settings of all shards. ``has_order``: the inputs have a column of order. ``engine``: of the core."""

    inputs: tuple[InputPlan, ...]
    algorithm: str
    shards: int
    policy: str = "lazy"
    closing: str = "all"
    has_order: bool = True
    engine: str = AUTO

    def settings(self) -> dict[str, Any]:
        """Return the settings that must not change while a checkpoint lives."""
        given = asdict(self)
        del given["engine"]  # both engines emit the same
        settings: dict[str, Any] = json.loads(json.dumps(given))
        return settings

    def fresh(self) -> Merge:
        """Return the merge before its first call. Raises UsageError if the settings contradict each other."""
        merge = Merge(MergeConfig(self.algorithm, self.policy, self.closing, track_live=False, engine=self.engine))
        for one in self.inputs:
            merge.attach(one.name, one.properties, join_at=one.join_at)
        _admit_if_stuck(merge)
        return merge


class ShardStore(Protocol):
    """The state of one shard: a text, and chunks of bytes by number."""

    def head(self) -> str | None: ...
    def put_head(self, text: str) -> None: ...
    def chunk(self, number: int) -> bytes: ...
    def put_chunk(self, number: int, data: bytes) -> None: ...
    def drop_chunk(self, number: int) -> None: ...


@dataclass
class Head:
    """The first entry of the store. ``base`` and ``log`` are ranges of chunks.

    ``orders``: the last order of each input; ``reported``: the stable point that was last reported.
    """

    lineage: str
    settings: dict[str, Any]
    token: str = ""
    base: tuple[int, int] = (0, 0)
    log: tuple[int, int] = (0, 0)
    base_bytes: int = 0
    log_bytes: int = 0
    orders: dict[str, int] = field(default_factory=dict)
    reported: int = NEG_INF

    @classmethod
    def of(cls, text: str) -> Head:
        head = cls(**json.loads(text))
        head.base, head.log = (head.base[0], head.base[1]), (head.log[0], head.log[1])
        return head


@dataclass(frozen=True)
class ShardOutput:
    """What a batch caused. ``tables``: elements without stables, in order.

    ``before``, ``stable``: the stable point reported last, and the present one. ``ended``: why inputs have ended.
    """

    tables: list[Any]
    before: int
    stable: int
    ended: list[str]


@dataclass
class _Held:
    token: str
    merge: Merge


_held: OrderedDict[str, _Held] = OrderedDict()


class Shard:
    """One shard, in one batch. Raises UsageError if its state was made with other settings."""

    def __init__(self, plan: MergePlan, number: int, store: ShardStore) -> None:
        self._plan, self._number, self._store = plan, number, store
        self._head, self._merge = self._load()

    def step(self, packed: Iterable[tuple[int, bytes]], first_order: int, *, reports: bool) -> ShardOutput:
        """Merge packs (input, bytes of a table) of one batch, input by input, and return what the merge emits.

        The order of the output counts from ``first_order`` on. ``reports``: all shards report their stable points in
        this batch.
        """
        by_input: dict[int, list[Any]] = {}
        for number, data in packed:
            by_input.setdefault(number, []).append(packs.from_bytes(data))
        tables: list[Any] = []
        ended: list[str] = []
        for number in sorted(by_input):
            table = packs.joined(by_input[number], self._plan.has_order)
            for piece in _pieces(self._in_order(number, table)):
                self._note(number, piece)
                for outcome in apply(self._merge, self._plan.inputs[number], piece):
                    ended += [_reason(one.input, one.reason) for one in outcome.detached if _is_fault(one)]
                    if outcome.batch.count:
                        tables.append(packs.table_of(outcome.batch, first_order))
                        first_order += outcome.batch.count
        before, stable = self._head.reported, self._merge.stable_point
        if reports:
            self._head.reported = stable
        self._save()
        return ShardOutput([table for table in tables if table.num_rows], before, stable, ended)

    def _in_order(self, number: int, table: Any) -> Any:
        """Return the table if its order continues the last batch, otherwise a row that ends the input."""
        if not self._plan.has_order or not table.num_rows:
            return table
        name = self._plan.inputs[number].name
        orders = table.column("order").filter(pc.not_equal(table.column("kind"), packs.MALFORMED))
        if not len(orders):
            return table
        first, newest = orders[0].as_py(), orders[len(orders) - 1].as_py()
        last = self._head.orders.get(name)
        if last is not None and first < last:
            reason = f"its order goes back: {first} came in a later batch than {last}"
            return pa.table([[0], [packs.MALFORMED], [0], [0], [0], [reason.encode()]], schema=packs.TABLE)
        self._head.orders[name] = newest
        return table

    # The state.

    def _load(self) -> tuple[Head, Merge]:
        text = self._store.head()
        if text is None:
            return Head(uuid4().hex, self._plan.settings()), self._plan.fresh()
        head = Head.of(text)
        self._check(head.settings)
        # Removed for as long as the batch lasts: a merge that failed in the middle must not be used again.
        held = _held.pop(head.lineage, None)
        return head, held.merge if held is not None and held.token == head.token else self._restored(head)

    def _check(self, before: Mapping[str, Any]) -> None:
        now = self._plan.settings()
        changed = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
        if changed:
            name = changed[0]
            raise UsageError(
                f"shard {self._number} of the merge cannot continue: {name} is {now.get(name)!r}, and the query's "
                f"checkpoint was made with {before.get(name)!r}; begin with a new checkpoint"
            )

    def _restored(self, head: Head) -> Merge:
        merge = self._plan.fresh()
        if head.base[0] < head.base[1]:
            merge = restored(b"".join(map(self._store.chunk, range(*head.base))), engine=self._plan.engine)
        for at in range(*head.log):
            table = packs.from_bytes(self._store.chunk(at))
            for _ in apply(merge, self._plan.inputs[int(table.schema.metadata[b"input"])], table):
                pass  # its output was emitted when it came
        return merge

    def _note(self, number: int, table: Any) -> None:
        """Append a call to the log."""
        data = packs.to_bytes(table.replace_schema_metadata({"input": str(number)}))
        start, stop = self._head.log
        self._store.put_chunk(stop, data)
        self._head.log = (start, stop + 1)
        self._head.log_bytes += len(data)

    def _save(self) -> None:
        head = self._head
        if head.log_bytes > max(head.base_bytes, LOG_BYTES_MIN):
            self._rebase()
        head.token = uuid4().hex
        self._store.put_head(json.dumps(asdict(head)))
        _held[head.lineage] = _Held(head.token, self._merge)
        while len(_held) > HELD_MAX:
            _held.popitem(last=False)

    def _rebase(self) -> None:
        """Write a new base, and drop the old base and the log."""
        head = self._head
        snapshot = snapshot_of(self._merge)
        for at in (*range(*head.base), *range(*head.log)):
            self._store.drop_chunk(at)
        first = head.log[1]
        pieces = [snapshot[at : at + CHUNK_BYTES] for at in range(0, len(snapshot), CHUNK_BYTES)]
        for at, piece in enumerate(pieces, first):
            self._store.put_chunk(at, piece)
        end = first + len(pieces)
        head.base, head.log = (first, end), (end, end)
        head.base_bytes, head.log_bytes = len(snapshot), 0


def apply(merge: Merge, one: InputPlan, table: Any) -> list[Outcome]:
    """Apply a table of one input to the merge. Equal merges emit the same for the same table."""
    controls = pc.indices_nonzero(pc.greater(table.column("kind"), STABLE)).to_pylist()
    outcomes, start = [], 0
    for at in (*controls, table.num_rows):
        if start < at:
            outcomes.append(merge.apply(one.name, packs.batch_of(table.slice(start, at - start))))
        if at < table.num_rows:
            kind, vs, has_vs, payload = (table.column(name)[at].as_py() for name in ("kind", "vs", "ve", "payload"))
            outcomes += _control(merge, one, kind, vs, has_vs, payload)
        start = at + 1
    return outcomes + _admit_if_stuck(merge)


def _admit_if_stuck(merge: Merge) -> list[Outcome]:
    """Admit the input that is right from the earliest time, if the merge would otherwise wait for ever.

    That is so without a stable so far and with joining inputs only. A server does the same. The output is right from
    that time on.
    """
    first = earliest_joining(merge.inputs()) if merge.stable_point == NEG_INF else None
    return [] if first is None else [merge.admit(first.name)]


def _control(merge: Merge, one: InputPlan, kind: int, vs: int, has_vs: int, payload: bytes) -> list[Outcome]:
    """Attach or detach an input."""
    is_attached = merge.is_attached(one.name)
    if kind == packs.ATTACH:
        incarnation = merge.status(one.name).incarnation + 1 if is_attached else None
        join_at = vs if has_vs else None
        return [merge.attach(one.name, one.properties, join_at=join_at, incarnation=incarnation)]
    if not is_attached:
        return []
    if kind == packs.DETACH:
        return [merge.detach(one.name)]
    return [merge.detach(one.name, f"{_MALFORMED_ROW}: {payload.decode()}", DetachCause.INVALID_ROW)]


def _is_fault(detached: Any) -> bool:
    return detached.cause in (DetachCause.BROKEN_PROMISE, DetachCause.INVALID_ROW)


def _reason(name: str, reason: str) -> str:
    return reason if repr(name) in reason else f"input {name!r} has ended: {reason}"


def _pieces(table: Any) -> list[Any]:
    """Split the table into pieces that fit a chunk of the state."""
    if not table.num_rows:
        return []
    rows = max(1, int(table.num_rows * CHUNK_BYTES / max(table.nbytes, 1)))
    return [table.slice(at, rows) for at in range(0, table.num_rows, rows)]
