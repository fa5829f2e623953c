"""R3- and Cleanse, with which the paper compares R3: the native ones give the output of the definitions in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest

from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.comparison.cleanse import Cleanse
from lmerge.core.elements import INF, Adjust, Element, Insert, Stable
from lmerge.core.engines.selection import NATIVE
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.core.tdb import reconstitute
from lmerge.errors import InputViolation
from lmerge.testing.streams.facets import Facets
from lmerge.testing.streams.merge_inputs import MIXED, present, reference

try:
    from lmerge import _native as native
except ImportError:  # then no test runs: ``engine`` decides whether that is a failure
    native = None  # type: ignore[assignment]  # where it is missing


@pytest.fixture(scope="module", autouse=True)
def engine(demand: Callable[[str], None]) -> None:
    """Use any engine; these tests need the native core."""
    demand(NATIVE)


SHAPES = (
    MIXED,
    replace(MIXED, places=20, revised=0.9),
    replace(MIXED, invented=0.8),
    replace(MIXED, stables=0.8, meeting=1.0),
)


def batches(random: Random, stream: list[Element]) -> Iterator[Batch]:
    """Return ``stream`` in pieces of random length."""
    at = 0
    while at < len(stream):
        end = at + random.randint(1, 9)
        yield Batch.of(stream[at:end])
        at = end


def broken(random: Random, stream: list[Element]) -> list[Element]:
    """Return ``stream`` with some elements moved or changed, so that promises break in every way."""
    stream = list(stream)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(stream))
        element, chance = stream[at], random.random()
        if chance < 0.4:
            stream.insert(random.randint(at, len(stream)), element)
        elif isinstance(element, Stable):
            stream.insert(at + 1, Stable(element.vc - 1) if element.vc < INF else Stable(3))
        elif isinstance(element, Insert):
            stream[at] = Insert(element.payload, element.vs, element.vs + random.randint(-1, 3))
        else:
            stream[at] = Adjust(element.payload, element.vs, min(INF, element.vold + random.randint(-1, 1)), element.ve)
    return stream


def outcome_of(call: Callable[..., AnyBatch], *arguments: object) -> list[Element] | dict[str, object]:
    """Return the elements of a batch, or the fields of the violation."""
    try:
        return list(call(*arguments).elements())
    except InputViolation as violation:
        return {"text": str(violation)} | vars(violation)


def cleansed(seed: int, stream: list[Element]) -> list[list[Element]]:
    """Return the outputs of both for ``stream``, batch by batch; a violation, which ends them, must be the same."""
    random = Random(seed)
    definition, twin = Cleanse("a"), native.Cleanse("a")
    released = []
    for batch in batches(random, stream):
        expected = outcome_of(definition.apply, batch)
        assert outcome_of(twin.apply, native.Columns.of(batch)) == expected
        if not isinstance(expected, list):
            break
        assert twin.buffered == definition.buffered
        released.append(expected)
    return released


@pytest.mark.parametrize("duplicates", [False, True])
def test_cleanse_releases_what_the_definition_releases(duplicates: bool) -> None:
    for seed in range(200):
        random = Random(seed)
        events = reference(random, 25, duplicates=duplicates)
        stream = present(random, events, SHAPES[seed % len(SHAPES)])
        released = [element for batch in cleansed(seed, stream) for element in batch]
        assert reconstitute(released) == events


def test_cleanse_raises_what_the_definition_raises() -> None:
    codes = set()
    for seed in range(600):
        random = Random(seed)
        stream = broken(random, present(random, reference(random, 12, duplicates=seed % 2 == 0)))
        cleansed(seed, stream)
        try:
            reconstitute(stream)
        except InputViolation as violation:
            codes.add(violation.code)
    assert codes == {
        "end-before-start",
        "insert-below-stable",
        "adjust-below-stable",
        "unknown-event",
        "stable-backwards",
    }


def test_cleanse_reports_how_much_it_holds() -> None:
    cleanse = native.Cleanse()
    inserts = [Insert(b"x" * 100, at, INF) for at in range(1000)]
    cleanse.apply(native.Columns.of(Batch.of(inserts)))
    allocated, payload = cleanse.memory
    assert cleanse.buffered == 1000
    assert payload == 100_000
    assert payload < allocated < 2.5 * payload
    cleanse.apply(native.Columns.of(Batch.of([Stable(INF)])))
    assert (cleanse.buffered, cleanse.memory) == (0, (0, 0))


@pytest.mark.parametrize("shape", SHAPES)
def test_r3_minus_emits_what_the_definition_emits(shape: Facets) -> None:
    """Batch by batch, including snapshots and counters, and continued from a snapshot of the other."""
    for seed in range(40):
        random = Random(seed)
        events = reference(random, 20)
        streams = {name: list(batches(random, present(random, events, shape))) for name in "abc"}
        engines = ("python", "native")
        twins = [Merge(MergeConfig("r3-", engine=engine)) for engine in engines]
        for name in streams:
            for twin in twins:
                twin.attach(name, ("key",))
        while any(streams.values()):
            name = random.choice([name for name, rest in streams.items() if rest])
            batch = streams[name].pop(0)
            expected, outcome = (twin.apply(name, batch) for twin in twins)
            assert list(outcome.batch.elements()) == list(expected.batch.elements())
            assert not outcome.detached
            if random.random() < 0.3:
                snapshots = [snapshot_of(twin) for twin in twins]
                assert snapshots[0] == snapshots[1]
                twins = [restored(snapshots[0], engine=engine) for engine in engines]
            twins[1].check()


def test_r3_minus_stores_a_payload_once_an_input_and_once_for_the_output() -> None:
    core = native.Core("r3-", "first", False, 0, 0, "furthest-stable", 0, 0, False)
    batch = native.Columns.of(Batch.of([Insert(b"x" * 100, at, INF) for at in range(1000)]))
    for slot in range(3):
        core.attach(slot, slot, 16, None, False, True)
        assert core.apply(slot, batch, 0) is None
    allocated, payload = core.memory
    assert payload == 4 * 100_000
    assert payload < allocated < 2.5 * payload


def test_the_limit_probes_for_every_element_and_forgets_what_has_ended() -> None:
    limit = native.Limit()
    first = native.Columns.of(Batch.of([Insert(b"a", 1, 5), Insert(b"b", 2, 9), Insert(b"a", 2, 9)]))
    assert [limit.apply(first) for _ in range(2)] == [3, 0]
    assert limit.apply(native.Columns.of(Batch.of([Stable(7), Insert(b"a", 1, 5), Insert(b"c", 8, 9)]))) == 1
    assert limit.apply(native.Columns.of(Batch.of([Insert(b"b", 2, 9), Insert(b"a", 2, 9)]))) == 0
