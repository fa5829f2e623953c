"""The replicas in Spark: their source of news, their two plans, their process, and the demo with one of them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from client_world import ThreadedWorld, threaded_world
from secure_world import SecureWorld
from spark_world import MERGE, recorded, table

from lmerge.core.elements import INF, NEG_INF, Adjust, Event, Insert
from lmerge.demo.judge import FlightsJudge
from lmerge.demo.spark import Spark, without_spark
from lmerge.errors import InvalidRow, UsageError
from lmerge.spark.options import APPEND, RAW
from lmerge.spark.sink.elements import RowPlan, converter_of
from lmerge_replicas.flights.flight import Flight, read_flights
from lmerge_replicas.flights.replay import ReplayClock, first_instant, read_clock, write_clock
from lmerge_replicas.flights.source import Days
from lmerge_replicas.flights.style import LEAD
from lmerge_replicas.spark import session
from lmerge_replicas.spark.__main__ import ProgressLine, follow, is_complete
from lmerge_replicas.spark.news import LONGEST, WATERMARK_DELAY, all_news, final_watermark, read_log, write_log
from lmerge_replicas.spark.plans import PLANS, publish
from lmerge_replicas.spark.source import FlightNews, NewsReader

BLIZZARD = Days(date(2013, 2, 8), date(2013, 2, 9))  # half of the flights cancelled, the rest late or diverted
REPLICA = [sys.executable, "-m", "lmerge", "replica", "run"]
PROCESS_S = 400.0
SILENT = ProgressLine("a", is_shown=False)


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    return read_flights(BLIZZARD)


@pytest.fixture(scope="module")
def expected() -> list[Event]:
    """Return the table that DuckDB computes from the raw data, as for the replicas in plain Python."""
    with FlightsJudge(BLIZZARD) as judge:
        return judge.events()


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world(policy="eager") as world:
        yield world


# The news.


def test_the_last_news_of_a_flight_is_the_truth(flights: list[Flight], expected: list[Event]) -> None:
    last = {news.flight: news for news in all_news(flights, BLIZZARD)[1:-1]}
    events = [Event(n.vs, n.flight.encode(), INF if n.ve is None else n.ve) for n in last.values() if n.ve != n.vs]
    assert sorted(events) == expected
    assert sum(news.ve == news.vs for news in last.values()) > 400
    assert any(news.ve is None for news in last.values())


def test_news_are_in_order_of_time_and_a_flight_has_no_two_at_one_moment(flights: list[Flight]) -> None:
    log = all_news(flights, BLIZZARD)
    assert all(a.at <= b.at for a, b in pairwise(log))
    by_flight = groupby(sorted(log[1:-1], key=lambda news: (news.flight, news.at)), key=lambda news: news.flight)
    assert all(a.at < b.at for _, news in by_flight for a, b in pairwise(news))


def test_no_news_are_late_however_batches_are_cut(flights: list[Flight]) -> None:
    """The watermark before a row's time is below the row."""
    latest = 0
    for news in all_news(flights, BLIZZARD)[1:-1]:
        assert news.at - news.vs <= LONGEST
        assert news.vs > latest - WATERMARK_DELAY
        latest = max(latest, news.vs)
        assert latest <= news.at + LEAD


def test_behind_the_last_row_everything_is_final(flights: list[Flight], tmp_path: Path) -> None:
    log = read_log(write_log(tmp_path, BLIZZARD))
    assert log.num_rows == len(all_news(flights, BLIZZARD))
    final = final_watermark(log)
    assert final > max(ve for ve in (f.ve for f in flights) if ve < INF)
    assert final > max(f.vs for f in flights)


