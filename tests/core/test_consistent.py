"""Mutual consistency (III.B): inputs of one TDB are always consistent, contradictory inputs never."""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement
from random import Random

import pytest
from core_world import a, f

from lmerge.core.compatible import InputPrefix
from lmerge.core.consistent import contradictions
from lmerge.core.elements import INF, NEG_INF, Element, Event
from lmerge.core.properties import parse_properties
from lmerge.core.tdb import Tdb
from lmerge.testing.merges.declared import PROMISES
from lmerge.testing.streams.merge_inputs import mistaken, ordered, present, reference

pytestmark = pytest.mark.python_engine  # it uses none

ENDS = (2, 3, 4, 5, INF)  # of events that start at 1
Ends = tuple[int, ...]
TABLES: list[Ends] = [ends for size in range(4) for ends in combinations_with_replacement(ENDS, size)]


def prefix_of(
    name: str, elements: list[Element], join_at: int | None = None, promises: tuple[str, ...] = ()
) -> InputPrefix:
    tdb = Tdb(name)
    for element in elements:
        tdb.apply(element)
    return InputPrefix(name, tdb, NEG_INF if join_at is None else join_at, parse_properties(promises))


def can_become(prefix: InputPrefix, ends: Ends, table: Ends) -> bool:
    """The definition for the one key (p, Vs = 1): whether an extension of the prefix, which has events with these ends,
    is ``table``, from its join_at on."""
    stable, insert_only = prefix.tdb.stable_point, "insert-only" in prefix.promises

    def is_extension(final: Ends) -> bool:
        if insert_only and stable > 1:
            return final == ends
        if insert_only:
            return not Counter(ends) - Counter(final)
        if stable <= 1:
            return True
        frozen = [[ve for ve in table if ve < stable] for table in (ends, final)]
        return frozen[0] == frozen[1] and len(ends) == len(final)

    def seen(table: Ends) -> Ends:
        return tuple(ve for ve in table if ve >= prefix.join_at)

    return any(is_extension(final) and seen(final) == seen(table) for final in TABLES)


@pytest.mark.parametrize("multiset", [True, False])
def test_prefixes_are_consistent_exactly_if_some_table_is_reached_by_all(multiset: bool) -> None:
    random = Random(f"{multiset}")
    verdicts = Counter[bool]()
    for _ in range(600):
        has, prefixes = [], []
        for at in range(random.randint(2, 4)):
            ends = tuple(sorted(random.choices(ENDS, k=random.choice((0, 1, 1, 2) if multiset else (0, 1, 1)))))
            stable = random.choice((NEG_INF, 1, 2, 3, 4, 5, INF))
            promises = ("insert-only",) if random.random() < 0.3 else ()
            elements: list[Element] = [*(a("p", 1, ve) for ve in ends), f(stable)]
            prefixes.append(prefix_of(f"{at}", elements, random.choice((None, None, 3, 5)), promises))
            has.append(ends)
        tables = TABLES if multiset else [table for table in TABLES if len(table) <= 1]
        expected = any(all(map(can_become, prefixes, has, [table] * len(has))) for table in tables)
        assert (not contradictions(prefixes, multiset=multiset)) == expected, (has, prefixes)
        verdicts[expected] += 1
    assert min(verdicts.values()) > 80


def streams(random: Random, algorithm: str, tables: list[tuple[list[Event], int | None]]) -> list[list[Element]]:
    """Return a stream of each table with the properties that ``algorithm`` needs."""
    if algorithm in ("r3", "r4"):
        return [present(random, events) for events, _ in tables]
    return [ordered(random, events, ties="shuffled" if algorithm == "r2" else "payload") for events, _ in tables]


