"""A publisher's live events on the native core against ``LiveEvents``: the same prelude after every step.

Batches of 32 elements and more may wait unindexed in the core, also behind a stable that the publisher has published
but the merge has not emitted. ``tests/core/engines/test_native_tdb.py`` does the same for the table of a subscriber.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest

from lmerge.client.publish.engine_live_events import live_events
from lmerge.client.publish.live_events import LiveEvents
from lmerge.client.publish.outbox import Outbox
from lmerge.client.subscribe.follower import Follower
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.engines import selection
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation, InvalidBatch
from lmerge.testing.streams.merge_inputs import MIXED, present, reference

pytestmark = pytest.mark.usefixtures("native_engine")

WAITING_ELEMENTS_MAX = 2**19  # native/core/src/tdb.rs


class LiveEventTwins:
    """Live events on both engines; both get the same elements."""

    def __init__(self) -> None:
        self.python = LiveEvents("a")
        self.native = live_events("a", selection.NATIVE)
        assert self.native.engine == selection.NATIVE

    def apply(self, *elements: Element, one_by_one: bool = False) -> InputViolation | None:
        batch = Batch.of(elements)
        verdicts: list[InputViolation | None] = []
        for live in (self.python, self.native):
            try:
                if one_by_one:
                    for index, row in enumerate(batch.rows()):
                        live.apply_row(row, index)
                else:
                    live.apply_batch(live.own(batch))
                verdicts.append(None)
            except InputViolation as violation:
                verdicts.append(violation)
        assert described(verdicts[0]) == described(verdicts[1])
        assert self.native.stable == self.python.stable
        return verdicts[1]

    def trim(self, stable_point: int) -> None:
        for live in (self.python, self.native):
            live.trim(stable_point)
        assert self.native.trimmed == self.python.trimmed

    def compare(self) -> None:
        self.native._tdb.check()
        assert list(self.native.prelude().elements()) == list(self.python.prelude().elements())
        assert len(self.native) == len(self.python)
        self.native._tdb.check()


def described(violation: InputViolation | None) -> object:
    return None if violation is None else (violation.code, str(violation), violation.index, violation.input_name)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_stable_alone_indexes_nothing(one_by_one: bool) -> None:
    twins = LiveEventTwins()
    twins.apply(*(Insert(b"%d" % end, 0, end) for end in range(1, 41)))
    twins.apply(Stable(20), one_by_one=one_by_one)
    twins.trim(20)
    assert twins.native.at_most == 40, "the batch waits as it came"
    twins.compare()
    assert twins.native.at_most == 21


@pytest.mark.parametrize("duplicates", [False, True], ids=["keys", "duplicates"])
def test_the_prelude_is_the_same_after_every_batch_and_every_ack(duplicates: bool) -> None:
    shapes = (
        MIXED,
        replace(MIXED, revised=0.0, invented=0.0),
        replace(MIXED, revised=0.02, invented=0.0, stables=0.03),
        replace(MIXED, revised=0.0, invented=0.0, stables=0.0, liveliness="open"),
    )
    for seed in range(40):
        random, twins = Random(f"{seed} {duplicates}"), LiveEventTwins()
        events = reference(random, random.choice((30, 300)), duplicates=duplicates)
        stream = present(random, events, random.choice(shapes))
        while stream:
            count = random.choice((1, 5, 31, 32, 33, 64, 200))
            assert twins.apply(*stream[:count], one_by_one=random.random() < 0.2) is None
            del stream[:count]
            if random.random() < 0.5:  # before or beyond the publisher's own stable; sometimes backwards
                vc = twins.python.stable if twins.python.stable > NEG_INF else 0
                twins.trim(min(vc + random.randint(-20, 20), INF))
            if random.random() < 0.5:
                twins.compare()
        twins.compare()


def test_an_illegal_element_is_refused_with_the_same_message_and_index() -> None:
    codes = set()
    for seed in range(200):
        random, twins = Random(seed), LiveEventTwins()
        for _ in range(8):
            elements: list[Element] = []
            stable = max(twins.python.stable, -2)
            for _ in range(random.choice((1, 6, 40, 100))):
                vs, chance = stable + random.randint(0, 9), random.random()
                element: Element = Insert(random.choice((b"p", b"q")), vs, vs + random.randint(0, 5))
                if chance < 0.01:
                    wrong = (Insert(b"p", stable - 1, vs), Insert(b"p", vs, vs - 1), Stable(stable - 1))
                    element = random.choice(wrong)
                elif chance < 0.1 and (events := list(twins.python.prelude().elements())):
                    event = random.choice(events)
                    if isinstance(event, Insert):
                        after = min(event.ve, INF - 1) + 1
                        ve = random.choice((event.vs, event.vs + 3, after, event.vs - 1 if seed % 9 == 0 else INF))
                        vold = event.ve if random.random() < 0.9 else after
                        element = Adjust(event.payload, event.vs, vold, ve)
                elif chance < 0.13:
                    stable = random.choice((vs, stable))
                    element = Stable(stable)
                elements.append(element)
            violation = twins.apply(*elements, one_by_one=random.random() < 0.3)
            codes.add(None if violation is None else violation.code)
            if random.random() < 0.5:
                twins.trim(stable + random.randint(-3, 3))
            twins.compare()
    every = {"end-before-start", "insert-below-stable", "adjust-below-stable", "unknown-event", "stable-backwards"}
    assert codes == every | {None}


def step_stable(twins: LiveEventTwins) -> None:
    assert twins.apply(Stable(7)) is None


def step_trim(twins: LiveEventTwins) -> None:
    twins.trim(6)


def step_trim_beyond(twins: LiveEventTwins) -> None:
    twins.trim(50)


def step_trim_back(twins: LiveEventTwins) -> None:
    twins.trim(3)


def step_adjust(twins: LiveEventTwins) -> None:
    assert twins.apply(Adjust(b"3", 0, 60, 61)) is None


def step_more(twins: LiveEventTwins) -> None:
    assert twins.apply(*(Insert(b"%d" % at, 8, 8 + at % 60) for at in range(64))) is None


@pytest.mark.parametrize("seed", range(60))
def test_trims_stables_and_adjusts_may_come_in_any_order(seed: int) -> None:
    random, twins = Random(seed), LiveEventTwins()
    assert twins.apply(*(Insert(b"%d" % at, 0, at % 9) for at in range(64)), Insert(b"3", 0, 60)) is None
    assert twins.apply(*(Insert(b"%d" % at, 1, 100 - at) for at in range(64))) is None
    steps: list[Callable[[LiveEventTwins], None]] = [
        step_stable,
        step_trim,
        step_trim_beyond,
        step_trim_back,
        step_adjust,
        step_more,
    ]
    random.shuffle(steps)
    for step in steps:
        step(twins)
        if random.random() < 0.5:
            twins.compare()
    twins.compare()
    assert twins.apply(Stable(1000)) is None
    twins.trim(1000)
    twins.compare()
    assert len(twins.native) == 0


def test_events_come_back_in_the_order_in_which_they_were_inserted() -> None:
    """Batches that wait, batches that are indexed at once, and single elements, in turn."""
    twins, random = LiveEventTwins(), Random(2)
    for vs in range(40):
        count = random.choice((1, 3, 32, 50))
        payloads = [random.randbytes(2) for _ in range(count)]
        assert twins.apply(*(Insert(p, vs, 1000) for p in payloads), one_by_one=vs % 5 == 0) is None
        if vs % 7 == 0:
            assert twins.apply(Adjust(payloads[0], vs, 1000, 1001), Stable(vs)) is None
    twins.compare()


def test_beyond_all_that_may_wait_the_prelude_is_the_same() -> None:
    twins, each = LiveEventTwins(), 2**14
    for at in range(WAITING_ELEMENTS_MAX // each + 3):
        batch = [Insert(b"%d" % i, at, at + 2 if i % 2 else 10_000) for i in range(each)]
        assert twins.apply(*batch, Stable(at)) is None
    twins.trim(10)
    assert twins.apply(Adjust(b"0", 0, 10_000, 9_000)) is None
    twins.compare()


def test_memory_returns_when_both_sides_have_frozen_a_burst() -> None:
    twins = LiveEventTwins()
    tdb = twins.native._tdb
    for vs in range(100):
        twins.native.apply_batch(Batch.of([*(Insert(b"%100d" % at, vs, vs + 50) for at in range(1000)), Stable(vs)]))
    held = tdb.memory[0]
    assert held > 100 * 1000 * 100, "the merge has frozen nothing yet"
    assert len(twins.native) == 100_000
    twins.native.trim(99)
    assert len(twins.native) == 51_000
    twins.native.apply_batch(Batch.of([Stable(1000)]))
    twins.native.trim(1000)
    assert (len(twins.native), tdb.memory[1]) == (0, 0)
    assert tdb.memory[0] < held / 20
    tdb.check()


def test_what_cannot_be_a_batch_is_refused_before_any_of_it_is_noticed() -> None:
    live = live_events("a", selection.NATIVE)
    with pytest.raises(InvalidBatch, match="column ve is not one of 64-bit times"):
        live.own(Batch(b"\0\0", [1, 2], [5, INF + 1], [0, 0], [b"x", b"y"]))
    assert len(live) == 0


def at_work(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def many_elements() -> Iterator[Element]:
    """Yield 90,000 events, some of them adjusted."""
    for vs in range(3000):
        yield from (Insert(b"%d" % at, vs, 5000) for at in range(30))
        yield Adjust(b"0", vs, 5000, 4000)


def test_what_the_merge_has_frozen_can_be_read_while_another_thread_publishes_a_batch() -> None:
    """The connection reads it when it attaches again, while the caller of a blocking publisher publishes."""
    outbox = Outbox("a")
    lane = outbox.lane()
    lane.join_at()
    lane.restart()
    lane.note_stable(5)
    batch = outbox.live.own(Batch.of(many_elements()))
    caller = at_work(lambda: outbox.put_batch(batch))
    while caller.is_alive():
        assert outbox.trimmed == 5
        assert outbox.published in (0, batch.count)
    caller.join()
    assert outbox.published == batch.count
    assert len(outbox.live) == 90_000


def test_a_readers_stable_point_can_be_read_while_another_thread_takes_a_batch() -> None:
    """A thread that shows the status reads it, while the thread that reads the stream goes on."""
    follower = Follower(["server"])
    batch = Batch.of([*many_elements(), Stable(2999)])
    follower.begin("server", 0, None)
    follower.take("server", Batch.of([Stable(0)]))
    follower.reader.take()
    follower.take("server", batch)
    taking = at_work(follower.reader.take)
    seen = set()
    while taking.is_alive():
        seen.add(follower.reader.stable_point)
    taking.join()
    assert seen <= {0, 2999}
    assert follower.reader.stable_point == 2999


def test_a_subscribers_table_is_the_definitions_on_either_engine() -> None:
    followers = [Follower(["server"], engine=engine) for engine in (selection.PYTHON, selection.NATIVE)]
    random, tdb = Random(4), Tdb("s")
    stream = present(random, reference(random, 200))
    for follower in followers:
        follower.begin("server", NEG_INF, None)
    while stream:
        batch = Batch.of(stream[:40])
        del stream[:40]
        tdb.apply_batch(batch)
        for follower in followers:
            follower.take("server", batch)
            follower.reader.take()
            follower.reader.table.check()
            assert follower.reader.position() == (tdb.stable_point, tdb.live_events())
    assert isinstance(tdb.events()[0], Event)
