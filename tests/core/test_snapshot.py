"""Snapshots: a restored merge continues exactly as the original would have."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from core_world import a, f

from lmerge.core.batch import Batch
from lmerge.core.engines import selection
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import packed_snapshot_of, restored, restored_packed, snapshot_of
from lmerge.errors import UsageError
from lmerge.testing.merges.declared import PROMISES
from lmerge.testing.streams.merge_inputs import joining, ordered, present, reference

GOLDEN = Path(__file__).parent / "golden"


def drive(algorithm: str, policy: str, seed: int, *, restore_every: int) -> tuple[list[object], bytes]:
    """Play a session of three inputs, one of them joining. Returns the whole output and the last snapshot."""
    random = Random(seed)
    events = reference(random, 15, strict=algorithm == "r0")
    make = present if algorithm in ("r3", "r4") else ordered
    streams = [make(random, events), make(random, events), joining(make(random, events), 12, events)]
    merge = Merge(MergeConfig(algorithm, policy))
    for at in range(3):
        merge.attach(str(at), PROMISES[algorithm], join_at=12 if at == 2 else None)
    emitted: list[object] = []
    for step in range(3 * 12):
        at = random.randrange(3)
        if streams[at]:
            emitted += merge.apply(str(at), Batch.of([streams[at].pop(0)])).batch.elements()
        if restore_every and step % restore_every == 0:
            merge = restored(snapshot_of(merge))
            merge.check()
    return emitted, snapshot_of(merge)


@pytest.mark.parametrize("algorithm", PROMISES)
def test_a_restored_merge_goes_on_identically(algorithm: str) -> None:
    for seed in range(20):
        policies = ("lazy", "eager", "final-only", "quorum:2") if algorithm in ("r3", "r4") else ("lazy",)
        for policy in policies:
            assert drive(algorithm, policy, seed, restore_every=3) == drive(algorithm, policy, seed, restore_every=0)


def merge_in_the_middle(algorithm: str, engine: str, seed: int) -> Merge:
    """Return a merge that has taken a part of three streams, one of them joining."""
    random = Random(seed)
    events = reference(random, 30, strict=algorithm == "r0", duplicates=algorithm == "r4")
    make = present if algorithm in ("r3", "r4") else ordered
    merge = Merge(MergeConfig(algorithm, engine=engine))
    for at in range(3):
        stream = make(random, events)
        merge.attach(str(at), PROMISES[algorithm], join_at=12 if at == 2 else None)
        given = joining(stream, 12, events) if at == 2 else stream
        merge.apply(str(at), Batch.of(given[: random.randint(0, len(given))]))
    return merge


@pytest.mark.parametrize("algorithm", PROMISES)
@pytest.mark.parametrize("reader", selection.available())
@pytest.mark.parametrize("writer", selection.available())
def test_a_packed_snapshot_restores_the_same_merge(algorithm: str, writer: str, reader: str) -> None:
    for seed in range(20):
        merge = merge_in_the_middle(algorithm, writer, seed)
        document, block = packed_snapshot_of(merge)
        assert not block or (writer == "native" and algorithm in ("r3", "r4"))
        again = restored_packed(document, block, engine=reader)
        again.check()
        assert snapshot_of(again) == snapshot_of(merge)


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
@pytest.mark.parametrize("reader", selection.available())
def test_a_block_that_is_cut_off_is_refused(algorithm: str, reader: str) -> None:
    if selection.native_problem() is not None:
        pytest.skip("only the native core writes blocks")
    document, block = packed_snapshot_of(merge_in_the_middle(algorithm, "native", 3))

    def refusal(size: int) -> str:
        try:
            restored_packed(document, block[:size], engine=reader).check()
        except UsageError as problem:
            return str(problem)
        return ""  # it was cut between two nodes

    refusals = [refusal(size) for size in range(1, len(block), 3)]
    assert all("damaged" in reason for reason in refusals if reason)
    assert sum(map(bool, refusals)) > len(refusals) // 2


@pytest.mark.parametrize("algorithm", PROMISES)
def test_golden_snapshots_are_still_written_and_read(algorithm: str, request: pytest.FixtureRequest) -> None:
    """The format is public: another implementation of the core reads and writes the same bytes."""
    path = GOLDEN / f"{algorithm}.json"
    _, snapshot = drive(algorithm, "lazy", 1, restore_every=0)
    if request.config.getoption("--rewrite"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_bytes(snapshot + b"\n")
    assert path.read_bytes().rstrip() == snapshot
    assert snapshot_of(restored(path.read_bytes())) == snapshot


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b"null", b"\xff", b'{"version":2}', b'{"version":1}'])
def test_what_is_no_snapshot_is_refused(damage: bytes) -> None:
    with pytest.raises(UsageError, match="cannot restore"):
        restored(damage)


def test_a_snapshot_with_a_field_missing_is_refused() -> None:
    document = json.loads(drive("r3", "lazy", 1, restore_every=0)[1])
    for field in document:
        damaged = {key: value for key, value in document.items() if key != field}
        with pytest.raises(UsageError, match="cannot restore"):
            restored(json.dumps(damaged).encode())


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("inputs", "slot", 10**15),
        ("inputs", "slot", -1),
        ("inputs", "slot", 1),
        ("inputs", "slot", 2**70),
        ("inputs", "stable", "soon"),
        ("inputs", "late", None),
        ("inputs", "join_at", "soon"),
        ("algorithm", "slots", 10**15),
        ("algorithm", "nodes", [[1]]),
        ("algorithm", "nodes", 7),
        ("algorithm", "max_stable", "soon"),
        ("algorithm", "right_from", "soon"),
    ],
)
def test_a_damaged_snapshot_is_refused_before_it_does_harm(part: str, field: str, value: object) -> None:
    """A number that determines the memory to allocate is checked first."""
    with pytest.raises(UsageError, match="cannot restore"):
        restored(damaged(part, field, value))


@pytest.mark.parametrize("algorithm", PROMISES)
def test_from_where_on_a_merge_is_right_is_kept_until_it_is_there(algorithm: str) -> None:
    merge = Merge(MergeConfig(algorithm))
    merge.attach("late", PROMISES[algorithm], join_at=20)
    merge.admit("late")
    merge.apply("late", Batch.of([f(19)]))
    snapshot = snapshot_of(merge)
    assert json.loads(snapshot)["algorithm"]["right_from"] == 20
    merge = restored(snapshot)
    assert snapshot_of(merge) == snapshot
    merge.apply("late", Batch.of([f(20)]))
    assert "right_from" not in json.loads(snapshot_of(merge))["algorithm"]


@pytest.mark.parametrize(("part", "field"), [("inputs", "stable"), ("algorithm", "max_stable")])
def test_times_beyond_64_bits_are_the_python_engines_only(part: str, field: str, engine: str) -> None:
    snapshot = damaged(part, field, 2**70)
    if engine == selection.PYTHON:
        restored(snapshot)
    else:
        with pytest.raises(UsageError, match="cannot restore"):
            restored(snapshot)


def damaged(part: str, field: str, value: object) -> bytes:
    document = json.loads(drive("r3", "lazy", 1, restore_every=0)[1])
    fields = document[part][0] if part == "inputs" else document[part]
    fields[field] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_a_restored_final_only_merge_does_not_wait_for_an_event_that_no_input_has_any_more(algorithm: str) -> None:
    """The input that delivered the event has left, and the others continue without it (V.C)."""
    merge = Merge(MergeConfig(algorithm, "final-only"))
    merge.attach("1", PROMISES["r3"])
    merge.attach("2", PROMISES["r3"])
    merge.apply("1", Batch.of([a("B", 2, 7), f(3)]))
    merge.detach("1")
    merge = restored(snapshot_of(merge))
    merge.check()
    merge.apply("2", Batch.of([a("C", 5, 9), f(20)]))
    merge.check()
    assert merge.stable_point == 20
