"""Two engines of one merge: which one runs, and that both give the same results."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest
from core_world import a, f, m

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Element
from lmerge.core.engines import selection
from lmerge.core.engines.selection import best  # not the replacement by the fixture
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.errors import InvalidBatch, UsageError
from lmerge.testing.merges.declared import PROMISES
from lmerge.testing.merges.sessions import twin_session
from lmerge.testing.oracle import Follow
from lmerge.testing.streams.merge_inputs import present, reference

OUT_OF_RANGE = 2**63


def test_auto_is_the_compiled_core_where_it_is_built_and_python_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "native_problem", lambda: None)
    assert best() == "native"
    assert selection.resolve("native") == "native"
    monkeypatch.setattr(selection, "native_problem", lambda: "No module named 'lmerge._native'")
    assert best() == "python"
    assert selection.resolve("python") == "python"


def test_an_engine_that_is_not_there_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "native_problem", lambda: "No module named 'lmerge._native'")
    with pytest.raises(UsageError, match=r"^the native engine cannot be used: No module named 'lmerge\._native'$"):
        Merge(MergeConfig(engine="native"))
    with pytest.raises(UsageError, match=r"^unknown engine 'rust'; it is auto, python, native$"):
        Merge(MergeConfig(engine="rust"))
    with pytest.raises(UsageError, match=r"^unknown engine 'rust'"):
        restored(snapshot_of(Merge(MergeConfig(engine="python"))), engine="rust")


def test_a_merge_reports_which_engine_runs(engine: str) -> None:
    assert Merge().engine == engine
    assert restored(snapshot_of(Merge())).engine == engine
    assert restored(snapshot_of(Merge()), engine="python").engine == "python"


@pytest.mark.python_engine
def test_the_compiled_core_is_imported_only_when_an_engine_is_made() -> None:
    program = "import sys, lmerge.core.merge, lmerge.core.snapshot; print('lmerge._native' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert result.stdout.strip() == "False"


@pytest.mark.twins
@pytest.mark.parametrize("algorithm", [*PROMISES, "r3-"])
def test_every_call_has_the_same_outcome_as_on_python(algorithm: str) -> None:
    for seed in range(60):
        twin_session(f"{seed} {algorithm}", algorithm)


@pytest.mark.long
@pytest.mark.twins
@pytest.mark.parametrize("algorithm", [*PROMISES, "r3-"])
def test_every_call_has_the_same_outcome_as_on_python_for_many_seeds(algorithm: str, long_seeds: range) -> None:
    for seed in long_seeds:
        twin_session(f"many {seed} {algorithm}", algorithm, compare_every=5)


def test_a_time_beyond_64_bits_is_refused_and_changes_nothing(engine: str) -> None:
    merge = Merge()
    with pytest.raises(UsageError, match="'x' cannot attach: join_at 9223372036854775808 is out of the 64-bit range"):
        merge.attach("x", join_at=OUT_OF_RANGE)
    merge.attach("x")
    before = snapshot_of(merge)
    if engine == "native":
        with pytest.raises(InvalidBatch, match="input 'x' cannot deliver this batch"):
            merge.apply("x", Batch.of([a("A", 1, 5), a("B", 1, OUT_OF_RANGE)]))
        assert snapshot_of(merge) == before


def test_a_batch_of_one_engine_is_taken_by_the_other(engine: str) -> None:
    """The output of one merge can be the input of another, on any engine."""
    first, second = Merge(MergeConfig("r3")), Merge(MergeConfig("r3", engine="python"))
    for merge in (first, second):
        merge.attach("x", PROMISES["r3"])
    elements: list[Element] = [a("A", 1, 5), a("B", 2), m("B", 2, INF, 9), f(3)]
    output = first.apply("x", Batch.of(elements)).batch
    assert list(second.apply("x", output).batch.elements()) == list(output.elements())
    third = Merge(MergeConfig("r4"))
    third.attach("x")
    assert third.apply("x", second.live_events()).batch.counts(2) == (2, 0, 0)
    assert third.engine == engine


def test_a_batch_counts_its_kinds() -> None:
    batch = Batch.of([a("A", 1), m("A", 1, INF, 5), f(2), a("B", 3)])
    assert [batch.counts(stop) for stop in range(5)] == [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1), (2, 1, 1)]


@pytest.mark.parametrize(
    ("elements", "samples", "bounds"),
    [
        ([], 4, (NEG_INF, INF, [])),
        ([f(2)], 4, (NEG_INF, INF, [])),
        ([a("A", 1, 7), f(2), a("B", 3), a("C", 3, 4)], 4, (INF, INF, [7, INF, 4])),
        ([a("A", 1, 7), m("A", 1, 7, 5), m("B", 1, 9, 6)], 4, (9, 7, [7])),
        ([a(f"{at}", 0, at) for at in range(1, 11)], 4, (10, INF, [1, 4, 7, 10])),
        ([a(f"{at}", 0, at) for at in range(1, 10)], 4, (9, INF, [1, 4, 7])),
    ],
)
def test_a_batch_gives_the_bounds_of_its_ends(
    elements: list[Element], samples: int, bounds: tuple[int, int, list[int]], engine: str
) -> None:
    batch = Batch.of(elements)
    if engine == selection.NATIVE:
        from lmerge.core.engines.native_engine import columns_of

        assert columns_of("test", batch).end_bounds(samples) == bounds
    assert batch.end_bounds(samples) == bounds


def test_shards_are_refused_where_nothing_can_be_shared_out(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for shards in (0, 65):
        with pytest.raises(UsageError, match=rf"^a merge has 1 to 64 shards, not {shards}$"):
            Merge(MergeConfig("r3", shards=shards))
    monkeypatch.setattr(selection, "native_problem", lambda: None)
    with pytest.raises(UsageError, match=r"^2 shards need the native engine: the python engine was asked for$"):
        Merge(MergeConfig("r3", engine="python", shards=2))
    if engine == "native":
        for algorithm in ("r0", "r1", "r2", "r3-"):
            with pytest.raises(UsageError, match=rf"^2 shards need r3 or r4: {algorithm} keeps no index"):
                Merge(MergeConfig(algorithm, shards=2))
        with pytest.raises(UsageError, match=r"^a merge of 2 shards cannot be downgraded$"):
            Merge(MergeConfig(shards=2, allow_downgrade=True))
        with pytest.raises(UsageError, match=r"^cannot restore with 2 shards: r0 runs"):
            restored(snapshot_of(Merge()), shards=2)


@pytest.mark.parametrize(("algorithm", "promises"), [("auto", ("key",)), ("r3", ("key",)), ("r4", ())])
def test_shards_mean_the_same_as_one(algorithm: str, promises: tuple[str, ...], engine: str) -> None:
    """C1-C3 hold at every step; the output events are the same, however many shards a snapshot is restored with."""
    if engine == "python":
        with pytest.raises(UsageError, match=r"^3 shards need the native engine"):
            Merge(MergeConfig(algorithm, shards=3))
        return
    for seed in range(20):
        random = Random(seed)
        events = reference(random, 30, payloads=9, duplicates=algorithm == "r4")
        streams = [present(random, events) for _ in range(3)]
        follow = Follow(Merge(MergeConfig(algorithm, shards=3)))
        for at in range(3):
            follow.attach(str(at), promises)
        while any(streams):
            at = random.choice([at for at, stream in enumerate(streams) if stream])
            part, streams[at] = streams[at][:5], streams[at][5:]
            assert not follow.publish(str(at), *part).detached
            if random.random() < 0.1:
                before = snapshot_of(follow.merge)
                follow.merge = restored(before, shards=random.choice((1, 2, 3)))
                assert snapshot_of(follow.merge) == before
        assert follow.events() == events


def test_with_shards_auto_never_runs_what_keeps_no_index(engine: str) -> None:
    if engine == "native":
        merge = Merge(MergeConfig(shards=2))
        merge.attach("x", PROMISES["r0"])
        assert merge.algorithm == "r3"
        assert merge.algorithm_reason.endswith("; r2 keeps no index that shards could share")