@pytest.mark.parametrize("algorithm", PROMISES)
def test_inputs_of_one_table_are_consistent(algorithm: str) -> None:
    """Also for prefixes of any lengths, and late joiners with wrong events that end before their join_at."""
    multiset = algorithm in ("r1", "r4")
    for seed in range(60):
        random = Random(f"{seed} {algorithm}")
        events = reference(random, 15, duplicates=multiset, strict=algorithm == "r0")
        tables: list[tuple[list[Event], int | None]] = [(events, None), (events, None)]
        if algorithm != "r0":  # an invented event would tie
            tables += [(mistaken(random, events, at), at) for at in (random.randint(1, 30), random.randint(1, 30))]
        parts = streams(random, algorithm, tables)
        for _ in range(8):
            prefixes = [
                prefix_of(f"{at}", part[: random.randint(0, len(part))], tables[at][1], PROMISES[algorithm])
                for at, part in enumerate(parts)
            ]
            assert not contradictions(prefixes, multiset=multiset)


@pytest.mark.parametrize("algorithm", PROMISES)
def test_a_seeded_contradiction_is_found_and_named(algorithm: str) -> None:
    """One input lacks an event, has one more, or has another end. All have ended, so no extension can correct it."""
    multiset = algorithm in ("r1", "r4")
    for seed in range(80):
        random = Random(f"{seed} {algorithm} contradicts")
        events = reference(random, 15, duplicates=multiset, strict=algorithm == "r0")
        at = random.randrange(len(events))
        vs, payload, ve = events[at]
        kind = random.choice(("less", "more", "end"))
        other = [event for number, event in enumerate(events) if number != at]
        if kind == "more":
            other = sorted([*events, Event(vs, payload, ve) if multiset else Event(vs + 500, b"more", vs + 501)])
        elif kind == "end":
            other = sorted([*other, Event(vs, payload, vs + 100)])
        join_at = random.choice((None, random.randint(NEG_INF, min(ve, vs + 100))))
        tables = [(events, None), (other, join_at), (events, None)]
        prefixes = [
            prefix_of("abc"[number], part, tables[number][1], PROMISES[algorithm])
            for number, part in enumerate(streams(random, algorithm, tables))
        ]
        found = contradictions(prefixes, multiset=multiset)
        key = (vs + 500, b"more") if kind == "more" and not multiset else (vs, payload)
        assert list(found) == [key]
        assert "input 'b'" in found[key]


def test_the_first_contradiction_is_explained() -> None:
    x = prefix_of("x", [a("A", 1, 9), a("B", 2, 9), f(5)])
    y = prefix_of("y", [a("A", 1, 4), a("B", 2, 9), f(6)])
    assert list(contradictions([x, y]).values()) == ["(A, Vs 1): 1 that end at 5 or later by input 'x', 0 by input 'y'"]
    assert not contradictions([x, prefix_of("y", [f(1)])])
    keyed = prefix_of("z", [a("A", 1, 9), a("A", 1, 9)])
    assert contradictions([keyed]) == {(1, b"A"): "(A, Vs 1): input 'z' has 2 events, and this is a key"}
    assert not contradictions([keyed], multiset=True)


def test_what_an_ordered_input_has_passed_is_settled() -> None:
    """R0-R2: with a larger Vs an ordered input has delivered all events before it; otherwise they may still come."""
    lacks: list[Element] = [a("B", 7, 9)]
    has: list[Element] = [a("A", 1, 9)]
    for promises in (PROMISES["r0"], PROMISES["r1"], PROMISES["r2"]):
        both = [prefix_of("x", lacks, promises=promises), prefix_of("y", has, promises=promises)]
        assert contradictions(both)
    assert not contradictions([prefix_of("x", lacks, promises=("insert-only",)), prefix_of("y", has)])
    r0 = PROMISES["r0"]
    tie = [prefix_of("x", [a("A", 1, 9)], promises=r0), prefix_of("y", [a("B", 1, 9)], promises=r0)]
    assert contradictions(tie)
    assert not contradictions([prefix._replace(promises=parse_properties(PROMISES["r2"])) for prefix in tie])
