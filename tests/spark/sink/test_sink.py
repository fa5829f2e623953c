"""The sink by itself: its options, plain elements, and the errors for a user's mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client_world import ThreadedWorld, threaded_world
from spark_world import (
    MERGE,
    FileFeed,
    S,
    publish_counts,
    publish_flights,
    recorded,
    run_to_end,
    secure,
    table,
    unreachable_server,
)

import lmerge.spark
from lmerge import Security, clock
from lmerge.core.elements import INF, Adjust, Insert, Stable
from lmerge.errors import UsageError
from lmerge.spark import Payload, Running
from lmerge.spark.options import duration_us, moment_us, sink_options
from lmerge.spark.publishing import security_options
from lmerge.spark.sink import agent
from lmerge.spark.sink.committer import seed_of
from lmerge.spark.sink.watermark import batch_watermark_us, query_id
from lmerge.spark.spool.spool import Spool

HOUR = 1_700_002_800 * S
SCHEMA = "ts long, name string, n long"
GIVEN = {"servers": "h1:1,h2:2", "merge": "m", "replica": "a", "checkpointLocation": "/c"}


# Options.


def test_options_are_one_however_they_are_written() -> None:
    for name in ("tokenFile", "token_file", "tokenfile", "TOKEN_FILE"):
        options = sink_options({**GIVEN, name: "/t", "insecure": "true"})
        assert options.security is not None
        assert options.security.token_file == "/t"
    assert options.servers == ("h1:1", "h2:2")
    assert options.spool == "/c/lmerge"
    assert sink_options({**GIVEN, "spool": "s3://b/x"}).spool == "s3://b/x"
    assert sink_options({**GIVEN, "giveUpAfter": "2 minutes"}).give_up_after_s == 120
    assert sink_options({**GIVEN, "join_at": "1970-01-01T00:00:01Z"}).join_at == S


def test_security_is_the_same_behind_options() -> None:
    security = Security(ca="/ca", tls=True, server_name="m", server_names={"h1:1": "one", "h2:2": "two"})
    options = sink_options({**GIVEN, **{name: str(value) for name, value in security_options(security).items()}})
    assert options.security == security


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"server_names": "h1:1=one"}, "option server_names cannot be read as JSON"),
        ({"server_names": '{"h1:1": 1}'}, "it gives a name for each HOST:PORT"),
        ({"servers": ""}, "option servers is missing"),
        ({"servers": "a,a"}, "option servers: a server stands twice"),
        ({"merge": " "}, "option merge is missing"),
        ({"replica": ""}, "option replica is missing"),
        ({"checkpointLocation": ""}, 'set .option("checkpointLocation"'),
        ({"mode": "complete"}, "option mode is 'complete'; it is append or update"),
        ({"mode": "append"}, "lmerge.spark.publish() prepares"),
        ({"properties": "shiny"}, "option properties: .*shiny"),
        ({"late": "never"}, "option late is 'never'"),
        ({"give_up_after": "soon"}, "option give_up_after: 'soon' is not a duration"),
        ({"join_at": "yesterday"}, "option join_at: 'yesterday'"),
        ({"join_at": "2024-01-01T00:00:00"}, "option join_at: .*no time zone"),
        ({"tls": "perhaps"}, "option tls is 'perhaps'"),
        ({"cert": "/c.pem"}, "options ca, cert, key, token_file: cert and key go together"),
        ({"replcia": "b"}, "unknown option 'replcia'; did you mean replica?"),
        ({"token": "lmt_secret"}, "option token would be readable for all in Spark's UI"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")) as caught:
        sink_options({**GIVEN, **given})
    assert "lmt_secret" not in str(caught.value)


def test_a_token_of_the_environment_is_used_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMERGE_TOKEN", "lmt_secret")
    options = sink_options(GIVEN)
    assert options.security is not None
    assert options.security.token == "lmt_secret"
    assert "lmt_secret" not in repr(options)


def test_durations_and_moments() -> None:
    assert duration_us("10 seconds") == duration_us("10000 ms") == duration_us("interval 10 second") == 10 * S
    assert duration_us("1 hour 30 minutes") == 5400 * S
    assert moment_us("1970-01-02T00:00:00+00:00") == 86_400 * S
    for wrong in ("", "10", "ten seconds", "10 fortnights"):
        with pytest.raises(UsageError, match="not a duration"):
            duration_us(wrong)


# The watermark of a batch.


def test_the_watermark_is_that_of_the_batch_itself(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"q-1"}')
    for batch, watermark_ms in enumerate((0, 90_000)):
        metadata = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": 5, "conf": {}}
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{json.dumps(metadata)}\n{{}}")
    for checkpoint in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}/"):
        assert batch_watermark_us(checkpoint, 0) is None
        assert batch_watermark_us(checkpoint, 1) == 90 * S
        assert query_id(checkpoint) == "q-1"
    with pytest.raises(UsageError, match=r"offsets/2.*own files, any other needs a URI"):
        batch_watermark_us(str(tmp_path), 2)
    (tmp_path / "offsets" / "2").write_text("v1")
    with pytest.raises(UsageError, match="not what Spark writes"):
        batch_watermark_us(str(tmp_path), 2)


# The seed of a restarted publisher.


def test_a_replica_that_was_ahead_of_the_merge_joins_where_the_merge_is() -> None:
    from lmerge.core.batch import Batch

    live = Batch.of([Insert(b"x", 1, 5), Insert(b"y", 2, INF), Stable(9)])
    seed, rest = seed_of(live, 4)
    assert seed is not None
    assert rest is not None
    assert list(seed.elements()) == [Insert(b"x", 1, 5), Insert(b"y", 2, INF), Stable(4)]
    assert list(rest.elements()) == [Stable(9)]
    assert seed_of(None, 4) == (None, None)


# Plain elements.


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world(policy="eager") as world:
        yield world


def test_a_dataframe_of_elements_is_published_unchanged(spark: Any, tmp_path: Path, world: ThreadedWorld) -> None:
    lmerge.spark.register(spark)
    feed = FileFeed(tmp_path / "feed", "kind string, payload string, vs long, ve long, vold long")
    feed.put(
        {"kind": "insert", "payload": "x", "vs": 1, "ve": 5},
        {"kind": "insert", "payload": "y", "vs": 2},
        {"kind": "stable", "vs": 1},
    )
    feed.put(
        {"kind": "adjust", "payload": "x", "vs": 1, "vold": 5, "ve": 9},
        {"kind": "stable", "vs": 6},
        {"kind": "stable", "vs": 4},
    )
    writer = (
        feed.stream(spark)
        .coalesce(1)
        .writeStream.format("lmerge")
        .options(servers=world.target, merge=MERGE, replica="a")
    )
    with recorded(world.target) as recorder:
        run_to_end(writer, tmp_path / "checkpoint")
        elements = recorder.until_stable(6)
    assert elements == [Insert(b"x", 1, 5), Insert(b"y", 2, INF), Stable(1), Adjust(b"x", 1, 5, 9), Stable(6)]


# Bad input: each ends the query with a message that names what to do.


def ends_with(writer: Any, checkpoint: Path, *parts: str) -> str:
    """Run the query to its error, check the message, and return it."""
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as caught:
        run_to_end(writer, checkpoint)
    text = str(caught.value)
    for part in parts:
        assert part in text
    return text


def spool_of(checkpoint: Path) -> Spool:
    return Spool(f"{checkpoint}/lmerge")


def rows(batch: int, count: int = 3) -> list[dict[str, Any]]:
    return [{"ts": HOUR + (100 * batch + i) * S, "name": f"n{i}", "n": i} for i in range(count)]


@pytest.fixture
def feed(tmp_path: Path) -> FileFeed:
    feed = FileFeed(tmp_path / "feed", SCHEMA)
    for batch in range(3):
        feed.put(*rows(batch))
    return feed


def test_a_token_that_does_not_allow_it_ends_the_query(spark: Any, tmp_path: Path, feed: FileFeed) -> None:
    with secure(tmp_path) as world:
        path = tmp_path / "a.token"
        path.write_text(world.token("other", ["publish"], ["elsewhere"]))
        given = {"security": Security(ca=world.authority.path, token_file=str(path))}
        text = ends_with(publish_flights(spark, feed, world.target, **given), tmp_path / "c", "PermissionDenied", MERGE)
        assert path.read_text() not in text
        path.write_text("lmt_00000000_" + "a" * 64)
        ends_with(publish_flights(spark, feed, world.target, **given), tmp_path / "d", "Unauthenticated")
        path.write_text(world.token("a", ["publish"]))
        run_to_end(publish_flights(spark, feed, world.target, **given), tmp_path / "e")


def test_a_merge_that_the_server_does_not_make_ends_the_query(spark: Any, tmp_path: Path, feed: FileFeed) -> None:
    with threaded_world(allow_create=False) as world:
        ends_with(publish_flights(spark, feed, world.target, merge="fligths"), tmp_path / "c", "fligths", "batch 0")


def test_a_schema_that_changes_between_restarts_ends_the_query(
    spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld
) -> None:
    run_to_end(publish_flights(spark, feed, world.target), tmp_path / "c")
    feed.put(*rows(3))
    changed = publish_flights(spark, feed, world.target, payload=Payload(["name"]))
    ends_with(changed, tmp_path / "c", "schema", "another checkpoint")
    run_to_end(publish_flights(spark, feed, world.target), tmp_path / "c")


def test_a_checkpoint_that_was_deleted_begins_anew_and_publishes_nothing_twice(
    spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld
) -> None:
    feed.put(*rows(36))
    feed.put(*rows(37))
    final = HOUR + 3500 * S
    with recorded(world.target) as recorder:
        run_to_end(publish_flights(spark, feed, world.target), tmp_path / "c")
        before = [event for event in table(recorder.until_stable(final)) if event.ve < final]
        assert len(before) == 9
        run_to_end(publish_flights(spark, feed, world.target), tmp_path / "d")
        feed.put(*rows(38))
        run_to_end(publish_flights(spark, feed, world.target), tmp_path / "d")
        elements = recorder.until_stable(HOUR + 3600 * S)
        assert [event for event in table(elements) if event.ve < final] == before


def test_a_spool_of_another_query_is_refused(spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld) -> None:
    given = {"running": Running(spool=str(tmp_path / "spool"))}
    run_to_end(publish_flights(spark, feed, world.target, **given), tmp_path / "c")
    ends_with(publish_flights(spark, feed, world.target, **given), tmp_path / "d", "holds a stream whose query")


def test_of_two_live_queries_with_one_name_the_older_ends(
    spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld
) -> None:
    first = publish_flights(spark, feed, world.target).option("checkpointLocation", str(tmp_path / "c")).start()
    first.processAllAvailable()
    second = publish_flights(spark, feed, world.target).option("checkpointLocation", str(tmp_path / "d")).start()
    second.processAllAvailable()
    feed.put(*rows(3))
    with pytest.raises(Exception, match="incarnation"):
        first.awaitTermination(60)
    second.processAllAvailable()
    assert second.isActive
    second.stop()


def test_a_payload_that_is_too_large_ends_the_query(spark: Any, tmp_path: Path, world: ThreadedWorld) -> None:
    feed = FileFeed(tmp_path / "feed", SCHEMA)
    feed.put({"ts": HOUR, "name": "x" * 2_000_000, "n": 1})
    ends_with(publish_flights(spark, feed, world.target), tmp_path / "c", "LimitExceeded", "batch 0", "payload")


def test_a_query_may_give_up_on_servers_that_are_not_there(spark: Any, tmp_path: Path, feed: FileFeed) -> None:
    given = {"running": Running(give_up_after="1 second")}
    target = unreachable_server()
    ends_with(publish_flights(spark, feed, target, **given), tmp_path / "c", "ServerGone", target)


def test_a_clock_that_went_back_does_not_keep_a_restart_out(
    spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld
) -> None:
    """The spool has the incarnation of the life before. A restart has a newer one, whatever its clock shows."""
    run_to_end(publish_flights(spark, feed, world.target), tmp_path / "c")
    spool = spool_of(tmp_path / "c")
    last = spool.record.newest
    assert last is not None
    ahead = clock.wall_us() + 3_600 * S
    meta = {**last.meta, "incarnation": str(ahead)}
    spool.commit(last.batch, last.parts, last.stable, meta)
    before = lmerge.Publisher(world.target, MERGE, "a", origin=lmerge.Origin(incarnation=ahead)).open()
    feed.put(*rows(3))
    run_to_end(publish_flights(spark, feed, world.target), tmp_path / "c")
    before.abort()
    after = spool_of(tmp_path / "c").record.newest
    assert after is not None
    assert int(after.meta["incarnation"]) > ahead


def test_the_location_of_the_checkpoint_must_be_set_on_the_query(spark: Any, feed: FileFeed, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "all"))
    try:
        with pytest.raises(Exception, match="checkpointLocation"):
            publish_flights(spark, feed, unreachable_server()).trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


# The agent.


def test_a_query_that_is_stopped_leaves_the_merge(
    spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld
) -> None:
    from lmerge.client import describe_merge

    query = publish_counts(spark, feed, world.target).option("checkpointLocation", str(tmp_path / "c")).start()
    query.processAllAvailable()
    assert [one.replica for one in describe_merge(world.target, MERGE).inputs] == ["a"]
    query.stop()
    pause = threading.Event()
    for _ in range(1000):
        if not describe_merge(world.target, MERGE).inputs:
            return
        pause.wait(0.02)
    raise AssertionError("the input is attached still")


def test_an_agent_ends_with_its_owner(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    path = tmp_path / "socket"
    process = subprocess.Popen(
        [sys.executable, "-m", "lmerge.spark.sink.agent", str(path), str(owner.pid)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == b"+"
    owner.kill()
    owner.communicate()
    assert process.wait(30) == 0
    process.stdout.close()
    assert not path.exists()


def test_sockets_are_in_a_folder_that_only_the_user_can_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder = agent.runtime_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    os.chmod(folder, 0o755)
    with pytest.raises(UsageError, match="only this user"):
        agent.runtime_folder()
    os.chmod(folder, 0o700)
