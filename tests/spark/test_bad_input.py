"""Errors around a query that publishes: a clear message in its exception, nothing lost, nothing twice.

Tested by mode where that makes a difference: ``append`` is written by the sink, ``update`` by ``foreachBatch``.
``test_sink`` tests the messages of each option and each single mistake.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client_world import ThreadedWorld, threaded_world
from driver_world import FINAL, HOUR, REFERENCES, SCHEMA, batches, feed_of, final, started, stop_at, wait_for
from hooks import hook
from spark_world import MERGE, PLANS, FileFeed, S, recorded, run_to_end, secure, table
from spool_world import APPENDS, META, attempt_at

import lmerge
from lmerge import clock
from lmerge.errors import UsageError
from lmerge.spark import Running
from lmerge.spark.spool.spool import Spool

both = pytest.mark.parametrize("plan", ["append", "update"])


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world() as world:
        yield world


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "hooks").mkdir()
    return tmp_path


def ends(writer: Any, checkpoint: Path, *parts: str) -> None:
    """Check that the query ends, and that its exception has all of these parts."""
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as caught:
        run_to_end(writer, checkpoint)
    for part in parts:
        assert part in str(caught.value)


def test_a_token_that_does_not_allow_it_ends_a_query_that_revises(spark: Any, scratch: Path) -> None:
    feed = feed_of(scratch, batches(1))
    with secure(scratch) as world:
        path = scratch / "a.token"
        path.write_text(world.token("other", ["publish"], ["elsewhere"]))
        given = {"security": lmerge.Security(ca=world.authority.path, token_file=str(path))}
        ends(PLANS["update"](spark, feed, world.target, **given), scratch / "c", "PermissionDenied", MERGE, "batch 0")


def test_a_merge_that_the_server_does_not_make_ends_a_query_that_revises(spark: Any, scratch: Path) -> None:
    feed = feed_of(scratch, batches(1))
    with threaded_world(allow_create=False) as world:
        ends(PLANS["update"](spark, feed, world.target, merge="fligths"), scratch / "c", "fligths", "batch 0")


def test_a_payload_that_is_too_large_ends_a_query_that_revises(spark: Any, scratch: Path, world: ThreadedWorld) -> None:
    feed = FileFeed(scratch / "feed", SCHEMA)
    feed.put({"ts": HOUR, "name": "x" * 2_000_000, "n": 1})
    ends(PLANS["update"](spark, feed, world.target), scratch / "c", "LimitExceeded", "batch 0", "payload")


@both
def test_a_checkpoint_of_which_only_half_was_deleted_ends_the_query(
    spark: Any, scratch: Path, world: ThreadedWorld, plan: str
) -> None:
    """Without Spark's half it is another query, and the spool is not its own. A missing spool is reported."""
    rows = batches(2)
    feed = feed_of(scratch, rows)
    checkpoint = scratch / "c"
    run_to_end(PLANS[plan](spark, feed, world.target), checkpoint)
    kept = scratch / "kept"
    shutil.copytree(checkpoint, kept)
    for part in checkpoint.iterdir():
        if part.name != "lmerge":
            shutil.rmtree(part) if part.is_dir() else part.unlink()
    ends(PLANS[plan](spark, feed, world.target), checkpoint, "holds a stream whose query", "each query needs a spool")
    shutil.rmtree(kept / "lmerge")
    feed.put(*rows[0])
    ends(PLANS[plan](spark, feed, world.target), kept, "is empty: either the query ran before without it")


def test_keys_that_change_between_restarts_end_the_query(spark: Any, scratch: Path, world: ThreadedWorld) -> None:
    feed = feed_of(scratch, batches(1))
    run_to_end(PLANS["update"](spark, feed, world.target), scratch / "c")
    feed.put({"ts": HOUR + 7200 * S, "name": "x", "n": 1})
    changed = PLANS["update"](spark, feed, world.target, keys=["window.start"])
    ends(changed, scratch / "c", "whose keys", "two streams need two checkpoints")


@both
def test_a_query_that_gave_up_on_its_server_goes_on_from_where_it_was(
    spark: Any, scratch: Path, world: ThreadedWorld, plan: str
) -> None:
    hook(spark)
    rows = batches(3)
    feed = feed_of(scratch, rows)
    given = {"running": Running(give_up_after="1 second")}
    with recorded(world.world.target) as recorder:
        writer = PLANS[plan](spark, feed, world.target, **given).option("path", str(scratch / "hooks"))
        with stop_at(scratch, "written-1"):
            query = started(writer, scratch)
            wait_for(scratch / "hooks" / "written-1.reached")
            world.cut()
        with pytest.raises(Exception, match="ServerGone") as caught:
            query.awaitTermination()
        assert "cannot commit batch 1" in str(caught.value)
        world.mend()
        run_to_end(PLANS[plan](spark, feed, world.target, **given), scratch / "checkpoint")
        assert final(table(recorder.until_stable(FINAL))) == final(REFERENCES[plan](rows))


@pytest.mark.long
@both
def test_a_server_that_is_gone_for_a_minute_in_the_middle_of_a_batch_is_waited_for(
    spark: Any, scratch: Path, world: ThreadedWorld, plan: str
) -> None:
    hook(spark)
    rows = batches(3)
    feed = feed_of(scratch, rows)
    with recorded(world.world.target) as recorder:
        writer = PLANS[plan](spark, feed, world.target).option("path", str(scratch / "hooks"))
        with stop_at(scratch, "written-1"):
            query = started(writer, scratch)
            wait_for(scratch / "hooks" / "written-1.reached")
            world.cut()
        assert not query.awaitTermination(60)
        world.mend()
        query.awaitTermination()
        assert final(table(recorder.until_stable(FINAL))) == final(REFERENCES[plan](rows))


def test_a_clock_that_is_behind_that_of_the_life_before_is_named(
    spark: Any, scratch: Path, world: ThreadedWorld
) -> None:
    """A new machine lacks the old one's spool, and the old clock was an hour ahead: the error names the cause."""
    feed = feed_of(scratch, batches(1))
    ahead = clock.wall_us() + 3_600 * S
    with lmerge.Publisher(world.target, MERGE, "a", origin=lmerge.Origin(incarnation=ahead)) as before:
        before.flush()
        ends(PLANS["append"](spark, feed, world.target), scratch / "c", "incarnation", str(ahead), "batch 0")


def test_a_spool_that_executors_do_not_share_is_refused_at_once(tmp_path: Path) -> None:
    """Each machine has its own folder of that name, as with a checkpoint on local disks."""
    here, there = Spool(str(tmp_path / "driver")), Spool(str(tmp_path / "executor"))
    written = attempt_at(there, 0, 0, [("x", 1, 1, 5)])
    with pytest.raises(UsageError, match="the driver does not see it: the driver and all executors must see"):
        here.commit(0, [written.part], None, META)
    assert here.record.newest is None
    empty = attempt_at(there, 0, 0, [], APPENDS)
    here.commit(0, [empty.part], None, META)
    with pytest.raises(UsageError, match="must see one folder"):
        attempt_at(there, 1, 0, [("x", 1, 1, 5)], APPENDS)
