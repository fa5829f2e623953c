"""A merge in Spark equals the service's own core after every batch, even if batches fail (laws 1 to 8, docs/laws.md).

The steps that Spark calls are called here without Spark (``local_query``); ``test_merging_queries`` has whole queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from local_query import LocalQuery, file_of, frame_row
from merging_world import InputBatches, Output, Row, Twin, cut, plan_of, row_of, rows_of, streams

from lmerge.core.elements import INF, INSERT, NEG_INF, STABLE, Adjust, Element, Event, Insert, Stable
from lmerge.core.engines import selection
from lmerge.core.engines.selection import ENGINES, native_problem
from lmerge.errors import UsageError
from lmerge.spark.merging import shard
from lmerge.spark.merging.packer import FILES, FRAMES, ROWS, Packer
from lmerge.spark.merging.packs import DETACH, TABLE, MergeCall
from lmerge.spark.merging.shard import InputPlan, MergePlan
from lmerge.testing.streams.merge_inputs import joining, present, reference


def compare(plan: MergePlan, inputs: Sequence[InputBatches], random: Random, form: str = ROWS) -> Output:
    """Run batches through query and twin. After each batch both have the same events and stable point."""
    query, twin, output = LocalQuery(plan, random, form), Twin(plan), Output()
    given_rows = [rows_of(one) for one in inputs]
    for at in range(max(map(len, inputs))):
        if random.random() < 0.4:
            shard._held.clear()  # Spark gives the next batch to another worker
        batch = {number: one[at] for number, one in enumerate(given_rows) if at < len(one)}
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


@pytest.mark.parametrize("form", [FRAMES, FILES])
@pytest.mark.parametrize("shards", [1, 3])
def test_frames_and_files_mean_what_rows_mean(form: str, shards: int) -> None:
    for seed in range(5):
        random = Random(seed)
        inputs = [cut(random, stream, 6) for stream in streams(random, "r4", 3)]
        output = compare(plan_of("r4", shards, "abc"), inputs, random, form)
        assert output.tdb.stable_point == INF


@pytest.mark.parametrize("form", [ROWS, FRAMES, FILES])
def test_workers_without_the_native_core_do_the_same(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "best", lambda: selection.PYTHON)
    for seed in range(3):
        random = Random(seed)
        inputs = [cut(random, stream, 5) for stream in streams(random, "r4", 2)]
        compare(plan_of("r4", 2, engine=selection.PYTHON), inputs, random, form)


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
    given = pa.table([[1, 2], [INSERT, STABLE], [8, 9], [12, 0], [0, 0], [b"x", b""]], schema=TABLE)
    shard.apply(merge, plan.inputs[1], MergeCall.of_table(given))
    assert merge.stable_point == NEG_INF
    leaves = pa.table([[1], [DETACH], [0], [0], [0], [b""]], schema=TABLE)
    assert shard.apply(merge, plan.inputs[0], MergeCall.of_table(leaves))[-1].joined == ("b",)
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


@pytest.mark.parametrize("engine", selection.available())
@pytest.mark.parametrize("form", [ROWS, FRAMES])
def test_a_report_of_an_end_changes_nothing_in_the_next_merge(
    engine: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of stable(-inf) that carries ``ended`` does not count as a stable that goes back."""
    monkeypatch.setattr(selection, "best", lambda: engine)
    query, output = LocalQuery(plan_of("r4", 2), Random(1), form), Output()
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


def test_a_frame_that_cannot_be_read_ends_its_input() -> None:
    query, output = LocalQuery(plan_of("r4", 2), Random(1), FRAMES), Output()
    query.delivered = lambda _: iter([frame_row(b"junk", 7)])
    output.batch(query.batch({1: []}))
    (reason,) = output.ended
    assert "the frame of order 7: the frame cannot be read" in reason or "holds no batch" in reason


def test_a_file_that_is_none_fails_the_batch_by_name(tmp_path: Path) -> None:
    for content, reason in (
        (b"PAR1 and then nothing", "/x of input 'a': "),
        (b"kind,payload", "/x of input 'a': it is neither Parquet nor Arrow"),
        (file_of(pa.table({"kind": ["insert"]}), "file"), "/x of input 'a': the rows have no column 'payload'"),
    ):
        path = tmp_path / "x"
        path.write_bytes(content)
        given = pa.RecordBatch.from_pylist([{"path": str(path)}])
        with pytest.raises(UsageError, match=reason):
            list(Packer(0, "a", FILES, 2, "order", str(tmp_path)).run(iter([given]), 0))