def test_the_source_gives_rows_up_to_the_clock_and_the_same_rows_again(tmp_path: Path) -> None:
    log, clock = write_log(tmp_path, BLIZZARD), tmp_path / "clock.json"
    reader = NewsReader({"log": str(log), "clock": str(clock)})
    begun = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(begun, limit) == {"row": 1}, "the row from before the replay"
    assert read_clock(clock) is None
    write_clock(clock, ReplayClock(0.0, first_instant(BLIZZARD), 86_400.0))  # it ended long ago
    end = reader.latestOffset(begun, limit)
    assert end["row"] == read_log(log).num_rows
    write_clock(clock, ReplayClock(2**33, first_instant(BLIZZARD), 1.0))  # it begins in the far future
    assert reader.latestOffset({"row": 7}, limit) == {"row": 7}, "what was read stays read"
    few = NewsReader({"log": str(log), "clock": str(clock), "rows": "10"})
    assert few.latestOffset({"row": 7}, few.getDefaultReadLimit()) == {"row": 7}
    write_clock(clock, ReplayClock(0.0, first_instant(BLIZZARD), 86_400.0))
    assert few.latestOffset({"row": 7}, few.getDefaultReadLimit()) == {"row": 17}
    rows = [batch for part in reader.partitions({"row": 5}, {"row": 12}) for batch in reader.read(part)]
    assert pa.Table.from_batches(rows) == read_log(log).slice(5, 7).combine_chunks()


# Payloads as they are.


def test_a_raw_payload_is_the_column_as_it_is() -> None:
    rows = pa.record_batch({"flight": ["x", "y"], "vs": [1, 2], "ve": [5, None]})
    plan = RowPlan(APPEND, ve="ve", raw="flight")
    assert list(converter_of(plan, NEG_INF).take(rows).elements()) == [Insert(b"x", 1, 5), Insert(b"y", 2, INF)]
    missing = pa.record_batch({"flight": pa.array(["x", None]), "vs": [1, 2], "ve": [5, 6]})
    with pytest.raises(InvalidRow, match="flight"):
        converter_of(plan, NEG_INF).take(missing)


@pytest.mark.parametrize(
    ("columns", "message"), [(("flight", "at"), "flight string, at timestamp"), (("at",), "at timestamp")]
)
def test_a_raw_payload_is_one_column_of_text_or_bytes(
    spark: Any, tmp_path: Path, columns: tuple[str, ...], message: str
) -> None:
    import lmerge.spark

    rows = stream(spark, tmp_path).withWatermark("vs", "1 hour").select("vs", *columns)
    given: dict[str, Any] = {"servers": "h:1", "merge": MERGE, "replica": "a", "vs": "vs"}
    with pytest.raises(UsageError, match=f"schema is raw, .* not {message}"):
        lmerge.spark.publish(rows, payload=lmerge.spark.Payload(schema=RAW), **given)
    with pytest.raises(UsageError, match="schema is 'Raw'; it is columns with their types, or raw"):
        lmerge.spark.publish(rows, payload=lmerge.spark.Payload(schema="Raw"), **given)


# The plans.


def stream(spark: Any, folder: Path, rows_max: int | None = None) -> Any:
    """Return all news, as if the replay had ended long ago."""
    spark.dataSource.register(FlightNews)
    write_clock(folder / "clock.json", ReplayClock(0.0, first_instant(BLIZZARD), 86_400.0))
    return session.news(spark, write_log(folder, BLIZZARD), folder / "clock.json", rows_max)


def until(query: Any, watermark: int | None) -> None:
    assert follow(query, threading.Event(), watermark, SILENT)


@pytest.mark.parametrize("name", list(PLANS))
def test_a_plan_gives_the_table_of_the_other_replicas_over_a_restart_too(
    spark: Any, world: ThreadedWorld, tmp_path: Path, expected: list[Event], name: str
) -> None:
    final = final_watermark(read_log(write_log(tmp_path, BLIZZARD)))
    checkpoint = tmp_path / "query"

    def start() -> Any:
        news = stream(spark, tmp_path, rows_max=1200)
        writer = publish(PLANS[name], news, world.target, MERGE, "a")
        return writer.option("checkpointLocation", str(checkpoint)).start()

    with recorded(world.target) as recorder:
        first = start()
        until(first, None)
        first.stop()
        assert not is_complete(checkpoint, final)
        second = start()
        until(second, final)
        second.stop()
        assert is_complete(checkpoint, final)
        elements = recorder.until_stable(final)
    assert table(elements) == expected
    revisions = [element for element in elements if isinstance(element, Adjust)]
    assert bool(revisions) == (name == "update")


