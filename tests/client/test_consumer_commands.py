"""The commands for consumers as real processes against a real server: envelopes, query, sinks that are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from socket import socket
from typing import Any

import duckdb
import psycopg
import pytest
from client_world import MERGE, ThreadedWorld, threaded_world
from postgres_world import Postgres, required_programs
from scripted import Scripted

from lmerge import Origin, Publisher, Subscriber
from lmerge.client import describe_merge
from lmerge.client.sinks.parquet import ParquetSink, pieces
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Element, Event, Insert, Stable
from lmerge.errors import UsageError
from lmerge.testing.streams.merge_inputs import MIXED, present, reference

LMERGE = [sys.executable, "-m", "lmerge"]
SCHEMA = {"carrier": "string", "delay": "int?"}


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world() as world:
        yield world


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres(required_programs()) as server:
        yield server


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*LMERGE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "120"},
    )


def run(*arguments: str) -> tuple[int, str, str]:
    process = start(*arguments)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, "\n".join(line for line in err.splitlines() if line[:2] not in ("I0", "E0", "W0"))


def subscribed(world: ThreadedWorld) -> None:
    """Return once a command has subscribed."""
    while not describe_merge(world.target, MERGE).subscribers:
        pass


def flown(publisher: Publisher) -> None:
    publisher.insert({"carrier": "UA", "delay": 5}, 1, 20)
    publisher.insert({"carrier": "DL", "delay": None}, 2, 9)
    publisher.stable(10)
    publisher.flush()


@pytest.mark.parametrize(
    ("envelope", "expected"),
    [
        (
            "final",
            [
                {"op": "final", "vs": 2, "ve": 9, "row": {"carrier": "DL", "delay": None}},
                {"op": "token", "token": "flights@10"},
                {"op": "final", "vs": 1, "ve": 20, "row": {"carrier": "UA", "delay": 5}},
            ],
        ),
        (
            "upsert",
            [
                {
                    "op": "upsert",
                    "vs": 2,
                    "ve": 9,
                    "ordinal": 0,
                    "final": True,
                    "row": {"carrier": "DL", "delay": None},
                },
                {"op": "token", "token": "flights@10"},
                {"op": "upsert", "vs": 1, "ve": 20, "ordinal": 0, "final": True, "row": {"carrier": "UA", "delay": 5}},
            ],
        ),
        (
            "retract",
            [
                {"op": "+", "vs": 1, "ve": 20, "row": {"carrier": "UA", "delay": 5}},
                {"op": "+", "vs": 2, "ve": 9, "row": {"carrier": "DL", "delay": None}},
                {"op": "token", "token": "flights@10"},
            ],
        ),
    ],
)
def test_subscribe_prints_each_envelope(world: ThreadedWorld, envelope: str, expected: list[dict[str, Any]]) -> None:
    process = start("subscribe", MERGE, "--server", world.target, "--envelope", envelope)
    assert process.stdout is not None
    subscribed(world)
    with Publisher(world.target, MERGE, "a", schema=SCHEMA) as publisher:
        flown(publisher)
        lines = [json.loads(process.stdout.readline())]
        while lines[-1] != {"op": "token", "token": "flights@10"}:
            lines.append(json.loads(process.stdout.readline()))
        publisher.stable(INF)
    out, err = process.communicate(timeout=60)
    lines += [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 0, err
    assert [line for line in expected if line not in lines] == []
    assert lines[-1] == {"op": "token", "token": "flights@inf"}


def test_subscribe_prints_columns_for_people(world: ThreadedWorld) -> None:
    with Publisher(world.target, MERGE, "a", schema=SCHEMA) as publisher:
        flown(publisher)
        code, out, err = run(
            "subscribe", MERGE, "--server", world.target, "--envelope", "upsert", "--output", "table", "--count", "2"
        )
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["upsert", "1", "20", "carrier=UA", "delay=5"]


def test_query_answers_as_of_the_stable_point(world: ThreadedWorld) -> None:
    ask = ("query", MERGE, "select carrier, delay from flights order by 1", "--server", world.target)
    with Publisher(world.target, MERGE, "a", schema=SCHEMA) as publisher:
        assert run(*ask, "--timeout", "0.1")[0] == 1  # there is no stable point
        flown(publisher)
        assert run(*ask, "--output", "json")[:2] == (0, '{"carrier":"UA","delay":5}\n')
        code, out, _ = run(*ask)
        assert code == 0
        assert "1 rows as of 10" in out


@pytest.mark.parametrize("dead", [0, 1])
def test_one_of_the_servers_of_a_consumer_may_be_dead(world: ThreadedWorld, tmp_path: Path, dead: int) -> None:
    with socket() as taken, Publisher(world.target, MERGE, "a", schema=SCHEMA) as publisher:
        taken.bind(("127.0.0.1", 0))  # nothing listens there
        targets = [world.target, f"127.0.0.1:{taken.getsockname()[1]}"]
        servers = ("--server", ",".join(targets[::-1] if dead == 0 else targets))
        flown(publisher)
        ask = ("query", MERGE, "select carrier, delay from flights", *servers, "--output", "json", "--timeout", "30")
        assert run(*ask)[:2] == (0, '{"carrier":"UA","delay":5}\n')
        assert run("checkpoint", MERGE, *servers)[1].splitlines()[-1] == '{"op":"stable","vc":10}'
        publisher.stable(INF)
        publisher.flush()
        code, _, err = run("sink", "parquet", MERGE, str(tmp_path / "files"), *servers, "--from-start")
        assert (code, "2 written" in err) == (0, True), err
        code, _, err = run(
            "relay", "--from", servers[1], "--merge", MERGE, "--to", servers[1], "--as", "east", "--to-merge", "top"
        )
        assert code == 0, err
    assert describe_merge(world.target, "top").summary.stable_point == INF


def published(seed: int, count: int) -> tuple[list[Event], list[Batch]]:
    random = Random(seed)
    events = reference(random, count, duplicates=True)
    elements = present(random, events, replace(MIXED, liveliness="open"))
    return events, [Batch.of(elements[at : at + 20]) for at in range(0, len(elements), 20)]


def killed_often(world: ThreadedWorld, seed: int, command: list[str]) -> list[Event]:
    """Publish while the sink is killed and started again; then close the stream. Returns the TDB."""
    random = Random(seed)
    events, batches = published(seed, 400)
    kills = sorted(random.sample(range(len(batches)), 3))
    sink = start(*command)
    with Publisher(world.target, MERGE, "a") as publisher:
        for number, batch in enumerate(batches):
            publisher.publish(batch)
            publisher.flush()
            with suppress(subprocess.TimeoutExpired):
                sink.wait(0.01)
            if number in kills:
                with suppress(subprocess.TimeoutExpired):
                    sink.wait(random.random() * 2)
                sink.kill()
                sink.communicate()
                sink = start(*command)
        publisher.stable(INF)
    _, err = sink.communicate(timeout=60)
    assert sink.returncode == 0, err
    assert f"complete: {MERGE}@inf" in err
    return events


def test_a_postgres_sink_that_is_killed_while_a_real_merge_runs_loses_and_repeats_nothing(
    world: ThreadedWorld, postgres: Postgres
) -> None:
    dsn = postgres.database("killed")
    events = killed_often(
        world, 5, ["sink", "postgres", MERGE, "--server", world.target, "--dsn", dsn, "--table", "t", "--from-start"]
    )
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT vs, payload, ve, is_final FROM t").fetchall()
    assert sorted(Event(vs, payload, ve) for vs, payload, ve, _ in rows) == events
    assert all(is_final for *_, is_final in rows)


def test_a_parquet_sink_that_is_killed_while_a_real_merge_runs_loses_and_repeats_nothing(
    world: ThreadedWorld, tmp_path: Path
) -> None:
    events = killed_often(
        world,
        6,
        ["sink", "parquet", MERGE, str(tmp_path), "--server", world.target, "--file-events", "40", "--from-start"],
    )
    rows = duckdb.sql(f"select vs, payload, ve from '{tmp_path}/*.parquet'").fetchall()
    assert sorted(Event(*row) for row in rows) == events


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_completes_the_file_and_the_next_start_goes_on_behind_it(
    world: ThreadedWorld, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = ["sink", "parquet", MERGE, str(tmp_path), "--server", world.target, "--roll-interval", "100"]
    with Publisher(world.target, MERGE, "a") as publisher:
        sink = start(*command)
        subscribed(world)
        publisher.publish(Batch.of([Insert(b"A", 1, 3), Insert(b"B", 2, 150), Stable(120), Insert(b"C", 130, 160)]))
        publisher.publish(Batch.of([Stable(151)]))
        while not pieces(tmp_path, MERGE):  # the first is complete at 120, in another hundred than A
            assert sink.poll() is None, sink.communicate()[1]
        publisher.publish(Batch.of([Stable(170)]))
        publisher.flush()
        with suppress(subprocess.TimeoutExpired):
            sink.wait(1)
        sink.send_signal(number)
        _, err = sink.communicate(timeout=30)
        assert (sink.returncode, "stopped: flights@170: 3 written" in err) == (code, True), err
        publisher.stable(INF)
    assert run(*command)[0] == 0
    assert [piece.end for piece in pieces(tmp_path, MERGE)] == [120, 170]


def test_a_server_that_has_forgotten_is_an_error_unless_gaps_are_allowed(world: ThreadedWorld, tmp_path: Path) -> None:
    command = ["sink", "parquet", MERGE, str(tmp_path), "--server", world.target]
    before: list[Element] = [Insert(b"A", 1, 3), Stable(5)]
    asyncio.run(ParquetSink(tmp_path, MERGE).run(lambda token: Scripted(before)))
    with Publisher(world.target, MERGE, "b", origin=Origin(join_at=1000)) as publisher:
        publisher.publish(Batch.of([Insert(b"Z", 1001, 1002), Stable(1010)]))
        publisher.flush()
        code, _, err = run(*command)
        assert (code, "cannot resume" in err) == (2, True), err
        publisher.stable(INF)
    code, _, err = run(*command, "--if-too-old", "snapshot")
    assert (code, "gap: events frozen from" in err) == (0, True), err


def test_envelopes_are_methods_of_the_subscriber(world: ThreadedWorld) -> None:
    with Publisher(world.target, MERGE, "a") as publisher:
        publisher.publish(Batch.of([Insert(b"A", 1, 3), Insert(b"B", 2, 9), Stable(5)]))
        publisher.flush()
        token = "flights@-inf"
        with Subscriber(world.target, MERGE, resume=token) as subscriber:
            delivery = next(iter(delivery for delivery in subscriber.final() if delivery.changes))
        assert [(event.payload, delivery.token) for event in delivery.changes] == [(b"A", "flights@5")]
        publisher.stable(INF)
    with Subscriber(world.target, MERGE, resume=delivery.token) as subscriber:
        assert [event.payload for rest in subscriber.final() for event in rest.changes] == [b"B"]
    with Subscriber(world.target, MERGE) as subscriber:
        checkpoint = subscriber.checkpoint()
    with pytest.raises(UsageError, match="cannot go on from a checkpoint"):
        Subscriber(world.target, MERGE, resume=checkpoint).final()
