"""What a server reports of its merges, read from its own HTTP port."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from service_world import MERGE, RawReader, World, ins, stable

from lmerge.errors import StoreFull
from lmerge.histogram import DurationCounts
from lmerge.process_metrics import register_process
from lmerge.service.output.fanout import SubscriberQueue
from lmerge.service.server import Server
from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"

Labels = frozenset[tuple[str, str]]


class Scrape:
    """The samples of one page of ``/metrics``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: dict[tuple[str, Labels], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self.samples, f"{sample.name} has a sample twice"
                self.samples[key] = sample.value

    def __call__(self, name: str, merge: str = MERGE, **labels: str) -> float:
        return self.samples[name, frozenset({"merge": merge, **labels}.items())]

    def series(self, merge: str) -> int:
        """Return the number of series with this merge."""
        return sum(("merge", merge) in labels for _, labels in self.samples)

    def labels(self, name: str, label: str) -> list[str]:
        """Return the values of a label in one family, in their order in the page."""
        return [dict(labels)[label] for found, labels in self.samples if found == name]


async def scrape(world: World) -> Scrape:
    url = f"http://127.0.0.1:{world.server.http_port}/metrics"
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        assert response.status == 200
        return Scrape(await response.text())


async def scraped(world: World, claim: Callable[[Scrape], bool]) -> Scrape:
    """Scrape until ``claim`` holds."""
    while not claim(page := await scrape(world)):
        pass
    return page


async def test_added_latency_is_counted_once_for_each_message_and_subscriber() -> None:
    async with World(http_port=0, progress_interval_s=0.01) as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 5), stable(2))  # before anybody reads: nothing is delivered
        readers = [await world.subscriber(), await world.subscriber()]
        assert (await scrape(world))("lmerge_added_latency_seconds_count") == 0, "a snapshot is no output of a batch"
        for at in (3, 4, 5):
            await a.merged(ins(f"y{at}", at, 9), stable(at))
            for reader in readers:
                await reader.until_stable(at)
        for _ in range(2):  # after the second one the server has counted what it does for the first
            while await readers[0].read() != "progress":
                pass
        page = await scraped(world, lambda page: page("lmerge_added_latency_seconds_count") >= 6)
        assert page("lmerge_added_latency_seconds_count") == page("lmerge_added_latency_seconds_bucket", le="+Inf") == 6
        assert 0 < page("lmerge_added_latency_seconds_sum") < 6 * 10
        assert page("lmerge_added_latency_seconds_bucket", le="10.0") == 6


async def test_what_a_reader_does_not_read_is_its_lag_and_then_its_latency() -> None:
    async with World(http_port=0) as world:
        a = await world.publisher("a")
        reader = await world.subscriber(name="slow")
        payload = "x" * 2**18
        for at in range(1, 33):  # more than the connection takes by itself
            await a.merged(ins(f"{payload}{at}", at, 99))
        page = await scraped(world, lambda page: page("lmerge_subscriber_lag_seconds", subscriber="slow") > 0.2)
        assert page("lmerge_subscriber_lag_bytes", subscriber="slow") > 2**20
        gone = page("lmerge_delivered_bytes_total") + page("lmerge_queued_output_bytes")
        assert gone < page("lmerge_output_bytes_total"), "the message that is being written is not delivered yet"
        assert page("lmerge_queued_output_bytes") == page("lmerge_subscriber_lag_bytes", subscriber="slow")
        await a.merged(stable(40))
        await reader.until_stable(40)
        page = await scraped(world, lambda page: page("lmerge_subscriber_lag_bytes", subscriber="slow") == 0)
        assert page("lmerge_subscriber_lag_seconds", subscriber="slow") == 0
        in_time = page("lmerge_added_latency_seconds_bucket", le="0.2")
        assert page("lmerge_added_latency_seconds_count") > in_time, (
            "what waited for the reader was counted as delivered"
        )
        assert page("lmerge_delivered_bytes_total") >= page("lmerge_output_bytes_total") > 32 * 2**18


async def test_a_message_lags_until_it_is_written() -> None:
    queue = SubscriberQueue("slow", "here", 100)
    queue.offer(b"progress", 0)
    assert queue.lag_s(12.0) == 0.0, "it is no output"
    queue.offer(b"first", 1, 10.0)
    queue.offer(b"second", 1, 11.0)
    lags = []
    for _ in range(3):
        await queue.take()
        lags.append((queue.lag_s(12.0), queue.written(), queue.lag_s(12.0)))
    assert lags == [(2.0, None, 2.0), (2.0, 10.0, 1.0), (1.0, 11.0, 0.0)]


