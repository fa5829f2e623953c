"""What publishers and subscribers export, read over HTTP, against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from cli_world import LMERGE, Served
from client_world import MERGE, World
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from lmerge import clock
from lmerge.cli.measured import measured_later
from lmerge.client import AsyncPublisher, AsyncSubscriber, Publisher, Subscriber
from lmerge.client.metrics import ClientMetrics, asked_metrics, export
from lmerge.client.relay import Relay
from lmerge.core.elements import INF
from lmerge.errors import AddressInUse, UsageError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
READER = {"merge": MERGE, "subscriber": "board"}
WRITER = {"merge": MERGE, "replica": "a"}


class Exported:
    """Client metrics behind an HTTP port of their own."""

    def __init__(self, time_unit: str | None = None) -> None:
        registry = CollectorRegistry()
        self.metrics = ClientMetrics(registry, time_unit=time_unit)
        self.port = export(registry, 0)

    def __call__(self, name: str, **labels: str) -> float:
        return samples_at(f"http://127.0.0.1:{self.port.port}/metrics")[name, frozenset(labels.items())]

    async def reaches(self, value: float, name: str, **labels: str) -> None:
        """Scrape until a sample has this value."""
        while await asyncio.to_thread(lambda: self(name, **labels)) != value:
            pass


@contextlib.contextmanager
def exported(time_unit: str | None = None) -> Iterator[Exported]:
    one = Exported(time_unit)
    try:
        yield one
    finally:
        one.port.close()


def samples_at(url: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    with urllib.request.urlopen(url, timeout=30) as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    found = [sample for family in families for sample in family.samples]
    by_key = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in found}
    assert len(by_key) == len(found), "a sample stands there twice"
    return by_key


async def test_a_publisher_exports_what_each_server_has_merged() -> None:
    with exported() as page:
        async with World() as world, world.publisher() as publisher:
            page.metrics.watch(publisher)
            server = {"server": world.link.target}
            await publisher.insert(b"x", 1, 5)
            await publisher.stable(3)
            await publisher.flush()
            await page.reaches(0, "lmerge_publisher_unacked_elements", **WRITER, **server)
            assert page("lmerge_publisher_elements_total", **WRITER) == 2
            assert page("lmerge_publisher_stable_point_time", **WRITER) == 3
            assert page("lmerge_publisher_connected_bool", **WRITER, **server) == 1
            assert page("lmerge_publisher_joined_bool", **WRITER, **server) == 1
            world.link.cut()
            await page.reaches(0, "lmerge_publisher_connected_bool", **WRITER, **server)
            await publisher.insert(b"y", 4, 5)
            await page.reaches(1, "lmerge_publisher_unacked_elements", **WRITER, **server)
            world.link.mend()
            await page.reaches(1, "lmerge_publisher_reconnects_total", **WRITER)
            await publisher.flush()
            assert page("lmerge_publisher_failed_bool", **WRITER) == 0


async def test_freshness_is_the_age_of_the_stable_point_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "wall_us", lambda: 1_700_000_000_000_000)
    with exported("ms") as page:
        async with World() as world, world.publisher() as publisher, world.subscriber(name="board") as subscriber:
            page.metrics.watch(subscriber)
            taken = subscriber.batches()
            read = 0
            for stable_ms in (1_700_000_000_000 - 4_000, 1_700_000_000_000 - 40, 1_700_000_000_000 + 9_000):
                await publisher.insert(b"x%d" % stable_ms, stable_ms + 1, INF)
                await publisher.stable(stable_ms)
                while subscriber.stable_point < stable_ms:
                    read += (await taken.__anext__()).count
            assert page("lmerge_freshness_seconds_count", **READER) == 3
            assert page("lmerge_freshness_seconds_sum", **READER) == pytest.approx(4.040)
            assert page("lmerge_freshness_seconds_bucket", **READER, le="0.05") == 2
            assert page("lmerge_freshness_seconds_bucket", **READER, le="0.025") == 1
            assert page("lmerge_subscriber_elements_total", **READER) == read == 6
            assert page("lmerge_subscriber_stable_point_time", **READER) == 1_700_000_000_000 + 9_000
            assert page("lmerge_subscriber_source_joined_bool", **READER, server=world.link.target) == 1


async def test_without_a_unit_of_time_nothing_has_an_age() -> None:
    with exported() as page:
        async with World() as world, world.publisher() as publisher, world.subscriber(name="board") as subscriber:
            page.metrics.watch(subscriber)
            await publisher.stable(7)
            async for _ in subscriber.batches():
                break
            assert page("lmerge_subscriber_elements_total", **READER) == 1
            with pytest.raises(KeyError):
                page("lmerge_freshness_seconds_count", **READER)


async def test_a_client_takes_the_series_of_an_earlier_one_with_its_name() -> None:
    with exported() as page:
        async with World() as world:
            for elements in (3, 2):
                async with world.publisher() as publisher:
                    page.metrics.watch(publisher)
                    for at in range(elements):
                        await publisher.insert(b"%d" % at, 1, 5)
            assert page("lmerge_publisher_elements_total", **WRITER) == 2


async def test_a_relay_exports_both_of_its_sides() -> None:
    with exported() as page:
        async with World() as above, World() as below, above.publisher() as publisher:
            relay = Relay(above.target, MERGE, below.target, "a", properties=["key"])
            page.metrics.watch(relay)
            running = asyncio.create_task(relay.run())
            await publisher.insert(b"x", 1, 5)
            await publisher.flush()
            # A relay that comes when the stream is complete has no event to pass on.
            await page.reaches(1, "lmerge_subscriber_elements_total", merge=MERGE, subscriber="relay a")
            await publisher.stable(INF)
            await running
            assert page("lmerge_publisher_elements_total", **WRITER) == 2
            assert page("lmerge_subscriber_elements_total", merge=MERGE, subscriber="relay a") == 2


def test_the_page_lists_exactly_what_clients_export_and_counts_their_series() -> None:
    registry = CollectorRegistry()
    metrics = ClientMetrics(registry, time_unit="us")
    metrics.watch(AsyncPublisher("h1:1", MERGE, "a"))
    metrics.watch(AsyncSubscriber("h1:1", MERGE, name="board"))
    families = list(metrics.collect())
    _, _, rest = PAGE.read_text().partition("\n## What clients export\n")
    text, _, _ = rest.partition("\n## What a plan exports\n")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*?) ?\|", text, re.MULTILINE)
    found = {
        f"{f.name}_total" if f.type == "counter" else f.name: (f.type, ", ".join(getattr(f, "_labelnames", ())))
        for f in families
    }
    assert {name: (kind, labels) for name, kind, labels in rows} == found
    of_reader = [s for f in families for s in f.samples if "subscriber" in s.labels and "server" not in s.labels]
    of_writer = [s for f in families for s in f.samples if "replica" in s.labels]
    assert f"A subscriber has {len(of_reader)} series and 2 for each server" in " ".join(text.split())
    assert f"a publisher {len(of_writer)} and 3 for each" in " ".join(text.split())


def test_a_unit_that_is_none_and_a_port_in_use_are_errors() -> None:
    with pytest.raises(UsageError, match="unknown unit of time 'days'; it is us, ms, s"):
        ClientMetrics(CollectorRegistry(), time_unit="days")
    with exported() as page, pytest.raises(AddressInUse, match=f"127.0.0.1:{page.port.port}"):
        export(CollectorRegistry(), page.port.port)


@pytest.mark.parametrize("port", ["nine", "-1", "65536"])
def test_a_port_of_the_environment_that_is_none_is_an_error_that_names_it(port: str) -> None:
    with pytest.raises(UsageError, match=f"LMERGE_METRICS_PORT is '{port}'"):
        asked_metrics({"LMERGE_METRICS_PORT": port})


def test_an_environment_that_asks_for_nothing_serves_nothing() -> None:
    assert asked_metrics({"LMERGE_METRICS_PORT": " ", "LMERGE_METRICS_UNIT": "us"}) is None


def test_options_reach_a_publisher_that_reads_the_environment() -> None:
    asked: dict[str, str] = {}

    @measured_later
    def command(*, metrics: dict[str, str]) -> None:
        asked.update(metrics)

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, ["--metrics-port", "0", "--metrics-time-unit", "ms"])
    assert result.exit_code == 0, result.output
    assert sorted(asked.values()) == ["0", "127.0.0.1", "ms"]
    wrong = {name: "days" if value == "ms" else value for name, value in asked.items()}
    with pytest.raises(UsageError, match="unknown unit of time 'days'"):
        asked_metrics(wrong)


def url_of(process: subprocess.Popen[str]) -> str:
    """Return the address that a command reports on standard error."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("metrics at "):
            return line.split()[2]
    raise AssertionError("the command did not report its metrics")


