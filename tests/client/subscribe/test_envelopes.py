"""Envelopes on random legal streams: the deliveries add up to the TDB, also after any restart of the reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmerge.client.subscribe.envelopes import (
    Delete,
    Delivery,
    Envelope,
    FinalEvent,
    Finals,
    Retract,
    Retracts,
    RowKey,
    RowReader,
    Upsert,
    Upserts,
)
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.tdb import Tdb
from lmerge.errors import InvalidRow
from lmerge.testing.streams.merge_inputs import MIXED, present, reference
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema, parse_schema
from lmerge.wire.token import parse_token

SEEDS = st.integers(0, 2**32)
Rows = dict[RowKey, tuple[int, bool]]


def streams(seed: int, *, closes: bool = True, count: int = 2) -> tuple[list[Event], list[list[Element]]]:
    """Return a TDB with duplicates, and physically different streams of it, as from several servers."""
    random = Random(seed)
    events = reference(random, random.randint(1, 25), duplicates=True)
    return events, [
        present(random, events, replace(MIXED, liveliness="drawn" if closes else "open")) for _ in range(count)
    ]


def batches(random: Random, elements: Sequence[Element]) -> list[Batch]:
    """Return the stream, cut into batches anywhere."""
    cuts = sorted(random.randrange(len(elements) + 1) for _ in range(random.randint(0, 8)))
    bounds = [0, *cuts, len(elements)]
    return [Batch.of(elements[start:end]) for start, end in pairwise(bounds)]


def delivered(envelope: Envelope[Any], random: Random, elements: Sequence[Element]) -> list[Delivery[Any]]:
    return [delivery for batch in batches(random, elements) for delivery in envelope.take(batch)]


def segment(random: Random, elements: Sequence[Element], since: int) -> list[Element]:
    """Return what a server sends to a reader that resumes: a snapshot of a time up to ``since``, then the rest."""
    starts = [at for at, e in enumerate(elements) if isinstance(e, Stable) and e.vc <= since]
    if not starts:
        return list(elements)
    start = random.choice(starts)
    table = Tdb()
    for element in elements[: start + 1]:
        table.apply(element)
    snapshot: list[Element] = [Insert(payload, vs, ve) for vs, payload, ve in table.live_events()]
    return [*snapshot, *elements[start:]]


def upserted(rows: Rows, changes: Sequence[Upsert | Delete]) -> None:
    """Apply changes as a table with a primary key does."""
    for change in changes:
        if isinstance(change, Upsert):
            assert not rows.get(change.key, (0, False))[1], f"{change} of a row that was final"
            rows[change.key] = change.ve, change.is_final
        else:
            assert rows.pop(change.key)[1] is False


def retracted(rows: Counter[Event], changes: Sequence[Retract]) -> None:
    for op, vs, ve, payload, _ in changes:
        rows[Event(vs, payload, ve)] += 1 if op == "+" else -1
        assert rows[Event(vs, payload, ve)] >= 0


def as_events(rows: Rows) -> list[Event]:
    return sorted(Event(key.vs, key.payload, ve) for key, (ve, _) in rows.items())


def as_of(elements: Sequence[Element], stables: int) -> tuple[list[Event], int]:
    """Return the TDB of the stream up to and with its n-th stable."""
    table, seen = Tdb(), 0
    for element in elements:
        if seen == stables:
            break
        table.apply(element)
        seen += isinstance(element, Stable)
    return table.events(), table.stable_point


@settings(deadline=None)
@given(seed=SEEDS)
def test_every_final_event_comes_once_and_in_the_same_order_from_any_server(seed: int) -> None:
    events, (first, second) = streams(seed)
    orders = []
    for stream in (first, second):
        got = delivered(Finals("m"), Random(seed), stream)
        orders.append([change for delivery in got for change in delivery.changes])
        assert all(
            delivery.token == f"m@{'inf' if delivery.stable_point == INF else delivery.stable_point}"
            for delivery in got
        )
    assert (
        orders[0]
        == orders[1]
        == sorted((FinalEvent(vs, ve, payload) for vs, payload, ve in events), key=lambda e: (e.ve, e.vs, e.payload))
    )


@settings(deadline=None)
@given(seed=SEEDS)
def test_no_event_is_final_before_the_stable_point_has_passed_its_end(seed: int) -> None:
    _, (stream,) = streams(seed, closes=False, count=1)
    before = NEG_INF
    for delivery in delivered(Finals("m"), Random(seed), stream):
        assert all(before <= event.ve < delivery.stable_point for event in delivery.changes)
        before = delivery.stable_point


@settings(deadline=None)
@given(seed=SEEDS)
def test_a_reader_of_finals_that_restarts_anywhere_and_at_any_server_loses_and_repeats_nothing(seed: int) -> None:
    events, servers = streams(seed, count=3)
    random = Random(seed)
    stored: list[FinalEvent] = []
    token = "m@-inf"
    for _ in range(random.randint(1, 5)):
        since = parse_token(token, "m")
        stream = segment(random, random.choice(servers), since)
        got = delivered(Finals("m", since=since), random, stream)
        for delivery in got[: random.randint(0, len(got))]:  # then it is killed
            stored += delivery.changes
            token = delivery.token or token
    since = parse_token(token, "m")
    for delivery in delivered(Finals("m", since=since), random, segment(random, random.choice(servers), since)):
        stored += delivery.changes
    assert stored == sorted((FinalEvent(vs, ve, p) for vs, p, ve in events), key=lambda e: (e.ve, e.vs, e.payload))


@settings(deadline=None)
@given(seed=SEEDS)
def test_upserts_and_retracts_give_the_tdb_at_every_stable_point(seed: int) -> None:
    _, (stream,) = streams(seed, count=1)
    rows: Rows = {}
    table: Counter[Event] = Counter()
    stables = 0
    for ups in delivered(Upserts("m"), Random(seed), stream):
        upserted(rows, ups.changes)
        if ups.token is not None:
            stables += 1
            events, stable_point = as_of(stream, stables)
            assert (as_events(rows), ups.stable_point) == (events, stable_point)
            assert all(is_final == (ve < stable_point or stable_point == INF) for ve, is_final in rows.values())
    stables = 0
    for changelog in delivered(Retracts("m"), Random(seed), stream):
        retracted(table, changelog.changes)
        if changelog.token is not None:
            stables += 1
            assert sorted(table.elements()) == as_of(stream, stables)[0]


@settings(deadline=None)
@given(seed=SEEDS)
def test_a_replay_from_any_older_token_leaves_the_same_rows_under_the_same_keys(seed: int) -> None:
    _, (stream, other) = streams(seed)
    random = Random(seed)
    rows: Rows = {}
    first = delivered(Upserts("m"), random, stream)
    for delivery in first:
        upserted(rows, delivery.changes)
    tokens = [delivery.token for delivery in first if delivery.token]
    since = parse_token(random.choice(tokens), "m")
    replayed = dict(rows)
    for delivery in delivered(Upserts("m", since=since), random, segment(random, other, since)):
        for change in delivery.changes:
            if isinstance(change, Upsert):
                replayed[change.key] = change.ve, change.is_final
            else:
                replayed.pop(change.key, None)
    assert replayed == rows


@settings(deadline=None)
@given(seed=SEEDS)
def test_a_reader_that_drops_what_is_not_final_and_comes_back_has_the_tdb_again(seed: int) -> None:
    events, servers = streams(seed, count=3)
    random = Random(seed)
    rows: Rows = {}
    table: Counter[Event] = Counter()
    since = NEG_INF
    for is_last in (*[False] * random.randint(0, 4), True):
        stream = segment(random, random.choice(servers), since)
        keys, log = Upserts("m", since=since), Retracts("m", since=since)
        length = len(stream) if is_last else random.randint(0, len(stream))  # then it is killed
        batch = Batch.of(stream[:length])
        upserts = [delivery for delivery in keys.take(batch) if delivery.token]
        retracts = [delivery for delivery in log.take(batch) if delivery.token]
        for delivery, changelog in zip(upserts, retracts, strict=True):
            upserted(rows, delivery.changes)
            retracted(table, changelog.changes)
            since = delivery.stable_point
        if not is_last:
            rows = {key: value for key, value in rows.items() if value[1]}
            table = Counter({event: n for event, n in table.items() if event.ve < since or since == INF})
    assert as_events(rows) == sorted(table.elements()) == events


def test_keys_count_from_the_event_that_ends_last() -> None:
    envelope = Upserts("m")
    (first,) = envelope.take(Batch.of([Insert(b"A", 1, 5), Insert(b"A", 1, 9), Stable(3)]))
    assert first.changes == [Upsert(RowKey(1, b"A", 0), 9, False), Upsert(RowKey(1, b"A", 1), 5, False)]
    (second,) = envelope.take(Batch.of([Adjust(b"A", 1, 9, 8), Stable(6)]))
    assert second.changes == [Upsert(RowKey(1, b"A", 0), 8, False), Upsert(RowKey(1, b"A", 1), 5, True)]
    resumed = Upserts("m", since=6)
    (third,) = resumed.take(Batch.of([Insert(b"A", 1, 8), Stable(10)]))
    assert third.changes == [Upsert(RowKey(1, b"A", 0), 8, True)]


def test_an_event_that_comes_and_goes_between_two_deliveries_is_no_upsert_but_two_lines_of_a_changelog() -> None:
    batch = Batch.of([Insert(b"A", 1, 5), Adjust(b"A", 1, 5, 7), Adjust(b"A", 1, 7, 1), Stable(2)])
    assert [d.changes for d in Upserts("m").take(batch)] == [[]]
    assert [(c.op, c.ve) for d in Retracts("m").take(batch) for c in d.changes] == [
        ("+", 5),
        ("-", 5),
        ("+", 7),
        ("-", 7),
    ]


def test_a_removed_event_is_a_delete() -> None:
    envelope = Upserts("m")
    envelope.take(Batch.of([Insert(b"A", 1, 5)]))
    assert envelope.take(Batch.of([Adjust(b"A", 1, 5, 1)]))[0].changes == [Delete(RowKey(1, b"A", 0))]


def test_changes_before_a_stable_come_at_once_but_without_a_token() -> None:
    (delivery,) = Upserts("m").take(Batch.of([Insert(b"A", 1, 5)]))
    assert (delivery.token, delivery.changes) == (None, [Upsert(RowKey(1, b"A", 0), 5, False)])
    assert Finals("m").take(Batch.of([Insert(b"A", 1, 5)])) == []


def test_nothing_comes_before_the_token_is_reached_and_then_only_what_ends_there_or_later() -> None:
    envelope = Finals("m", since=10)
    assert envelope.take(Batch.of([Insert(b"old", 1, 9), Insert(b"at", 2, 10), Stable(8)])) == []
    (delivery,) = envelope.take(Batch.of([Insert(b"new", 9, 11), Stable(12)]))
    assert delivery.changes == [FinalEvent(2, 10, b"at"), FinalEvent(9, 11, b"new")]
    assert delivery.token == "m@12"


def test_at_the_end_of_the_stream_what_never_ends_is_final_and_after_it_nothing_is_delivered() -> None:
    stream = Batch.of([Insert(b"A", 1, INF), Insert(b"B", 1, 3), Stable(INF), Stable(INF)])
    assert [d.changes for d in Finals("m").take(stream)] == [[FinalEvent(1, 3, b"B"), FinalEvent(1, INF, b"A")], []]
    changes = [change for delivery in Upserts("m").take(stream) for change in delivery.changes]
    assert [isinstance(change, Upsert) and change.is_final for change in changes] == [True, True]
    for envelope in (Finals, Upserts, Retracts):
        assert [d.changes for d in envelope("m", since=INF).take(stream)] == [[], []]


@pytest.mark.parametrize("kind", [Finals, Upserts, Retracts])
def test_a_gap_is_named_once_with_the_stable_that_passes_into_it(kind: type[Envelope[Any]]) -> None:
    first, second = SubscriptionGap(10, 20), SubscriptionGap(30, 35)
    envelope = kind("m")
    assert [d.gaps for d in envelope.take(Batch.of([Stable(10)]), [first, second])] == [()]  # both were read ahead
    assert [d.gaps for d in envelope.take(Batch.of([Stable(25), Stable(27)]), [first, second])] == [(first,), ()]
    assert [d.gaps for d in envelope.take(Batch.of([Stable(40)]), [first, second])] == [(second,)]
    assert [d.gaps for d in envelope.take(Batch.of([Stable(50)]), [first, second])] == [()]


@pytest.mark.parametrize("kind", [Finals, Upserts, Retracts])
def test_a_token_that_is_too_old_is_a_gap_from_it_on(kind: type[Envelope[Any]]) -> None:
    gap = SubscriptionGap(10, 20)
    (delivery,) = kind("m", since=10).take(Batch.of([Insert(b"A", 1, 25), Stable(20)]), [gap])
    assert delivery.gaps == (gap,)


@pytest.mark.parametrize("kind", [Finals, Upserts, Retracts])
def test_rows_are_decoded_by_the_schema_once_it_is_there(kind: type[Envelope[Any]]) -> None:
    schema: list[Schema | None] = [None]
    envelope = kind("m", decode=RowReader(lambda: schema[0]))
    codec = RowCodec({"carrier": "string"})
    payload = codec.encode({"carrier": "UA"})
    assert envelope.take(Batch.of([Insert(payload, 1, 2), Stable(3)]))[0].changes[-1].row is None
    schema[0] = parse_schema({"carrier": "string"})
    assert envelope.take(Batch.of([Insert(payload, 3, 4), Stable(5)]))[0].changes[-1].row == {"carrier": "UA"}
    with pytest.raises(InvalidRow, match="MessagePack"):
        envelope.take(Batch.of([Insert(b"\xc1", 5, 6), Stable(7)]))


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_how_the_stream_is_cut_into_batches_changes_no_final_event(seed: int) -> None:
    _, (stream,) = streams(seed, count=1)
    assert delivered(Finals("m"), Random(seed), stream) == delivered(Finals("m"), Random(seed + 1), stream)
