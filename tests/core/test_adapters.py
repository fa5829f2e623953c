"""Streams in other models: the table of a bag of positive and negative tuples does not depend on their order."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from random import Random

import pytest

from lmerge.core.adapters import Close, Open, Signed, from_open_close, from_signed, to_signed
from lmerge.core.elements import INF, Event, Stable
from lmerge.core.tdb import reconstitute
from lmerge.errors import UsageError
from lmerge.testing.streams.merge_inputs import reference

pytestmark = pytest.mark.python_engine  # it uses none


def plus(t: int, payload: bytes = b"p") -> Signed:
    return Signed(1, payload, t)


def minus(t: int, payload: bytes = b"p") -> Signed:
    return Signed(-1, payload, t)


def table(bag: list[Signed]) -> tuple[list[Event], list[Signed]]:
    """Compute the definition at the head of the adapters literally: the table, and the unmatched tuples."""
    events, unmatched = [], []
    for payload in sorted({item.payload for item in bag}):
        starts: list[int] = []
        items = sorted((t, -sign) for sign, other, t in bag if other == payload)
        for t, leaves in items:
            if leaves < 0:
                starts.append(t)
            elif starts:
                events.append(Event(starts.pop(0), payload, t))
            else:
                unmatched.append(minus(t, payload))
        events += [Event(t, payload, INF) for t in starts]
    return sorted(event for event in events if event.vs < event.ve), unmatched


def random_bag(random: Random, size: int) -> list[Signed]:
    """Return tuples with times close together, so that some tie, and some unmatched negative tuples."""
    return [
        Signed(random.choice((1, 1, -1)), random.choice((b"p", b"p", b"q")), random.choice((random.randint(0, 5), INF)))
        if random.random() < 0.05
        else Signed(random.choice((1, -1)), random.choice((b"p", b"p", b"q")), random.randint(0, 6))
        for _ in range(size)
    ]


def test_every_order_of_a_small_bag_gives_the_table_of_the_bag() -> None:
    random = Random(0)
    for _ in range(150):
        bag = random_bag(random, random.randint(1, 5))
        expected, _ = table(bag)
        for order in set(permutations(bag)):
            assert reconstitute(from_signed(order)) == expected, order


def test_every_prefix_of_a_large_bag_gives_the_table_of_the_prefix() -> None:
    """The elements are a legal stream at every point: their reconstitution checks it."""
    for seed in range(30):
        bag = random_bag(Random(seed), 30)
        for length in range(len(bag) + 1):
            assert reconstitute(from_signed(bag[:length])) == table(bag[:length])[0]


def test_stables_between_the_tuples_change_nothing() -> None:
    """Disorder within what the stables allow: each adjust and insert is legal, and the table is that of the bag."""
    for seed in range(200):
        random = Random(seed)
        bag = to_signed(reference(random, 12, payloads=2, duplicates=True))
        stream: list[Signed | Stable] = []
        rest = sorted(bag, key=lambda item: item.t + random.randint(0, 9))
        while rest:
            stream.append(rest.pop(0))
            if random.random() < 0.3:
                stream.append(Stable(min((item.t for item in rest), default=INF)))
        assert reconstitute(from_signed(stream)) == table(bag)[0]


@pytest.mark.parametrize("order", list(permutations([plus(1), plus(4), minus(3), minus(9)])))
def test_the_oldest_open_event_ends_first(order: tuple[Signed, ...]) -> None:
    assert reconstitute(from_signed(order)) == [Event(1, b"p", 3), Event(4, b"p", 9)]


@pytest.mark.parametrize("order", list(permutations([plus(2), minus(2), plus(5)])))
def test_what_enters_and_leaves_at_one_instant_is_no_event(order: tuple[Signed, ...]) -> None:
    assert reconstitute(from_signed(order)) == [Event(5, b"p", INF)]


@pytest.mark.parametrize("order", list(permutations([plus(4), minus(3), minus(6)])))
def test_an_unmatched_negative_tuple_stands_for_no_event_until_a_stable_passes_it(order: tuple[Signed, ...]) -> None:
    assert reconstitute(from_signed([*order, Stable(3)])) == [Event(4, b"p", 6)]
    assert reconstitute(from_signed([*order, plus(1)])) == [Event(1, b"p", 3), Event(4, b"p", 6)]
    with pytest.raises(UsageError, match=r"^negative tuple \(p, 3\): no open event to end, and .* is stable at 4$"):
        list(from_signed([*order, Stable(4)]))


def test_a_tuple_below_the_stable_point_is_refused() -> None:
    assert list(from_signed([Stable(5), plus(5)]))
    for late in (plus(4), minus(4)):
        with pytest.raises(UsageError, match=r"tuple \(p, 4\): its stream is stable at 5$"):
            list(from_signed([plus(1), Stable(5), late]))


def test_what_is_over_is_forgotten() -> None:
    """Memory and work depend only on the live tuples: with all of them live this would take minutes."""
    stream = from_signed(item for t in range(0, 40_000, 2) for item in (minus(t + 1), plus(t), Stable(t + 2)))
    assert Counter(type(element).__name__ for element in stream) == {"Insert": 20_000, "Stable": 20_000}


def test_orders_of_one_open_close_bag_with_one_close_per_open_give_one_table() -> None:
    """Example 3: each payload once, each open before its close; any such order reconstitutes to the same TDB."""
    bag: list[Open | Close] = [Open(b"A", 1), Close(b"A", 4), Open(b"B", 2), Close(b"B", 5), Open(b"C", 3)]
    orders = [o for o in permutations(bag) if o.index(bag[0]) < o.index(bag[1]) and o.index(bag[2]) < o.index(bag[3])]
    assert len(orders) == 30
    assert {tuple(reconstitute(from_open_close(order))) for order in orders} == {
        (Event(1, b"A", 4), Event(2, b"B", 5), Event(3, b"C", INF))
    }
