"""The native TDB of one stream against ``Tdb``: the same events, messages and indices after every batch.

Batches of 32 elements and more may wait unindexed in the core. Only the memory shows whether they do.
``tests/client/publish/test_native_live.py`` does the same for the events that a publisher keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.engines import selection
from lmerge.core.engines.selection import LiveTdb, live_tdb
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation
from lmerge.testing.streams.merge_inputs import MIXED, present, reference

WAITING_ELEMENTS_MAX = 2**19  # native/core/src/tdb.rs


@pytest.fixture(scope="module", autouse=True)
def engine(demand: Callable[[str], None]) -> None:
    """Use only the native engine: the other is the definition."""
    demand(selection.NATIVE)


class Twins:
    """The table under test and its definition; both get the same elements."""

    def __init__(self, name: str = "s") -> None:
        self.mine: LiveTdb = live_tdb(name, selection.NATIVE)
        self.python = Tdb(name, keep_frozen=False)

    def apply(self, *elements: Element) -> InputViolation | None:
        """Apply a batch to both. Returns the violation, which must be the same, if there is one."""
        batch = Batch.of(elements)
        caught: list[InputViolation | None] = []
        for table in (self.mine, self.python):
            try:
                table.apply_batch(batch)
                caught.append(None)
            except InputViolation as violation:
                caught.append(violation)
        mine, python = caught
        assert described(mine) == described(python)
        assert self.mine.stable_point == self.python.stable_point
        return mine

    def compare(self) -> None:
        self.mine.check()  # before a call that settles the waiting batches
        assert self.mine.live_count == self.python.live_count
        assert self.mine.live_events() == self.python.live_events()
        self.mine.check()

    def compare_ends(self, vs: int, payload: bytes) -> None:
        assert self.mine.live_ends(vs, payload) == self.python.live_ends(vs, payload)


def described(violation: InputViolation | None) -> object:
    return None if violation is None else (violation.code, str(violation), violation.index, violation.input_name)


def pieces(random: Random, stream: list[Element]) -> Iterator[list[Element]]:
    """Yield the stream in batches, many of them large enough to wait."""
    at = 0
    while at < len(stream):
        count = random.choice((1, 5, 31, 32, 33, 64, 200))
        yield stream[at : at + count]
        at += count


SHAPES = (
    MIXED,
    replace(MIXED, revised=0.0, invented=0.0),
    replace(MIXED, revised=0.02, invented=0.0, stables=0.02),
    replace(MIXED, places=0),
    replace(MIXED, revised=0.0, invented=0.0, stables=0.0, liveliness="open"),
)


@pytest.mark.parametrize("duplicates", [False, True], ids=["keys", "duplicates"])
def test_a_legal_stream_gives_the_same_table_after_every_batch(duplicates: bool) -> None:
    for seed in range(40):
        random = Random(f"{seed} {duplicates}")
        events = reference(random, random.choice((30, 300)), duplicates=duplicates)
        twins = Twins()
        for piece in pieces(random, present(random, events, random.choice(SHAPES))):
            assert twins.apply(*piece) is None
            chance = random.random()
            if chance < 0.3:
                twins.compare()
            elif chance < 0.5:
                event = random.choice(events)
                twins.compare_ends(event.vs, event.payload)
        twins.compare()


def lawless(random: Random, table: Tdb, count: int) -> list[Element]:
    """Return elements of which most, but not all, are legal: times close together, so that they interact."""
    elements: list[Element] = []
    floor = max(table.stable_point, -2)
    known = table.live_events()
    for _ in range(count):
        payload, vs = random.choice((b"p", b"q", b"")), min(floor + random.randint(0, 12), INF)
        ve = random.choice((INF, vs, min(vs + random.randint(0, 6), INF)))
        element: Element = Insert(payload, vs, ve)
        chance = random.random()
        if chance < 0.03:
            element = Insert(payload, floor - 1, ve) if random.random() < 0.5 else Insert(payload, vs, vs - 1)
        elif chance < 0.06:
            element = Adjust(payload, vs, random.choice((floor - 1, vs + 2, ve)), random.choice((ve, vs - 1)))
        elif chance < 0.2 and known:
            event = random.choice(known)
            element = Adjust(event.payload, event.vs, event.ve, max(ve, event.vs))
        elif chance < 0.23:
            floor = random.choice((vs, floor, floor - 1 if random.random() < 0.2 else floor))
            element = Stable(floor)
        elements.append(element)
    return elements


def test_a_lawless_stream_breaks_the_same_promise_at_the_same_element_with_the_same_message() -> None:
    codes = set()
    for seed in range(250):
        random, twins = Random(seed), Twins(f"stream {seed}")
        for _ in range(8):
            plain = random.random() < 0.4
            elements = lawless(random, twins.python, random.choice((1, 6, 40, 100)))
            if plain:  # batches that wait
                floor = twins.python.stable_point
                elements = [e for e in elements if isinstance(e, Insert) and e.ve >= e.vs >= floor]
            violation = twins.apply(*elements)
            codes.add(None if violation is None else violation.code)
            twins.compare()
    every = {"end-before-start", "insert-below-stable", "adjust-below-stable", "unknown-event", "stable-backwards"}
    assert codes == every | {None}


def waiting(count: int, vs: int = 0, ve: int = 100) -> list[Element]:
    """Return a batch that waits in the core."""
    assert count >= 32
    return [Insert(b"%d" % at, vs, ve) for at in range(count)]


@pytest.mark.parametrize("before", [32, 33, 500])
def test_an_adjust_finds_what_has_only_waited(before: int) -> None:
    twins = Twins()
    twins.apply(*waiting(before), *waiting(before))
    assert twins.apply(Adjust(b"31", 0, 100, 7), Adjust(b"31", 0, 100, 0), Adjust(b"31", 0, 7, 9)) is None
    violation = twins.apply(*waiting(40), Adjust(b"31", 0, 7, 9))
    assert violation is not None
    assert (violation.code, violation.index) == ("unknown-event", 2 * before + 43)
    twins.compare_ends(0, b"31")
    twins.compare()


def test_a_broken_promise_in_a_large_batch_leaves_what_stands_before_it() -> None:
    for offender in (Insert(b"x", 3, 2), Insert(b"x", 1, 9), Stable(4), Adjust(b"x", 1, 4, 9), Adjust(b"x", 9, 9, 10)):
        twins = Twins()
        twins.apply(*waiting(64), Stable(2))
        violation = twins.apply(*waiting(64, 5), Stable(5), offender, *waiting(64, 6))
        assert violation is not None
        assert violation.index == 65 + 65
        twins.compare()
        assert twins.apply(*waiting(64, 7)) is None
        twins.compare()


@pytest.mark.parametrize("bound", [1, 2, 6])
def test_a_stable_forgets_of_what_waits_just_what_is_fully_frozen(bound: int) -> None:
    """III.C: at Vc, not beyond it, an event can still change."""
    twins = Twins()
    twins.apply(*(Insert(b"%d" % at, 0, at % 7) for at in range(70)))
    for vc in (bound, bound, 7):
        twins.apply(Stable(vc))
        twins.compare()
    assert twins.mine.live_count == 0


def test_a_batch_can_freeze_what_it_holds_itself() -> None:
    twins = Twins()
    twins.apply(*waiting(40, 0, 5), Stable(6), *waiting(40, 6, 9))
    twins.compare()
    twins.apply(*waiting(40, 6, 6), *waiting(40, 7, INF), Stable(8))
    twins.compare()
    twins.apply(Stable(INF))
    twins.compare()
    assert twins.mine.live_count == 40, "what never ends is never fully frozen"


def test_long_events_behind_and_before_short_ones_are_forgotten_alike() -> None:
    """Batches wait in order; one whose last end is far away must not keep or lose the following ones."""
    for order in ((INF, 5), (5, INF), (50, 5, INF, 7)):
        twins = Twins()
        for ve in order:
            twins.apply(*waiting(40, 0, ve), Insert(b"short", 0, 3))
        for vc in (2, 4, 6, 8, 60):
            twins.apply(*waiting(33, vc, vc + 1), Stable(vc))
            twins.compare()


def test_beyond_all_that_may_wait_the_table_is_the_same() -> None:
    twins, each = Twins(), 2**14
    for at in range(WAITING_ELEMENTS_MAX // each + 3):
        assert twins.apply(*(Insert(b"%d" % i, at, INF if i % 3 else at + 5) for i in range(each))) is None
        assert twins.apply(Stable(at)) is None
    twins.mine.check()
    vs = WAITING_ELEMENTS_MAX // each + 2
    assert twins.apply(Adjust(b"1", 0, INF, vs + 1), Adjust(b"2", vs, INF, vs)) is None
    for key in ((0, b"1"), (vs, b"2"), (vs, b"1"), (0, b"0")):
        twins.compare_ends(*key)
    twins.compare()


def test_events_that_were_entered_count_among_those_that_came() -> None:
    twins = Twins()
    twins.apply(Stable(5))
    twins.apply(*waiting(40, 6, 9))
    for table in (twins.mine, twins.python):
        table.enter(1, b"half frozen", 20)
        table.enter(6, b"1", 9)
    twins.compare_ends(6, b"1")
    twins.compare()
    assert twins.apply(Adjust(b"half frozen", 1, 20, 30), Adjust(b"1", 6, 9, 8), Adjust(b"1", 6, 9, 6)) is None
    twins.compare()


def test_an_empty_table_has_no_events() -> None:
    twins = Twins()
    assert twins.apply() is None
    assert (twins.mine.live_count, twins.mine.live_events(), twins.mine.stable_point) == (0, [], NEG_INF)
    assert twins.mine.live_ends(1, b"x") == ()
    twins.compare()


def test_the_stable_point_is_known_after_every_batch_also_a_broken_one() -> None:
    twins = Twins()
    twins.apply(*waiting(64), Stable(3))
    assert twins.mine.stable_point == 3
    twins.apply(Stable(4), Stable(1), Stable(9))
    assert twins.mine.stable_point == 4
    twins.apply(*waiting(64, 5), Stable(6), Stable(2))
    assert twins.mine.stable_point == 6


@pytest.mark.parametrize("keys", [1, 1000])
def test_memory_returns_after_a_burst(keys: int) -> None:
    from lmerge._native import Columns
    from lmerge._native import Tdb as Core

    core = Core()
    for vs in range(100):
        burst: list[Element] = [Insert(b"%100d" % (at % keys), vs, 200 + at % 3) for at in range(1000)]
        core.apply(Columns.of(Batch.of([*burst, Stable(vs)])))
    held = core.memory[0]
    assert held > 100 * 1000 * 100, "everything waits"
    assert len(core) == 100_000  # indexes it
    assert core.apply(Columns.of(Batch.of([Stable(150), Stable(1000)]))) is None
    assert (len(core), core.memory[1]) == (0, 0)
    assert core.memory[0] < held / 20
    core.check()


def test_what_waits_gives_its_memory_back_when_it_is_frozen() -> None:
    from lmerge._native import Columns
    from lmerge._native import Tdb as Core

    core = Core()
    for vs in range(200):
        core.apply(Columns.of(Batch.of([*(Insert(b"x" * 100, vs, vs + 10) for _ in range(1000)), Stable(vs)])))
        assert core.memory[0] < 13 * 1000 * 200, "at most 11 batches can still be adjusted"
    core.apply(Columns.of(Batch.of([Stable(1000)])))
    assert core.memory[1] == 0


def test_one_long_event_in_each_batch_does_not_hold_all_that_came_with_it() -> None:
    """Whole messages wait; beyond a bound the oldest is indexed, and its frozen events are dropped."""
    from lmerge._native import Columns
    from lmerge._native import Tdb as Core

    core = Core()
    for t in range(0, 160, 4):
        short: list[Element] = [Insert(b"x" * 100_000, t, t + 1) for _ in range(31)]
        core.apply(Columns.of(Batch.of([*short, Insert(b"long", t, INF), Stable(t + 2)])))
        assert core.memory[0] < 40 * 2**20
    assert len(core) == 40
    assert core.memory[0] < 2**20


def test_events_are_listed_in_the_order_in_which_lmerge_lists_events() -> None:
    random = Random(5)
    twins = Twins()
    payloads = (b"", b"a", b"a\0", b"\xff", b"b")
    twins.apply(*(Insert(random.choice(payloads), random.randint(-3, 3), random.choice((4, 5))) for _ in range(200)))
    listed = twins.mine.live_events()
    assert listed == sorted(listed)
    assert isinstance(listed[0], Event)
    twins.compare()