async def test_a_stuck_input_falls_behind_by_a_second_a_second() -> None:
    async with World(http_port=0) as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        await b.merged(ins("x", 1, 5), stable(2))
        await a.merged(ins("x", 1, 5), stable(2))
        page = await scrape(world)
        assert page("lmerge_input_lag_seconds", input="a") == page("lmerge_input_lag_seconds", input="b") == 0
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        for at in range(3, 30):
            await a.merged(stable(at))
        first = await scrape(world)
        between_s = loop.time()
        assert 0 < first("lmerge_input_lag_seconds", input="b") <= between_s - before_s
        assert first("lmerge_input_lag_time", input="b") == 27
        second = await scrape(world)
        grown_s = second("lmerge_input_lag_seconds", input="b") - first("lmerge_input_lag_seconds", input="b")
        assert 0 < grown_s <= loop.time() - before_s
        await b.merged(stable(28))
        assert (await scrape(world))("lmerge_input_lag_seconds", input="b") < second(
            "lmerge_input_lag_seconds", input="b"
        ), "it has passed most of what it lacked"


async def test_an_input_without_a_stable_point_lags_since_it_attached() -> None:
    async with World(http_port=0) as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 5), stable(2))
        await scraped(world, lambda page: page("lmerge_stable_pause_seconds") > 0.3)
        await world.publisher("b")
        page = await scrape(world)
        assert 0 < page("lmerge_input_lag_seconds", input="b") < 0.3


async def test_each_input_is_in_one_state() -> None:
    async with World(http_port=0, divergence="quarantine") as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 5), stable(2))
        await world.publisher("later", join_at=50)
        await world.publisher("looks", role=2)
        hub = world.server._registry.hubs[MERGE]
        hub.state.certifier.quarantine("liar", "it differs")
        page = await scrape(world)
        states = {
            name: [state for state in page.labels("lmerge_input_state", "state") if page_state(page, name, state)]
            for name in ("a", "later", "looks", "liar")
        }
        assert {name: sorted(set(found)) for name, found in states.items()} == {
            "a": ["joined"],
            "later": ["joining"],
            "looks": ["observing"],
            "liar": ["quarantined"],
        }


def page_state(page: Scrape, name: str, state: str) -> bool:
    return page("lmerge_input_state", input=name, state=state) == 1


async def test_the_pauses_of_output_and_stable_point_are_measured_apart() -> None:
    async with World(http_port=0) as world:
        a = await world.publisher("a")
        page = await scrape(world)
        assert page.labels("lmerge_output_pause_seconds", "merge") == [], "there was no output yet"
        await a.merged(stable(3))
        await scraped(world, lambda page: page("lmerge_stable_pause_seconds") > 0.2)
        await a.merged(ins("y", 4, 9))
        page = await scrape(world)
        assert page("lmerge_output_pause_seconds") < 0.2 < page("lmerge_stable_pause_seconds")


async def test_series_are_bounded_whoever_subscribes_and_the_page_counts_them_right() -> None:
    async with World(http_port=0, metrics_subscribers_max=3) as world:
        for name in "abc":
            await (await world.publisher(name)).merged(ins("x", 1, 5))
        bare = await scrape(world)
        readers: list[RawReader] = [await world.subscriber(name=f"reader {at}") for at in range(20)]
        readers += [await world.subscriber() for _ in range(5)]
        page = await scrape(world)
        assert page.labels("lmerge_subscriber_lag_seconds", "subscriber") == ["anonymous", "reader 0", "reader 1"]
        assert page.series(MERGE) == bare.series(MERGE) + 2 * 3
        assert page("lmerge_attached_subscribers") == len(readers)
        by_input = [dict(labels).get("input") for _, labels in page.samples]
        text = " ".join(PAGE.read_text().split())
        assert f"Each input adds {by_input.count('a')}," in text
        own = [labels for _, labels in page.samples if not dict(labels).keys() & {"input", "subscriber"}]
        assert f"A merge has {sum(('merge', MERGE) in labels for labels in own)} series of its own" in text


async def test_a_store_reports_its_commits_its_size_and_its_room(tmp_path: Path) -> None:
    async with World(http_port=0, store=str(tmp_path / "store"), check_interval_s=0.05) as world:
        bare = await scrape(world)
        a = await world.publisher("a")
        for at in range(1, 6):
            await a.merged(ins("x" * 10_000, at, 9), stable(at))
        page = await scrape(world)
        assert page("lmerge_store_commit_seconds_count") >= 5
        assert 0 < page("lmerge_store_commit_seconds_sum") < 60
        on_disk = sum(path.stat().st_size for path in (tmp_path / "store").iterdir() if path.suffix != ".mark")
        assert 0 < page("lmerge_store_bytes") <= on_disk
        assert page("lmerge_store_errors_total") == 0
        free = page.samples["lmerge_store_free_bytes", frozenset()]
        assert 0 < free <= shutil.disk_usage(tmp_path).free * 2
        assert ("lmerge_store_free_bytes", frozenset()) in bare.samples
        by_store = [name for name, labels in page.samples if "_store_" in name and ("merge", MERGE) in labels]
        added = len(by_store) - by_store.count("lmerge_store_stopped_bool")
        assert f"A store adds {added}." in " ".join(PAGE.read_text().split())