# The process, and the command.


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*REPLICA, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PROCESS_S,
        env=os.environ | {"COLUMNS": "200"} | environment,
    )


def test_the_command_lists_the_replicas() -> None:
    listed = subprocess.run([*REPLICA[:-1], "list"], capture_output=True, text=True, check=True).stdout
    names = [line.split()[0] for line in listed.splitlines()]
    assert names == [
        "aggressive",
        "conservative",
        "open-ended",
        "spark-append",
        "spark-update",
        "temporal-by-airport",
        "temporal-final",
        "temporal-revising",
    ]
    assert "--checkpoint" in run("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["spark"], "there is no replica 'spark'; there are aggressive, "),
        (
            ["aggressive", "--checkpoint", "x"],
            "aggressive has no checkpoint: --checkpoint is for queries, and for the replicas in Spark",
        ),
        (["aggressive", "--first", "yesterday"], "'yesterday' is no day such as 2013-02-08"),
    ],
)
def test_what_cannot_be_run_is_named(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_replica_in_plain_python_is_run_to_its_end(world: ThreadedWorld, expected: list[Event]) -> None:
    days = ["--first", "2013-02-08", "--last", "2013-02-09"]
    with recorded(world.target) as recorder:
        done = run("conservative", "-s", world.target, "-r", "a", "--speed", "1000", "--start", "0", *days)
        assert done.returncode == 0, done.stderr
        assert table(recorder.until_stable(INF)) == expected


def test_without_pyspark_or_java_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_java() -> str:
        raise UsageError("Spark needs Java 17 or newer: pip install 'lmerge[java]'")

    monkeypatch.setattr(pyspark, "__version__", "4.2.9")
    with pytest.raises(UsageError, match=re.escape("needs PySpark 4.3 or newer, and here is 4.2.9")):
        session.require_spark()
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyspark", None)  # importing it fails
        with pytest.raises(UsageError, match=re.escape("pip install 'lmerge[spark]'")):
            without_spark(Spark.YES)
        assert "pip install 'lmerge[spark]'" in without_spark(Spark.AUTO)
    assert without_spark(Spark.NO) == "no replica in Spark: --spark no"
    monkeypatch.setattr(pyspark, "__version__", "4.3.0.dev1")
    monkeypatch.setattr(session, "use_java", no_java)
    assert "pip install 'lmerge[java]'" in without_spark(Spark.AUTO)


def test_pyspark_that_only_pythonpath_names_is_enough(tmp_path: Path) -> None:
    """Images of Apache Spark hold PySpark in a folder of Spark's, and nothing that pip knows."""
    for package in Path(pyspark.__file__).parent.parent.iterdir():
        if package.suffix not in (".dist-info", ".egg-info", ".pth"):
            (tmp_path / package.name).symlink_to(package)
    lines = (
        "import importlib.metadata as known, pyspark",
        "assert not [d for d in known.distributions() if (d.name or '').lower() == 'pyspark']",
        "from lmerge_replicas.spark.session import require_spark",
        "require_spark()",
    )
    paths = os.pathsep.join([str(tmp_path), str(Path(session.__file__).parents[2])])
    command = [sys.executable, "-S", "-c", "\n".join(lines)]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, cwd=tmp_path, check=True, timeout=PROCESS_S)


