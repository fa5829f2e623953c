"""A merge in Spark equals the service's own core after every batch, even if batches fail (laws 1 to 8, docs/laws.md).

The parts that Spark calls are called here without Spark: packs, shards with a store that can be rolled back, rows.
``test_merging_queries`` tests whole queries.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from merging_world import InputBatches, Output, Row, Twin, cut, plan_of, row_of, rows_of, streams

from lmerge.core.elements import INF, INSERT, NEG_INF, STABLE, Adjust, Element, Event, Insert, Stable
from lmerge.core.engines.selection import ENGINES, native_problem
from lmerge.errors import UsageError
from lmerge.spark.merging import shard
from lmerge.spark.merging.packs import DETACH, PACKS, TABLE, Packer, to_bytes
from lmerge.spark.merging.rows import ORDER_BITS, ROWS, Unpacker
from lmerge.spark.merging.shard import InputPlan, MergePlan, Shard
from lmerge.testing.streams.merge_inputs import joining, present, reference

IN = pa.schema(
    [
        ("input", pa.int32()),
        ("shard", pa.int32()),
        ("order", pa.int64()),
        ("kind", pa.string()),
        ("payload", pa.binary()),
        ("vs", pa.int64()),
        ("ve", pa.int64()),
        ("vold", pa.int64()),
    ]
)
OUTPUT = pa.schema(
    [
        ("place", pa.int32()),
        ("shard", pa.int32()),
        ("batch", pa.int64()),
        ("first", pa.int64()),
        ("before", pa.int64()),
        ("stable", pa.int64()),
        ("ended", pa.string()),
        ("elements", pa.binary()),
    ]
)


class MemoryStore:
    """A shard's state. As in Spark, the writes of a batch are kept only if the batch succeeds."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.chunks: dict[int, bytes] = {}
        self.written = 0

    def head(self) -> str | None:
        return self.text

    def put_head(self, text: str) -> None:
        self.text = text

    def chunk(self, number: int) -> bytes:
        return self.chunks[number]

    def put_chunk(self, number: int, data: bytes) -> None:
        assert number not in self.chunks
        self.chunks[number] = data
        self.written += len(data)

    def drop_chunk(self, number: int) -> None:
        del self.chunks[number]


class LocalQuery:
    """The dataflow of a query, called as Spark calls it. ``random`` decides what Spark leaves open."""

    def __init__(self, plan: MergePlan, random: Random) -> None:
        self.plan, self.random = plan, random
        self.stores = [MemoryStore() for _ in range(plan.shards)]
        self.number = 0

    def batch(self, by_input: Mapping[int, Sequence[Row]], fails: bool = False) -> list[Row]:
        """Return the rows of one batch. ``fails``: it is run, discarded, and run again."""
        if fails:
            kept = deepcopy(self.stores)
            self._run(by_input)
            self.stores = kept
        rows = self._run(by_input)
        self.number += 1
        return rows

    def _run(self, by_input: Mapping[int, Sequence[Row]]) -> list[Row]:
        packer = Packer(tuple(range(self.plan.shards)), self.plan.has_order)
        packs = [row for batch in packer(iter(self._arrow(by_input))) for row in batch.to_pylist()]
        self.random.shuffle(packs)
        out: list[Row] = []
        for at in range(self.plan.shards):
            own = [pack for pack in packs if pack["shard"] == at]
            if own:
                out += self._shard(at, own)
        self.random.shuffle(out)
        places = [[row for row in out if row["place"] == place] for place in range(self.plan.shards)]
        unpacker = Unpacker(self.plan.shards)
        found = []
        for rows in places:
            for batch in unpacker(iter([pa.RecordBatch.from_pylist(rows, schema=OUTPUT)])):
                assert batch.schema == ROWS
                found += batch.to_pylist()
        return found

    def _arrow(self, by_input: Mapping[int, Sequence[Row]]) -> Iterable[Any]:
        for number, rows in by_input.items():
            shuffled = [
                row | {"input": number, "payload": None if row["payload"] is None else row["payload"].encode()}
                for row in rows
            ]
            if self.plan.has_order:
                self.random.shuffle(shuffled)
            for row in shuffled:
                row["shard"] = None if row["payload"] is None else zlib.crc32(row["payload"]) % self.plan.shards
            for start in range(0, len(shuffled), 7):
                yield pa.RecordBatch.from_pylist(shuffled[start : start + 7], schema=IN)

    def _shard(self, at: int, own: list[Row]) -> list[Row]:
        reports = any(pack["concerns_all"] for pack in own)
        shard = Shard(self.plan, at, self.stores[at])
        output = shard.step(((p["input"], p["elements"]) for p in own), self.number << ORDER_BITS, reports=reports)
        shard._merge.check()
        blank = dict.fromkeys(OUTPUT.names) | {"shard": at, "batch": self.number, "first": 0}
        rows: list[Row] = [
            blank | {"place": at, "first": t.column("order")[0].as_py(), "elements": to_bytes(t)} for t in output.tables
        ]
        if reports or output.ended:
            stable = output.stable if reports else None
            rows.append(
                blank
                | {
                    "place": self.plan.shards - 1,
                    "before": output.before,
                    "stable": stable,
                    "ended": json.dumps(output.ended),
                }
            )
        return rows