def until(url: str, claim: Callable[[dict[tuple[str, frozenset[tuple[str, str]]], float]], bool]) -> None:
    while not claim(samples_at(url)):
        pass


def test_commands_serve_their_metrics(tmp_path: Path) -> None:
    served = Served(tmp_path)
    options = ["--server", served.target, "--metrics-port", "0", "--metrics-time-unit", "us"]
    reading = subprocess.Popen(
        [*LMERGE, "subscribe", MERGE, "--name", "board", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    writing = subprocess.Popen(
        [*LMERGE, "publish", MERGE, "--replica", "a", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        urls = url_of(reading), url_of(writing)
        assert writing.stdin is not None
        writing.stdin.write('{"op":"insert","payload":"A","vs":6,"ve":7}\n{"op":"stable","vc":8}\n')
        writing.stdin.flush()
        key = frozenset(READER.items())
        until(urls[0], lambda found: found.get(("lmerge_freshness_seconds_count", key)) == 1)
        until(urls[1], lambda found: found.get(("lmerge_publisher_elements_total", frozenset(WRITER.items()))) == 2)
        assert ("process_resident_memory_bytes", frozenset()) in samples_at(urls[1])
    finally:
        for process in (reading, writing):
            process.kill()
            process.communicate()
        served.stop()


@pytest.mark.parametrize(
    ("asked", "environment"), [(["--metrics-port", "0"], {}), ([], {"LMERGE_METRICS_PORT": "0"})], ids=["option", "env"]
)
def test_a_replica_serves_the_metrics_that_it_is_asked_for(
    tmp_path: Path, asked: list[str], environment: dict[str, str]
) -> None:
    served = Served(tmp_path)
    replica = subprocess.Popen(
        [*LMERGE, "replica", "run", "aggressive", "--server", served.target, "--speed", "0.001", *asked],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    try:
        key = frozenset({("merge", MERGE), ("replica", "aggressive"), ("server", served.target)})
        until(url_of(replica), lambda found: found.get(("lmerge_publisher_connected_bool", key)) == 1)
    finally:
        replica.kill()
        replica.communicate()
        served.stop()


def test_blocking_clients_are_watched_as_well() -> None:
    registry = CollectorRegistry()
    metrics = ClientMetrics(registry)
    publisher = Publisher("nowhere:1", MERGE, "a")
    subscriber = Subscriber("nowhere:1", MERGE, name="board")
    metrics.watch(publisher)
    metrics.watch(subscriber)
    publisher.insert(b"x", 1, 5)
    assert registry.get_sample_value("lmerge_publisher_elements_total", WRITER) == 1
    assert registry.get_sample_value("lmerge_subscriber_elements_total", READER) == 0
    publisher.abort()
    subscriber.close()