class Process:
    """Runs a replica in a process of its own."""

    def __init__(self, folder: Path, target: str, *options: str) -> None:
        self.log = folder / "replica.log"
        days = ["--first", "2013-02-08", "--last", "2013-02-09"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *REPLICA,
                    "spark-update",
                    "-s",
                    target,
                    "-r",
                    "a",
                    "--checkpoint",
                    str(folder / "kept"),
                    *days,
                    *options,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait_for(self, message: str) -> None:
        """Wait until its output has ``message``."""
        pause = threading.Event()
        for _ in range(int(PROCESS_S / 0.1)):
            if message in self.output:
                return
            assert self.process.poll() is None, self.output
            pause.wait(0.1)
        raise AssertionError(f"it never wrote {message!r}: {self.output}")

    def ends(self) -> int:
        return self.process.wait(PROCESS_S)

    def has_left(self) -> list[str]:
        """Return the processes of its session that still run, such as the JVM."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == self.process.pid and fields[0] != "Z":
                found.append(stat.parent.name)
        return found


@contextmanager
def process(folder: Path, target: str, *options: str) -> Iterator[Process]:
    started = Process(folder, target, *options)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            os.killpg(started.process.pid, signal.SIGKILL)
            started.process.wait()


@pytest.mark.long
@pytest.mark.timeout(2 * PROCESS_S)
@pytest.mark.usefixtures("spark_is_here")
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_stopped_process_leaves_no_jvm_and_goes_on_from_its_checkpoint(
    world: ThreadedWorld, tmp_path: Path, expected: list[Event]
) -> None:
    final = final_watermark(read_log(write_log(tmp_path, BLIZZARD)))
    with recorded(world.target) as recorder:
        with process(tmp_path, world.target, "--speed", "0.001") as replica:
            replica.wait_for("batch 0 in")
            replica.process.send_signal(signal.SIGINT)
            assert replica.ends() == 130, replica.output
            assert replica.output.endswith("a: stopped\n")
            assert not replica.has_left()
        with process(tmp_path, world.target, "--speed", "1000", "--start", "0") as replica:
            assert replica.ends() == 0, replica.output
            assert replica.output.endswith("a: everything was published\n")
            assert not replica.has_left()
        assert table(recorder.until_stable(final)) == expected
    assert "java" not in (tmp_path / "replica.log").read_text().lower(), "quiet"
    other = run("spark-append", "--checkpoint", str(tmp_path / "kept"))
    assert other.returncode == 2
    assert "belongs to another replica (plan is 'update', and not 'append')" in other.stderr


@pytest.mark.long
@pytest.mark.timeout(2 * PROCESS_S)
@pytest.mark.usefixtures("spark_is_here")
async def test_a_replica_in_spark_shows_what_a_secured_server_requires(tmp_path: Path) -> None:
    days = ["--first", "2013-02-08", "--last", "2013-02-08", "--speed", "1000", "--start", "0"]
    async with SecureWorld(tmp_path, merges=(MERGE,)) as world:
        file = tmp_path / "a.token"
        file.write_text(world.token("a", ["publish", "status"], [MERGE]))
        server = ["spark-append", "-s", world.target, "-m", MERGE, "-r", "a", "--ca", world.authority.path]
        done = await asyncio.to_thread(run, *server, *days)
        assert done.returncode == 1
        assert "this server requires a certificate or a token" in done.stderr
        done = await asyncio.to_thread(run, *server, *days, "--token-file", str(file))
        assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.timeout(PROCESS_S)
@pytest.mark.usefixtures("spark_is_here")
def test_the_demo_has_a_replica_in_spark_and_the_same_verdict() -> None:
    command = [sys.executable, "-m", "lmerge", "demo", "--months", "2", "--days", "10", "--seconds", "20", "--json"]
    done = subprocess.run(
        [*command, "--kills", "0", "--server-kills", "0", "--spark", "yes"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PROCESS_S,
    )
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["expected_events"] == verdict["merged_events"] == 7_561
    assert (verdict["lost"], verdict["duplicates"], verdict["contradictions"]) == (0, 0, 0)
    assert list(verdict["replicas"]) == ["aggressive", "conservative", "open-ended", "temporal", "spark"]
    assert verdict["replicas"]["spark"]["inserts"] > 0
    assert verdict["spark"] == ""