@pytest.fixture(autouse=True)
def small_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make logs and chunks so small that tests reach new bases, and bases in pieces."""
    monkeypatch.setattr(shard, "LOG_BYTES_MIN", 4_000)
    monkeypatch.setattr(shard, "CHUNK_BYTES", 900)
    shard._held.clear()


def compare(plan: MergePlan, inputs: Sequence[InputBatches], random: Random) -> Output:
    """Run batches through query and twin. After each batch both have the same events and stable point."""
    query, twin, output = LocalQuery(plan, random), Twin(plan), Output()
    rows = [rows_of(one) for one in inputs]
    for at in range(max(map(len, inputs))):
        if random.random() < 0.4:
            shard._held.clear()  # Spark gives the next batch to another worker
        batch = {number: one[at] for number, one in enumerate(rows) if at < len(one)}
        given = output.batch(query.batch(batch, fails=random.random() < 0.3))
        expected = twin.batch({number: one[at] for number, one in enumerate(inputs) if at < len(one)})
        assert given == expected, f"batch {at}"
    assert [reason for reason in twin.ended if reason not in output.ended] == []
    return output


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
@pytest.mark.parametrize("shards", [1, 2, 5])
def test_after_every_batch_it_means_what_the_core_means(algorithm: str, shards: int) -> None:
    for seed in range(5):
        random = Random(seed)
        inputs = [cut(random, stream, 6) for stream in streams(random, algorithm, 3)]
        output = compare(plan_of(algorithm, shards, "abc"), inputs, random)
        assert output.tdb.stable_point == INF


@pytest.mark.parametrize(
    "policy", ["eager", "half-frozen-only", "final-only", "quorum:2", "leading-input-only", "lazy+lag:5"]
)
def test_policies_are_those_of_the_core(policy: str) -> None:
    for seed in range(3):
        random = Random(seed)
        inputs = [cut(random, stream, 5) for stream in streams(random, "r3", 3)]
        compare(plan_of("r3", 3, "abc", policy=policy), inputs, random)


@pytest.mark.parametrize("engine", [e for e in ENGINES if e != "native" or native_problem() is None])
def test_both_engines_do(engine: str) -> None:
    for seed in range(4):
        random = Random(seed)
        inputs = [cut(random, stream, 5) for stream in streams(random, "r4", 2)]
        compare(plan_of("r4", 2, engine=engine), inputs, random)


def test_no_more_is_emitted_than_was_received() -> None:
    """Law 8, per kind: inserts, inserts and adjusts, stables."""
    for seed in range(5):
        random = Random(seed)
        inputs = [cut(random, stream, 8) for stream in streams(random, "r3", 2)]
        output = compare(plan_of("r3", 3), inputs, random)
        elements = [element for one in inputs for batch in one for element in batch]
        received = [sum(isinstance(e, kind) for e in elements) for kind in (Insert, Adjust, Stable)]
        assert output.counts["insert"] <= received[0]
        assert output.counts["insert"] + output.counts["adjust"] <= received[0] + received[1]
        assert output.counts["stable"] <= received[2]


def test_an_input_that_starts_late_moves_nothing_before_its_time() -> None:
    """Law 1: it has no elements of events that have ended, and its stables count only from ``join_at`` on."""
    for seed in range(6):
        random = Random(seed)
        events = reference(random, 50)
        join_at = events[20].vs
        late = joining(present(random, events), join_at, events)
        inputs = [cut(random, present(random, events), 6), cut(random, late, 6, first=random.randint(0, 2))]
        plan = MergePlan((InputPlan("a"), InputPlan("b", join_at=join_at)), "r3", 2)
        output = compare(plan, inputs, random)
        assert output.tdb.events() == events


@pytest.mark.parametrize("shards", [1, 3])
def test_where_no_input_is_right_from_the_beginning_the_merge_begins_with_the_earliest(shards: int) -> None:
    for seed in range(6):
        random = Random(seed)
        events = reference(random, 50)
        times = sorted(random.choice(events).vs for _ in "ab")
        inputs = [cut(random, joining(present(random, events), join_at, events), 6) for join_at in times]
        plan = MergePlan(tuple(InputPlan(name, join_at=at) for name, at in zip("ab", times)), "r3", shards)
        output = compare(plan, inputs, random)
        assert output.tdb.stable_point == INF
        assert [e for e in output.tdb.events() if e.ve >= times[0]] == [e for e in events if e.ve >= times[0]]


def test_an_input_that_leaves_before_anything_is_stable_leaves_the_merge_to_the_others() -> None:
    plan = MergePlan((InputPlan("a"), InputPlan("b", join_at=7)), "r3", 1)
    merge = plan.fresh()
    pack = pa.table([[1, 2], [INSERT, STABLE], [8, 9], [12, 0], [0, 0], [b"x", b""]], schema=TABLE)
    shard.apply(merge, plan.inputs[1], pack)
    assert merge.stable_point == NEG_INF
    leaves = pa.table([[1], [DETACH], [0], [0], [0], [b""]], schema=TABLE)
    assert shard.apply(merge, plan.inputs[0], leaves)[-1].joined == ("b",)
    assert merge.stable_point == 9


def test_an_input_that_ends_early_holds_up_only_the_closing() -> None:
    """Law 5: it does not publish stable(+inf), so the merge does not emit it, unless one input is enough."""
    random = Random(3)
    for closing, end in (("all", False), ("any", True)):
        one, other = streams(random, "r3", 2)
        inputs = [cut(random, one, 6), cut(random, other[: len(other) // 2], 3)]
        output = compare(plan_of("r3", 2, closing=closing), inputs, random)
        assert (output.tdb.stable_point == INF) == end


def test_an_input_that_breaks_a_promise_ends_with_its_reason() -> None:
    """Law 6, one shard: the core's own reason, and the same output."""
    for seed in range(5):
        random = Random(seed)
        one, other = streams(random, "r3", 2)
        at = random.randrange(len(other))
        other[at:at] = [Adjust(b"nobody", 10**6, 10**6 + 5, 10**6 + 9)]
        output = compare(plan_of("r3", 1), [cut(random, one, 5), cut(random, other, 5)], random)
        assert len(output.ended) == 1
        assert "unknown-event" in output.ended[0]
        assert output.tdb.stable_point == INF


