"""The rig of the benchmarks: replicas publish the reference, the judge finds errors, links break, stalls count."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from multiprocessing.connection import Connection
from random import Random

import pytest

from bench.rig import links
from bench.rig.judge import StreamJudge
from bench.rig.replica import batch_of
from bench.rig.shaped import InsertFlow, departures
from bench.rig.stalls import CONTROL, InjectedFault, percentile, stall_ms, stalls_of
from bench.rig.stream import WINDOW, Presentation, ReferenceStream
from lmerge.core.batch import Row
from lmerge.core.elements import ADJUST, INF, INSERT, STABLE, Event
from lmerge.core.merge import Merge
from lmerge.core.tdb import Tdb

REFERENCE = ReferenceStream(events_per_s=1_000, life_max=400)
COUNT = 1_500


def whole(salt: int, count: int = COUNT, step: int = 7) -> list[Row]:
    """A replica's whole stream, taken in small steps."""
    stream = Presentation(REFERENCE, salt)
    rows = [row for due in range(step, count + step, step) for row in stream.rows_to(min(due, count))]
    return [*rows, *stream.rest()]


def expected(count: int = COUNT) -> list[Event]:
    return [Event(vs, payload, ve) for at in range(count) for vs, ve, payload in [REFERENCE.event(at)]]


@pytest.mark.parametrize("salt", range(4))
def test_every_replica_publishes_the_reference_legally(salt: int) -> None:
    tdb = Tdb()
    for row in whole(salt):
        tdb.apply_row(row)
    assert tdb.stable_point == INF
    assert tdb.events() == expected()


def test_replicas_publish_it_in_different_forms() -> None:
    forms = [whole(salt) for salt in range(3)]
    assert forms[0] != forms[1] != forms[2] != forms[0]
    rows = forms[0]
    assert 0.15 < sum(kind == ADJUST for kind, *_ in rows) / COUNT < 0.3
    starts = [vs for kind, vs, *_ in rows if kind == INSERT]
    assert 0.1 < sum(a > b for a, b in pairwise(starts)) / COUNT < 0.25, "a fifth comes late"
    assert sum(kind == STABLE for kind, *_ in rows) > COUNT / 50


@pytest.mark.parametrize("first", [1, WINDOW, 700])
def test_a_replica_that_joins_is_right_from_its_join_at_on(first: int) -> None:
    stream = Presentation(REFERENCE, 9, first=first)
    tdb = Tdb()
    for due in range(first, COUNT, 13):
        tdb.apply_batch(batch_of(stream.rows_to(due)))
    tdb.apply_batch(batch_of([*stream.rows_to(COUNT), *stream.rest()]))
    right = [event for event in expected() if event.ve >= stream.join_at]
    assert [event for event in tdb.events() if event.ve >= stream.join_at] == right


def test_a_merge_goes_on_with_a_replica_that_joined_while_the_other_died() -> None:
    merge, judge = Merge(), StreamJudge(REFERENCE)
    merge.attach("a", ("key",))
    first, second = Presentation(REFERENCE, 1), Presentation(REFERENCE, 2, first=800)
    judge.take(merge.apply("a", batch_of(first.rows_to(800))).batch, 0.0)
    merge.attach("b", ("key",), join_at=second.join_at)
    judge.take(merge.apply("b", batch_of(second.rows_to(800))).batch, 0.0)
    judge.take(merge.apply("a", batch_of(first.rows_to(900))).batch, 0.0)
    judge.take(merge.detach("a").batch, 0.0)
    judge.take(merge.apply("b", batch_of([*second.rows_to(COUNT), *second.rest()])).batch, 0.0)
    assert judge.verdict(COUNT).is_good, judge.verdict(COUNT).summary()


def judged(rows: list[Row]) -> StreamJudge:
    judge = StreamJudge(REFERENCE)
    for row in rows:
        judge.take(batch_of([row]), 0.0)
    return judge


def test_the_judge_is_content_with_the_reference() -> None:
    verdict = judged(whole(1)).verdict(COUNT)
    assert verdict.is_good, verdict.summary()
    assert verdict.frozen == COUNT


def event_rows(at: int) -> list[Row]:
    vs, ve, payload = REFERENCE.event(at)
    return [(INSERT, vs, ve, 0, payload)]


END: list[Row] = [(STABLE, INF, 0, 0, b"")]


def test_the_judge_finds_what_is_lost() -> None:
    verdict = judged([*event_rows(0), *event_rows(2), *END]).verdict(3)
    assert (verdict.lost, verdict.duplicates, verdict.is_good) == (1, 0, False)
    assert "event 1" in verdict.summary()


def test_the_judge_finds_what_comes_twice() -> None:
    verdict = judged([*event_rows(0), *event_rows(0), *END]).verdict(1)
    assert (verdict.lost, verdict.duplicates, verdict.is_good) == (0, 1, False)


def test_the_judge_finds_a_wrong_end_and_a_stranger() -> None:
    vs, ve, payload = REFERENCE.event(0)
    verdict = judged([(INSERT, vs, ve + 1, 0, payload), (INSERT, 1, 9, 0, b"who"), *END]).verdict(1)
    assert (verdict.wrong_end, verdict.unexpected, verdict.is_good) == (1, 1, False)


def test_the_judge_finds_a_contradiction() -> None:
    vs, ve, payload = REFERENCE.event(0)
    late: Row = (INSERT, vs, ve, 0, payload)
    verdict = judged([*event_rows(0), (STABLE, vs + 1, 0, 0, b""), late, *END]).verdict(1)
    assert (verdict.contradictions, verdict.is_good) == (1, False)


