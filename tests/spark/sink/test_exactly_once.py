"""Nothing is lost and nothing comes twice, whatever dies: real drivers and servers, killed at every place of a batch.

The final events of a reader of the merge are compared with those of the rows, computed here without Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client_world import ThreadedWorld, threaded_world
from driver_world import (
    FINAL,
    REFERENCES,
    SCHEMA,
    Driver,
    append_reference,
    batches,
    feed_of,
    final,
    started,
    stop_at,
    wait_for,
)
from hooks import hook
from spark_world import PLANS, FileFeed, recorded, run_to_end, table

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are killed in groups")


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world() as world:
        yield world


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "hooks").mkdir()
    return tmp_path


def hooked(spark: Any, scratch: Path, servers: str, plan: str, **options: Any) -> Any:
    """Return a writer of this process's session, with places."""
    hook(spark)
    feed = FileFeed(scratch / "feed", SCHEMA)
    return PLANS[plan](spark, feed, servers, **options).option("path", str(scratch / "hooks"))


@pytest.mark.parametrize("plan", ["append", "update"])
@pytest.mark.parametrize("place", ["write", "written", "commit", "done"])
def test_a_batch_that_fails_is_published_once_when_it_is_run_again(
    spark: Any, scratch: Path, world: ThreadedWorld, plan: str, place: str
) -> None:
    """Spark repeats a failing task within the batch. A failing commit ends the query, and a restart continues."""
    rows = batches(3)
    feed_of(scratch, rows)
    (scratch / "hooks" / f"fail-{place}-1").touch()
    with recorded(world.target) as recorder:
        if place in ("commit", "done"):
            with pytest.raises(Exception, match=f"made to fail at {place}"):
                run_to_end(hooked(spark, scratch, world.target, plan), scratch / "checkpoint")
        run_to_end(hooked(spark, scratch, world.target, plan), scratch / "checkpoint")
        assert not list((scratch / "hooks").glob("fail-*"))
        assert final(table(recorder.until_stable(FINAL))) == final(REFERENCES[plan](rows))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark_is_here")
@pytest.mark.parametrize("plan", ["append", "update"])
def test_a_killed_driver_goes_on_from_its_checkpoint(scratch: Path, world: ThreadedWorld, plan: str) -> None:
    """Kill it before write, between write and commit, and between commit and checkpoint, each time at another batch."""
    rows = batches(5)
    feed_of(scratch, rows)
    with recorded(world.target) as recorder:
        for place in ("write-1", "commit-2", "done-3"):
            with stop_at(scratch, place):
                driver = Driver(scratch, world.target, plan)
                driver.reaches(place)
                driver.kill()
        Driver(scratch, world.target, plan).ends()
        assert final(table(recorder.until_stable(FINAL))) == final(REFERENCES[plan](rows))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark_is_here")
@pytest.mark.parametrize("plan", ["append", "update"])
def test_with_two_servers_one_may_go_in_the_middle_of_a_batch_and_the_driver_too(scratch: Path, plan: str) -> None:
    rows = batches(4)
    feed_of(scratch, rows)
    with threaded_world() as first, threaded_world() as second:
        servers = f"{first.target},{second.target}"
        with recorded(servers) as recorder, recorded(second.target) as of_second:
            with stop_at(scratch, "done-2"):
                with stop_at(scratch, "commit-1"):
                    driver = Driver(scratch, servers, plan)
                    driver.reaches("commit-1")
                    first.run(first.world.restart())  # it has lost the staged parts, and all else
                driver.reaches("done-2")
                driver.kill()
            Driver(scratch, servers, plan).ends()
            expected = final(REFERENCES[plan](rows))
            assert final(table(of_second.until_stable(FINAL))) == expected
            assert final(table(recorder.until_stable(FINAL))) == expected


@pytest.mark.parametrize("plan", ["append", "update"])
def test_a_server_may_lose_what_was_staged_before_it_is_committed(spark: Any, scratch: Path, plan: str) -> None:
    """One of two servers is restarted between write and commit. A reader of both is not affected."""
    rows = batches(3)
    feed_of(scratch, rows)
    with threaded_world() as first, threaded_world() as second:
        servers = f"{first.target},{second.target}"
        with recorded(servers) as recorder, recorded(second.target) as of_second:
            with stop_at(scratch, "commit-1"):
                query = started(hooked(spark, scratch, servers, plan), scratch)
                wait_for(scratch / "hooks" / "commit-1.reached")
                first.run(first.world.restart())
            query.awaitTermination()
            expected = final(REFERENCES[plan](rows))
            assert final(table(of_second.until_stable(FINAL))) == expected
            assert final(table(recorder.until_stable(FINAL))) == expected


def test_a_server_that_is_gone_in_the_middle_of_a_batch_is_waited_for(
    spark: Any, scratch: Path, world: ThreadedWorld
) -> None:
    rows = batches(3)
    feed_of(scratch, rows)
    with recorded(world.target) as recorder:
        with stop_at(scratch, "written-1"):
            query = started(hooked(spark, scratch, world.target, "append"), scratch)
            wait_for(scratch / "hooks" / "written-1.reached")
            world.cut()
        assert not query.awaitTermination(3)
        world.mend()
        query.awaitTermination()
        assert final(table(recorder.until_stable(FINAL))) == final(append_reference(rows))
