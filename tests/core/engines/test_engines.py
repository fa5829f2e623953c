"""Two engines of one merge: which one runs, and that both give the same results."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from random import Random

import pytest
from core_world import COPIES_PROMISES, INDEX_POLICIES, PROMISES, a, f, m
from twins_world import Twins

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Adjust, Element, Insert, Stable
from lmerge.core.engines import selection
from lmerge.core.engines.selection import best  # not the replacement by the fixture
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.core.tdb import Tdb
from lmerge.errors import InvalidBatch, LmergeError, UsageError
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


def lawless(random: Random, stream: Tdb, count: int) -> Iterator[Element]:
    """Yield elements of one input, most of them legal: times close together, so that the elements interact."""
    for _ in range(count):
        payload, vs = random.choice((b"p", b"q", b"")), random.randint(-2, 12)
        ve = random.choice((INF, vs, vs + random.randint(0, 6), vs + random.randint(-1, 6)))
        ends = stream.live_ends(vs, payload)
        kind = random.random()
        element: Element = Insert(payload, vs, ve)
        if kind < 0.2:
            element = Stable(random.choice((vs, max(vs, min(stream.stable_point, 12)), INF if kind < 0.02 else vs)))
        elif kind < 0.5 and ends:
            element = Adjust(payload, vs, random.choice(ends), ve)
        elif kind < 0.52:
            element = Adjust(payload, vs, vs + 3, ve)
        if random.random() < 0.97:
            try:
                stream.apply(element)
            except LmergeError:
                continue
        yield element


def play(seed: str, algorithm: str, compare_every: int = 1) -> None:
    random = Random(seed)
    policies = INDEX_POLICIES if algorithm in ("r3", "r4") else ("lazy",) if algorithm == "r3-" else ("lazy", "eager")
    auto = algorithm != "r3-" and random.random() < 0.5
    twins = Twins(
        "auto" if auto else algorithm,
        random.choice(policies),
        random.choice(("all", "any", "quorum:2")),
        allow_downgrade=auto and random.random() < 0.5,
        compare_every=compare_every,
    )
    streams: dict[str, Tdb] = {}
    promises = PROMISES["r3" if algorithm == "r3-" else algorithm]
    for _ in range(30):
        name, chance = random.choice("abc"), random.random()
        if chance < 0.15 or name not in streams:
            streams[name] = Tdb(name)
            promised = promises if random.random() < 0.9 else random.choice([*PROMISES.values(), COPIES_PROMISES])
            join_at = random.choice((None, None, random.randint(-2, 12)))
            role = "observe" if random.random() < 0.1 else "active"
            incarnation = random.choice((None, None, random.randint(1, 9)))
            twins.call("attach", name, promised, join_at=join_at, role=role, incarnation=incarnation)
        elif chance < 0.2:
            twins.call("detach", name)
        elif chance < 0.25:
            twins.call("admit", name)
        elif chance < 0.28:
            twins.call("excuse", name)
        elif chance < 0.37:
            twins.exchange()
        else:
            elements = list(lawless(random, streams[name], random.randint(1, 8)))
            if algorithm in ("r0", "r1", "r2"):
                elements = [e for e in elements if not isinstance(e, Adjust) or random.random() < 0.05]
                if random.random() < 0.9:
                    elements.sort(key=lambda e: e.vc if isinstance(e, Stable) else e.vs)
            twins.call("apply", name, Batch.of(elements))


@pytest.mark.twins
@pytest.mark.parametrize("algorithm", [*PROMISES, "r3-"])
def test_every_call_has_the_same_outcome_as_on_python(algorithm: str) -> None:
    for seed in range(60):
        play(f"{seed} {algorithm}", algorithm)


@pytest.mark.long
@pytest.mark.twins
@pytest.mark.parametrize("algorithm", [*PROMISES, "r3-"])
def test_every_call_has_the_same_outcome_as_on_python_for_many_seeds(algorithm: str, long_seeds: range) -> None:
    for seed in long_seeds:
        play(f"many {seed} {algorithm}", algorithm, compare_every=5)


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