def test_the_judge_finds_an_event_that_is_not_due_yet() -> None:
    verdict = judged([*event_rows(0), *event_rows(1), *END]).verdict(1)
    assert (verdict.unexpected, verdict.is_good) == (1, False)


# Stalls.


def test_a_stall_is_the_longest_time_without_output_that_begins_in_the_window() -> None:
    arrivals = [0.0, 0.1, 0.2, 0.9, 1.0, 1.1, 3.0]
    assert stall_ms(arrivals, 0.15, 0.5) == pytest.approx(700)
    assert stall_ms(arrivals, 0.25, 0.5) == pytest.approx(650), "what comes after the fault"
    assert stall_ms(arrivals, 0.95, 1.05) == pytest.approx(100)
    assert stall_ms(arrivals, 0.95, 2.0) == pytest.approx(1900)
    assert stall_ms(arrivals, 3.5, 4.0) == 0.0


def test_a_stall_belongs_to_one_fault() -> None:
    arrivals = [at / 100 for at in range(100)] + [1.5 + at / 100 for at in range(100)]
    faults = [
        InjectedFault("killed", "a", 0.5),
        InjectedFault(CONTROL, "", 0.8),
        InjectedFault("killed", "b", 0.985),
        InjectedFault(CONTROL, "", 1.4),
    ]
    expected = {"killed": [pytest.approx(10), pytest.approx(510)], CONTROL: [pytest.approx(10), pytest.approx(100)]}
    assert stalls_of(arrivals, faults) == expected


def test_percentiles_are_of_the_values_themselves() -> None:
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile(list(range(100)), 0.99) == 99
    assert percentile([1.0], 0.99) == 1.0


# Streams that are delayed.


def test_a_delayed_element_holds_those_behind_it() -> None:
    rows = whole(1)[:200]
    left = departures(rows, lambda now: 0.010 if now == pytest.approx(0.001) else 0.0)
    assert left[4] == pytest.approx(4 / 5000)
    assert left[5] == pytest.approx(0.011)
    assert left[6] == left[5], "what was due meanwhile leaves in one go"
    assert left[-1] == pytest.approx(199 / 5000), "and then it is on time again"


def test_an_even_flow_does_not_vary() -> None:
    even = InsertFlow([at / 100 for at in range(1000)], [7] * 1000)
    uneven = InsertFlow([at / 100 for at in range(1000)], [14 if at // 10 % 2 else 0 for at in range(1000)])
    assert even.variation(0.1, 9.0) == pytest.approx(0, abs=0.2)
    assert uneven.variation(0.1, 9.0) > 0.8
    assert uneven.pauses_ms(9.0)[-1] == pytest.approx(110)


# Links.


@contextmanager
def linked() -> Iterator[tuple[Connection, socket.socket, int]]:
    """A process of links, a listening server, and the port of a link to it."""
    server = socket.create_server(("127.0.0.1", 0))
    mine, its = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=links.run, args=("127.0.0.1", its), daemon=True)
    process.start()
    its.close()
    try:
        mine.send(("open", "a>s", server.getsockname()[1]))
        yield mine, server, mine.recv()
    finally:
        mine.close()
        process.join(10)
        process.kill()
        server.close()


def test_a_link_carries_cuts_and_leads_elsewhere() -> None:
    data = Random(1).randbytes(1_000_000)
    with linked() as (pipe, server, port):
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        client.sendall(data[:1000])
        assert accepted.recv(1000, socket.MSG_WAITALL) == data[:1000]
        accepted.sendall(b"back")
        assert client.recv(4, socket.MSG_WAITALL) == b"back"
        pipe.send(("cut", "a>s"))
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        with pytest.raises(ConnectionResetError):
            accepted.recv(1)
        with socket.create_server(("127.0.0.1", 0)) as other:
            pipe.send(("lead", "a>s", other.getsockname()[1]))
            again = socket.create_connection(("127.0.0.1", port))
            there, _ = other.accept()
            again.sendall(b"x")
            assert there.recv(1) == b"x"
            for end in (client, accepted, again, there):
                end.close()


def test_a_stalled_link_loses_nothing_and_goes_on_by_itself() -> None:
    data = Random(2).randbytes(8_000_000)
    with linked() as (pipe, server, port):
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        pipe.send(("stall", "a>s", links.UP, 0.2))
        pipe.send(("open", "marker", 1))  # answered after the stall has begun
        pipe.recv()
        began = time.monotonic()
        client.setblocking(False)
        sent, got = 0, bytearray()
        accepted.settimeout(10)
        accepted.sendall(b"down is free")
        while len(got) < len(data):
            with suppress(BlockingIOError):
                while sent < len(data):
                    sent += client.send(data[sent : sent + 1_000_000])
            got += accepted.recv(1_000_000)
        assert got == data
        assert time.monotonic() - began >= 0.15
        client.setblocking(True)
        assert client.recv(12, socket.MSG_WAITALL) == b"down is free"
        client.close()
        accepted.close()


def test_a_link_to_a_server_that_is_down_is_refused() -> None:
    with linked() as (pipe, server, port):
        gone = socket.create_server(("127.0.0.1", 0))
        pipe.send(("lead", "a>s", gone.getsockname()[1]))
        gone.close()
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(10)
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        assert server.getsockname()