def test_what_a_shard_finds_ends_the_input_there_and_the_whole_stays_legal() -> None:
    """Law 6, several shards: only the offender's shard drops the input. No shard emits a wrong element."""
    for seed in range(5):
        random = Random(seed)
        events = reference(random, 40)
        one, other = present(random, events), present(random, events)
        other[len(other) // 2 : len(other) // 2] = [Adjust(b"nobody", 10**6, 10**6 + 5, 10**6 + 9)]
        query, output = LocalQuery(plan_of("r3", 3), random), Output()
        rows = [rows_of(cut(random, stream, 5)) for stream in (one, other)]
        for at in range(5):
            output.batch(query.batch({0: rows[0][at], 1: rows[1][at]}))
        assert output.tdb.events() == events
        assert output.tdb.stable_point == INF
        assert len(output.ended) == 1


BAD_ROWS: dict[str, tuple[Row, str]] = {
    "kind": ({"kind": "update", "payload": "x", "vs": 1, "ve": 2}, "kind 'update' is none of insert"),
    "no kind": ({"kind": None, "payload": "x", "vs": 1, "ve": 2}, "kind None is none of insert"),
    "no vs": ({"kind": "insert", "payload": "x", "vs": None, "ve": 2}, "insert without vs"),
    "no vc": ({"kind": "stable", "payload": None, "vs": None, "ve": None}, "stable without vs"),
    "no payload": ({"kind": "adjust", "payload": None, "vs": 1, "ve": 2}, "adjust without a payload"),
    "no order": ({"kind": "insert", "payload": "x", "vs": 1, "ve": 2, "order": None}, "insert without an order"),
    "backwards": ({"kind": "insert", "payload": "x", "vs": 5, "ve": 2}, "(end-before-start)"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_row_that_is_no_element_ends_its_input_in_all_shards(case: str) -> None:
    bad, reason = BAD_ROWS[case]
    query, output = LocalQuery(plan_of("r4", 3), Random(1)), Output()
    good = [row_of(Insert(b"p%d" % i, 10 + i, 50), i) for i in range(9)]
    output.batch(query.batch({0: good, 1: [*good, {"vold": None, "order": 9} | bad]}))
    later = [row_of(Insert(b"q%d" % i, 30 + i, 60), 10 + i) for i in range(9)] + [row_of(Stable(45), 30)]
    output.batch(query.batch({1: later}))
    assert reason in output.ended[0]
    assert "'b'" in output.ended[0]
    assert len(output.ended) == 1
    assert output.tdb.stable_point == NEG_INF, "an input that has ended was merged"
    assert {event.payload[:1] for event in output.tdb.events()} == {b"p"}
    output.batch(query.batch({0: [row_of(Stable(45), 30)]}))
    assert output.tdb.stable_point == 45


def test_an_order_that_goes_back_ends_the_input() -> None:
    query, output = LocalQuery(plan_of("r4", 2), Random(1)), Output()
    output.batch(query.batch({0: [row_of(Stable(10), 7)]}))
    output.batch(query.batch({0: [row_of(Stable(20), 6)]}))
    output.batch(query.batch({0: [row_of(Stable(30), 9)]}))
    assert "order goes back: 6 came in a later batch than 7" in output.ended[0]
    assert output.tdb.stable_point == 10


def test_without_an_order_a_batch_is_taken_by_kind() -> None:
    plan = plan_of("r3", 2, has_order=False)
    query, output = LocalQuery(plan, Random(1)), Output()
    elements: list[Element] = [Stable(4), Stable(3), Adjust(b"x", 5, 9, 7), Insert(b"y", 6, 8), Insert(b"x", 5, 9)]
    output.batch(query.batch({0: [row_of(e, 0) for e in elements]}))
    output.batch(query.batch({0: [row_of(Stable(100), 0)]}))
    assert output.tdb.events() == [Event(5, b"x", 7), Event(6, b"y", 8)]
    assert output.ended == []


def test_a_report_of_an_end_changes_nothing_in_the_next_merge() -> None:
    """The row of stable(-inf) that carries ``ended`` does not count as a stable that goes back."""
    query, output = LocalQuery(plan_of("r4", 2), Random(1)), Output()
    output.batch(query.batch({0: [row_of(Stable(10), 7)]}))
    output.batch(query.batch({0: [row_of(Stable(NEG_INF), 8), row_of(Stable(20), 9)]}))
    assert output.ended == []
    assert output.tdb.stable_point == 20


def test_inputs_leave_and_come_again() -> None:
    """Law 3: a new incarnation starts empty. The output keeps the old one's events until an input contradicts them."""
    query, output = LocalQuery(plan_of("r3", 2), Random(1)), Output()
    blank: Row = dict.fromkeys(("payload", "vs", "ve", "vold"))
    first = [row_of(Insert(b"x%d" % i, 5, 50), i) for i in range(6)]
    output.batch(query.batch({0: first, 1: [*first, row_of(Stable(10), 8)]}))
    assert output.tdb.stable_point == 10
    leaves, comes = blank | {"kind": "detach", "order": 10}, blank | {"kind": "attach", "order": 12, "vs": 20}
    output.batch(query.batch({1: [leaves, row_of(Stable(90), 11), comes]}))
    assert output.tdb.stable_point == 10, "one that has left was merged"
    output.batch(query.batch({1: [row_of(Stable(30), 13)]}))
    assert output.tdb.stable_point == 10, "law 1: it joins at 20"
    output.batch(query.batch({0: [row_of(Stable(25), 20)]}))
    assert output.tdb.stable_point == 30
    output.batch(query.batch({1: [blank | {"kind": "attach", "order": 14}, row_of(Stable(40), 15)]}))
    assert output.tdb.stable_point == 40
    assert output.ended == []
    assert len(output.tdb.events()) == 6


def test_what_is_written_follows_the_changes_not_the_live_events() -> None:
    """A batch of one element writes one element, even if thousands are live. A new base comes once in a long log."""
    plan = plan_of("r4", 1)
    query = LocalQuery(plan, Random(1))
    query.batch({0: [row_of(Insert(b"p%05d" % i, i, INF), i) for i in range(5_000)]})
    base = json.loads(query.stores[0].text or "")["base_bytes"]
    before, bases = query.stores[0].written, 0
    for at in range(40):
        head = query.stores[0].text
        query.batch({0: [row_of(Stable(6_000 + at), 10_000 + at)]})
        bases += json.loads(head or "")["base"] != json.loads(query.stores[0].text or "")["base"]
    assert base > 200_000
    assert bases == 0
    assert query.stores[0].written - before < 40 * 2_000


def test_a_state_of_other_settings_is_refused() -> None:
    query = LocalQuery(plan_of("r4", 1), Random(1))
    query.batch({0: [row_of(Stable(1), 0)]})
    for plan, name in (
        (plan_of("r3", 1), "algorithm"),
        (plan_of("r4", 2), "shards"),
        (plan_of("r4", 1, "abc"), "inputs"),
        (plan_of("r4", 1, policy="eager"), "policy"),
    ):
        with pytest.raises(UsageError, match=f"{name} is .* begin with a new checkpoint"):
            Shard(plan, 0, query.stores[0])


def test_every_batch_wakes_the_first_shard() -> None:
    """Only this shard always meets a state of other settings, as its group is the same for any number of shards."""
    packer = Packer((0, 5, 9), True)
    x = next(i for i in range(99) if zlib.crc32(b"%d" % i) % 3 == 2)
    rows = [row_of(Insert(b"%d" % x, 1, 2), 0) | {"input": 0, "shard": 2, "payload": b"%d" % x}]
    (packs,) = packer(iter([pa.RecordBatch.from_pylist(rows, schema=IN)]))
    assert packs.schema == PACKS
    assert packs.column("lane").to_pylist() == [0, 9]
