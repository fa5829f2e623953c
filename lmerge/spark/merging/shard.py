"""One shard of a merge in Spark: a ``core.merge.Merge`` that outlives its process, batch by batch.

A merge is a pure function of the calls made to it. So its state is a snapshot (the *base*) and the calls since (the
*log*), both in files (``state_files``). A batch writes its own calls and no more, and a new base is written when the
log has grown to several times the last base. So the bytes written for an element are bounded, however many events are
live.

A worker that still holds the merge as of the batch before continues with it. One that holds it as of an earlier batch
of the same run of the query repeats the log since; any other worker restores the base and repeats the log. What a
worker holds was reached by an attempt whose batch has succeeded, or it belongs to an earlier batch: a run of a query
ends when a batch fails, and the merge is not held while a batch works on it.

This module does not depend on Spark.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow.compute as pc

from lmerge.core.detaching import DetachCause
from lmerge.core.elements import NEG_INF, STABLE
from lmerge.core.engines.selection import AUTO
from lmerge.core.merge import Merge, Outcome, earliest_joining
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import packed_snapshot_of, restored_packed
from lmerge.errors import StoreDamaged, UsageError
from lmerge.spark.merging import packs
from lmerge.spark.merging.current_batch import CurrentBatch
from lmerge.spark.merging.pack_files import PackFiles
from lmerge.spark.merging.packs import MergeCall, Pack
from lmerge.spark.merging.state_files import KEPT_BATCHES, Head, StateFiles

# A shorter log is not worth a new base: to repeat it takes a few milliseconds.
LOG_BYTES_MIN: Final = 2**20
# A new base is written when the log has so many times its bytes, or so many batches. To write and to restore an event
# of a base costs less than to merge an element of the log, and on a large cluster a shard hardly ever comes back to the
# worker that holds it.
LOG_PER_BASE: Final = 2
LOGS_MAX: Final = 256
# The size of one part of a base.
PART_BYTES: Final = 64 * 2**20
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


@dataclass(frozen=True)
class ShardOutput:
    """What a batch caused. ``batches``: inserts and adjusts, in order.

    ``before``, ``stable``: the stable point reported last, and the present one. ``ended``: why inputs have ended.
    """

    batches: list[Any]
    before: int
    stable: int
    ended: list[str]


@dataclass
class _Held:
    batch: int
    head: Head
    merge: Merge


_held: OrderedDict[str, _Held] = OrderedDict()


class Shard:
    """One shard, in one batch of one run of the query. Its number is that of the batch's partition.

    Raises UsageError if its state was made by another query or with other settings, and StoreDamaged if it is missing
    or cannot be read.
    """

    def __init__(self, plan: MergePlan, files: StateFiles, batch: CurrentBatch) -> None:
        self._plan, self._number, self._files = plan, batch.part, files
        self._query, self._run, self._batch = batch.query, batch.run, batch.number
        self._packs = PackFiles(files.folder)
        self._head, self._merge = self._load()

    def step(self, packed: Iterable[Pack], *, reports: bool) -> ShardOutput:
        """Merge the packs of one batch, input by input, write the state, and return what the merge emits.

        ``reports``: all shards report their stable points in this batch.
        """
        by_input: dict[int, list[Pack]] = {}
        for pack in packed:
            by_input.setdefault(pack.input, []).append(self._packs.loaded(pack))
        batches: list[Any] = []
        ended: list[str] = []
        log: list[bytes] = []
        self._head.calls = []
        for number in sorted(by_input):
            for call in self._in_order(number, by_input[number]):
                self._note(number, call, log)
                for outcome in apply(self._merge, self._plan.inputs[number], call):
                    ended += [_reason(one.input, one.reason) for one in outcome.detached if _is_fault(one)]
                    events = packs.without_stables(outcome.batch)
                    if events.count:
                        batches.append(events)
        before, stable = self._head.reported, self._merge.stable_point
        if reports:
            self._head.reported = stable
        self._save(log)
        return ShardOutput(batches, before, stable, ended)

    def _in_order(self, number: int, packed: list[Pack]) -> list[MergeCall]:
        """Return the elements of an input, or a row that ends it if their order does not continue the last batch."""
        calls = packs.calls_of(packed, self._plan.has_order)
        known = [pack for pack in packed if pack.last > NEG_INF]
        if not self._plan.has_order or not known:
            return calls
        name = self._plan.inputs[number].name
        first, newest = min(pack.first for pack in known), max(pack.last for pack in known)
        last = self._head.orders.get(name)
        if last is not None and first < last:
            reason = f"its order goes back: {first} came in a later batch than {last}"
            return [MergeCall.of_table(packs.malformed(0, reason))]
        self._head.orders[name] = newest
        return calls

    def _note(self, number: int, call: MergeCall, log: list[bytes]) -> None:
        """Add a call to the log: its place, or else its bytes."""
        head = self._head
        head.calls.append((number, call.table is None, call.place))
        head.taken += call.count
        head.log_bytes += len(call.data)
        if call.place is None:
            log.append(call.data)

    # The state.

    def _load(self) -> tuple[Head, Merge]:
        before = self._batch - 1
        # Removed for as long as the batch lasts: a merge that failed in the middle must not be used again.
        held = _held.pop(self._files.place, None)
        if before < 0:
            self._check_query(self._files.oldest_head())
            return Head(self._plan.settings()), self._plan.fresh()
        if held is not None and held.head.run == self._run and held.batch == before:
            return held.head, held.merge
        found = self._files.read(before)
        if found is None:
            raise self._missing(before)
        head, parts = found
        self._check_query(head)
        self._check(head.settings)
        if held is not None and held.head.run == self._run and max(head.base, 0) <= held.batch < before:
            merge, start = held.merge, held.batch
        else:
            merge, start = self._based(head.base)
        for batch in range(start + 1, before):
            self._repeat(merge, *self._files.known(batch))
        if start < before:
            self._repeat(merge, head, parts)
        self._files.remove_below(head.oldest)
        return head, merge

    def _based(self, base: int) -> tuple[Merge, int]:
        if base < 0:
            return self._plan.fresh(), base
        _, parts = self._files.known(base)
        document, *block = parts
        return restored_packed(document, b"".join(block), engine=self._plan.engine), base

    def _repeat(self, merge: Merge, head: Head, parts: list[bytes]) -> None:
        inline = iter(parts)
        for number, is_frame, place in head.calls:
            data = next(inline) if place is None else self._packs.elements(place)
            # Its output was emitted when it came.
            apply(merge, self._plan.inputs[number], MergeCall.read(data, is_frame))

    def _missing(self, before: int) -> Exception:
        """Return the error for a state that is not there: of other settings, if the first shard shows that."""
        try:
            first = StateFiles(self._files.folder, 0).read(before)
        except StoreDamaged:
            first = None
        if first is not None:
            self._check(first[0].settings)
        return StoreDamaged(
            f"shard {self._number} of the merge cannot continue with batch {self._batch}: its state after batch "
            f"{before}, {self._files.place}/{before}, is missing; all executors need the checkpoint's folder"
        )

    def _check_query(self, before: Head | None) -> None:
        """Check that the state is of this query. A query's id is in its checkpoint, and stays when it starts again."""
        if before is not None and before.query != self._query:
            raise UsageError(
                f"shard {self._number} of the merge cannot run batch {self._batch}: the state in {self._files.place} "
                f"is of the query {before.query}, and this is {self._query}; `checkpoint=` must be the query's own "
                "checkpointLocation, and a query that begins anew needs a new one"
            )

    def _check(self, before: Mapping[str, Any]) -> None:
        now = self._plan.settings()
        changed = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
        if changed:
            name = changed[0]
            raise UsageError(
                f"shard {self._number} of the merge cannot continue: {name} is {now.get(name)!r}, and the query's "
                f"checkpoint was made with {before.get(name)!r}; begin with a new checkpoint"
            )

    def _remove_packs(self, settled: int) -> None:
        """Remove packs that no shard needs: a shard needs those behind its oldest base. Shard 0 does it for all.

        It reads a file of every other shard, so it does not do that in each batch.
        """
        for number in range(1, self._plan.shards):
            found = StateFiles(self._files.folder, number).read(self._batch - 1)
            if found is None:
                return  # the shard is late with an earlier batch; the next removal takes them
            settled = min(settled, found[0].settled)
        self._packs.remove_up_to(settled)

    def _check_alone(self, head: Head) -> None:
        """Check that no other merge of the query has written the state of this batch."""
        earlier = self._files.read(self._batch)
        if earlier is not None and earlier[0].run == self._run and earlier[0].taken != head.taken:
            raise UsageError(
                f"shard {self._number} of the merge took {head.taken:,} elements up to batch {self._batch}, and "
                f"{earlier[0].taken:,} when that batch ran before: two merges of a query need different names, and a "
                "batch must have the same rows whenever it runs"
            )

    def _save(self, log: list[bytes]) -> None:
        head = self._head
        head.query, head.run = self._query, self._run
        parts = log
        if self._batch - head.base >= LOGS_MAX or head.log_bytes > max(LOG_PER_BASE * head.base_bytes, LOG_BYTES_MIN):
            document, block = packed_snapshot_of(self._merge)
            parts = [document, *(block[at : at + PART_BYTES] for at in range(0, len(block), PART_BYTES))]
            head.bases.append(self._batch)
            head.base_bytes, head.log_bytes = len(document) + len(block), 0
            head.calls = []
        self._check_alone(head)
        self._files.write(self._batch, head, parts)
        if self._number == 0 and self._batch % KEPT_BATCHES == 0:
            self._remove_packs(head.settled)
        _held[self._files.place] = _Held(self._batch, head, self._merge)
        while len(_held) > HELD_MAX:
            _held.popitem(last=False)


def apply(merge: Merge, one: InputPlan, call: MergeCall) -> list[Outcome]:
    """Apply elements of one input to the merge. Equal merges emit the same for the same call."""
    if call.batch is not None:
        return [merge.apply(one.name, call.batch), *_admit_if_stuck(merge)]
    table: Any = call.table
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