async def test_a_store_that_cannot_be_written_counts_its_attempts(tmp_path: Path) -> None:
    async with World(http_port=0, store=str(tmp_path / "store"), store_retry_s=0.01) as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 5))
        store = world.server._registry.hubs[MERGE].state.output.durable
        assert store is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store.store, "commit", full)
            await a.send(ins("y", 2, 5))
            page = await scraped(world, lambda page: page("lmerge_store_errors_total") >= 3)
            assert page("lmerge_store_stopped_bool") == 1
            assert page("lmerge_store_waiting_bytes") > 0
        await a.acked()
        assert (await scrape(world))("lmerge_store_waiting_bytes") == 0


def full(*_: object) -> None:
    raise StoreFull("the disk is full")


async def test_feedback_and_skips_are_counted() -> None:
    async with World(http_port=0, feedback_lag=10, feedback_interval_s=0.001) as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        await b.merged(stable(1))
        await a.merged(stable(100))
        await scraped(world, lambda page: page("lmerge_feedback_messages_total") >= 1)
        await b.write(skip=pb.PublishRequest.Skip(until=50))
        await b.merged(stable(60))
        assert (await scrape(world))("lmerge_feedback_skips_total") == 1


async def test_the_last_divergence_has_its_time() -> None:
    async with World(http_port=0, divergence="alarm", certify_interval=10) as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        before_s = time.time()
        await a.merged(ins("x", 1, 5), stable(20))
        assert (await scrape(world)).labels("lmerge_last_divergence_timestamp_seconds", "merge") == []
        await b.merged(ins("y", 1, 5), stable(20))
        page = await scraped(world, lambda page: page("lmerge_divergent_intervals_total") == 1)
        assert before_s - 0.001 <= page("lmerge_last_divergence_timestamp_seconds") <= time.time()


async def test_limits_have_the_names_of_the_settings_and_the_process_its_own() -> None:
    async with World(http_port=0, inputs_per_merge=7) as world:
        page = await scrape(world)
        assert page.samples["lmerge_limit_inputs", frozenset({("limit", "inputs_per_merge")})] == 7
        assert page.samples["process_resident_memory_bytes", frozenset()] > 2**20
        await (await world.publisher("a")).merged(ins("x", 1, 5))
        assert (await scrape(world))("lmerge_received_bytes_total") > 10


async def test_a_registry_of_the_callers_keeps_its_own_metrics_of_the_process() -> None:
    registry = CollectorRegistry()
    register_process(registry)
    server = Server(Settings(port=0, http_port=None), metrics=registry)
    await server.start()
    assert generate_latest(registry).decode().count("# TYPE process_max_fds") == 1
    await server.stop(0.0)


async def test_a_big_server_has_no_more_series_than_the_page_bounds() -> None:
    names = [f"merge {at}" for at in range(40)]
    async with World(http_port=0, merges=tuple(names), metrics_subscribers_max=2) as world:
        empty = await scrape(world)
        for name in names:
            for replica in "abcde":
                await world.publisher(replica, name)
            for at in range(4):
                await world.subscriber(name, f"reader {at}")
        page = await scrape(world)
        added = len(page.samples) - len(empty.samples)
        assert added == len(names) * (16 * 5 + 2 * 2)
        assert sum(page.series(name) for name in names) == len(names) * (54 + 16 * 5 + 2 * 2), "without output so far"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
async def test_promtool_finds_nothing_to_complain_about(tmp_path: Path) -> None:
    async with World(http_port=0, store=str(tmp_path / "store")) as world:
        a = await world.publisher("a")
        await world.subscriber(name="board")
        await a.merged(ins("x", 1, 5), stable(2))
        text = (await scrape(world)).text
    checked = await asyncio.create_subprocess_exec(
        "promtool", "check", "metrics", stdin=PIPE, stdout=PIPE, stderr=STDOUT
    )
    output, _ = await checked.communicate(text.encode())
    assert (checked.returncode, output) == (0, b"")


def test_the_page_lists_exactly_what_a_server_exports() -> None:
    async def collected() -> dict[str, tuple[str, str]]:
        server = Server(Settings(port=0, http_port=None, merges=("m",)))
        await server.start()
        families = list(server.metrics.collect())
        await server.stop(0.0)
        return {
            f"{f.name}_total" if f.type == "counter" else f.name: (f.type, ", ".join(getattr(f, "_labelnames", ())))
            for f in families
        }

    of_servers, _, _ = PAGE.read_text().partition("\n## What clients export\n")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*?) ?\|", of_servers, re.MULTILINE)
    assert len(rows) == len({name for name, _, _ in rows}), "a metric stands there twice"
    assert {name: (kind, labels) for name, kind, labels in rows} == asyncio.run(collected())


def test_a_bucket_contains_its_upper_bound_and_the_last_one_all() -> None:
    counts = DurationCounts((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.11, 1.0, 7.0):
        counts.observe(seconds)
    assert counts.buckets() == [("0.1", 2), ("1.0", 4), ("+Inf", 5)]
    assert (counts.count, counts.sum_s) == (5, 8.26)
