"""A query reads one epoch of a merge. When a reset begins another epoch, it ends with an error that names it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from read_world import (
    MERGE,
    Collected,
    MergeServers,
    events_of,
    options,
    reading,
    rows_of_batch,
    run_available,
    servers,
)

from lmerge.client.admin import reset_merge
from lmerge.core.batch import Batch
from lmerge.core.elements import NEG_INF, Event, Insert, Stable
from lmerge.errors import MergeReset
from lmerge.spark.source.envelope_rows import FINAL, Range
from lmerge.spark.source.options import stream_options
from lmerge.spark.source.slice_reader import Slice, slice_tables
from lmerge.wire.token import format_token

pytest.importorskip("pyspark", reason="the connector needs it")

from lmerge.spark.session import register
from lmerge.spark.source import readers
from lmerge.spark.source.readers import LmergeStreamReader, Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 60.0
ENDED = "with another checkpoint begins anew"
BEGINNINGS = ("latest", "earliest", "0", f"{MERGE}@-inf", "token")


class Life:
    """A merge to which elements are published and which is reset, with the final events of its present epoch."""

    def __init__(self, world: MergeServers, random: Random) -> None:
        self.world, self.random = world, random
        self.epoch = self.t = 0
        self.final: list[Event] = []
        self._publisher = world.publisher().open()

    def publish(self) -> None:
        """Publish one more final event. Its payload names the epoch."""
        event = Event(self.t, f"{self.epoch}: {self.t}".encode(), self.t + 1)
        self._publisher.publish(Batch.of([Insert(event.payload, event.vs, event.ve), Stable(self.t + 2)]))
        self._publisher.flush()
        self.final.append(event)
        self.t += 2

    def reset(self) -> None:
        """Begin a new epoch, whose times begin below those of the old one, or above."""
        self._publisher.close()
        self.epoch += self.random.randint(1, 3)
        reset_merge(self.world.target, MERGE, epoch=self.epoch)
        self.t, self.final = self.random.randrange(2 * self.t + 20), []
        self._publisher = self.world.publisher().open()
        self.publish()

    def __enter__(self) -> Life:
        self.publish()
        return self

    def __exit__(self, *_: object) -> None:
        self._publisher.close()


class ReadQuery:
    """Uses a reader as Spark does: it stores offsets, and runs the last batch again after a restart."""

    def __init__(self, make: Any, target: str, **given: Any) -> None:
        self._start: Callable[[], LmergeStreamReader] = lambda: make(target, **given)
        self._reader: LmergeStreamReader = self._start()
        self._batch = (self._reader.initialOffset(), self._reader.initialOffset())
        self._last: list[Event] = []
        self.rows: list[Event] = []

    def read_to(self, t: int) -> None:
        """Run batches until the merge was read up to ``t``."""
        until_s = time.monotonic() + WAIT_S
        while not str(self._batch[1].get("token", "")).endswith((f"@{t}", f"/{t}")):
            assert time.monotonic() < until_s, f"it stands at {self._batch[1]}, and the merge at {t}"
            self._step()

    def run(self) -> None:
        """Run batches until an error ends the query, and raise it."""
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            self._step()

    def run_available(self) -> None:
        """Read as ``availableNow`` does after a committed batch: all that is available now, and no more."""
        self._reader.stop()
        self._reader = self._start()
        self._reader.prepareForTriggerAvailableNow()
        while self._step():
            pass

    def run_again(self) -> None:
        """Restart in this process."""
        self.restart()
        self.run()

    def restart(self) -> None:
        """Continue from the checkpoint in another process, and run the last batch again."""
        self._reader.stop()
        self._reader = self._start()
        assert events_of(rows_of_batch(self._reader, *self._batch)) == self._last

    def _step(self) -> bool:
        start = self._batch[1]
        end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        if end == start:
            return False
        self._last = events_of(rows_of_batch(self._reader, start, end))
        self._batch = (start, end)
        self.rows += self._last
        return True


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("begins", BEGINNINGS)
def test_a_query_reads_one_epoch_and_ends_by_name_in_the_next(readers: Any, begins: str, seed: int) -> None:
    """This holds for all times of the two epochs. The query runs on, is restarted, or reads what is available."""
    random = Random(f"{begins} {seed}")
    with servers() as world, Life(world, random) as life:
        for _ in range(random.randrange(3)):  # the merge has had other epochs before
            life.reset()
        since = life.t if begins in ("latest", "token") else NEG_INF
        begin = format_token(MERGE, life.t, life.epoch) if begins == "token" else begins
        query = ReadQuery(readers, world.target, startingOffsets=begin, failOnDataLoss=random.choice(["true", "false"]))
        query.read_to(life.t)
        for _ in range(random.randrange(4)):
            life.publish()
            query.read_to(life.t)
            if random.random() < 0.5:
                query.restart()
        read = query.rows
        assert read == [event for event in life.final if event.ve >= since]
        life.reset()
        for _ in range(random.randrange(3)):
            life.publish()
        for end in (query.run, query.run_available, query.run_again):
            with pytest.raises(MergeReset, match=ENDED):
                end()
        assert query.rows == read


def test_a_query_goes_on_at_a_server_that_was_not_reset_yet(readers: Any) -> None:
    with servers(2) as world, Life(world, Random(1)) as life:
        query = ReadQuery(readers, world.target, startingOffsets=f"{MERGE}@-inf")
        query.read_to(life.t)
        reset_merge(world.targets[0], MERGE, epoch=7)
        query.restart()
        life.publish()
        query.read_to(life.t)
        assert query.rows == life.final
        requested = Range(NEG_INF, life.t)
        chosen = stream_options(options(world.target))
        tables = list(slice_tables(chosen, FINAL, Slice(requested, NEG_INF, life.t)))
        assert [event for table in tables for event in events_of(table.to_pylist())] == life.final
        with pytest.raises(MergeReset, match="epoch 5"):
            list(slice_tables(chosen, FINAL, Slice(requested, NEG_INF, life.t, epoch=5)))


def test_a_position_that_an_earlier_version_wrote_is_one_of_a_merge_that_was_never_reset() -> None:
    chosen = stream_options(options("h:1"))
    written = {"token": f"{MERGE}@5", "envelope": FINAL}
    position = Position.parse(written, chosen)
    assert position == Position(5, fresh=False, epoch=0)
    assert position.offset(chosen) == written
    assert position._replace(epoch=9).offset(chosen) == written | {"token": f"{MERGE}@9/5"}
    for given in ("7", "latest", f"{MERGE}@9/7", f"{MERGE}@-inf"):
        chosen = stream_options(options("h:1", startingOffsets=given))
        query_options = options("h:1", startingOffsets=given)
        begun = LmergeStreamReader(query_options, readers.schema(options("h:1"))).initialOffset()
        assert Position.parse(begun, chosen).offset(chosen) == begun


def test_a_table_is_read_in_the_requested_epoch(spark: SparkSession) -> None:
    register(spark)

    def table(**given: Any) -> list[str]:
        reader = spark.read.format("lmerge").options(**options(world.target, since="earliest", **given))
        return sorted(bytes(row.payload).decode() for row in reader.load().collect())

    with servers() as world, Life(world, Random(2)) as life:
        life.reset()
        life.publish()
        assert table() == table(asOf=life.t) == table(asOf=f"{MERGE}@{life.epoch}/{life.t}")
        assert table() == sorted(event.payload.decode() for event in life.final)
        with pytest.raises(Exception, match=r"MergeReset: .*cannot read merge 'flights' at .* in epoch 0"):
            table(asOf=f"{MERGE}@{life.t}")


def test_a_query_whose_merge_was_reset_ends_and_one_with_another_checkpoint_reads_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    with servers() as world, Life(world, Random(3)) as life:
        life.publish()
        old = Collected()
        run_available(reading(spark, world.target), tmp_path / "old", old)
        assert old.events == life.final
        before = list(old.rows)
        life.reset()
        for lossy in ("false", "true"):
            with pytest.raises(Exception, match=f"MergeReset: .*{ENDED}"):
                run_available(reading(spark, world.target, failOnDataLoss=lossy), tmp_path / "old", old)
        assert old.rows == before
        new = Collected()
        run_available(reading(spark, world.target), tmp_path / "new", new)
        life.publish()
        run_available(reading(spark, world.target), tmp_path / "new", new)
        assert new.events == life.final
