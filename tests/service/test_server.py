"""The server as a whole: status, health, reflection, HTTP, addresses, many merges, draining, settings."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families
from service_world import MERGE, RawReader, World, ins, stable

from lmerge.core.elements import NEG_INF, Event
from lmerge.core.engines import selection
from lmerge.errors import AddressInUse, UsageError
from lmerge.service import log
from lmerge.service.server import SERVICE, Server
from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb

pytestmark = pytest.mark.usefixtures("transport")


async def test_merges_are_listed_in_order_and_described() -> None:
    async with World(merges=("b",)) as world:
        a = await world.publisher("a", merge="c", join_at=3)
        await a.merged(ins("x", 1, 5), ins("y", 2, 3), stable(4))
        await world.publisher("a", merge="a")
        listed = (await world.stub.ListMerges(pb.ListMergesRequest())).merges
        assert [(m.merge, m.algorithm, m.stable_point, m.inputs) for m in listed] == [
            ("a", "r3", NEG_INF, 1),
            ("b", "r0", NEG_INF, 0),
            ("c", "r3", 4, 1),
        ]
        merge = await world.describe("c")
        assert (merge.policy, merge.engine) == ("lazy", selection.best())
        assert (merge.live_events, merge.survives_losses) == (1, 0)
        assert (merge.emitted.inserts, merge.emitted.stables) == (2, 1)
        assert (merge.inputs[0].replica, merge.inputs[0].received.inserts, merge.inputs[0].won) == ("a", 2, 2)
        assert merge.inputs[0].attached_seconds > 0


async def test_describing_an_unknown_merge_is_not_found() -> None:
    async with World() as world:
        with pytest.raises(grpc.RpcError) as caught:
            await world.describe("nowhere")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_the_server_describes_itself() -> None:
    async with World(inputs_per_merge=3) as world:
        server = await world.stub.DescribeServer(pb.DescribeServerRequest())
        assert (server.engine, server.limits.inputs_per_merge) == (selection.best(), 3)
        assert server.version
        assert server.uptime_seconds > 0


async def test_health_turns_to_not_serving_when_the_server_drains() -> None:
    async with World() as world:
        watch = health_pb2_grpc.HealthStub(world.channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        stopping = asyncio.create_task(world.server.stop(5))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        await stopping


async def test_reflection_lists_the_service() -> None:
    async with World() as world:
        call = reflection_pb2_grpc.ServerReflectionStub(world.channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        names = [service.name for service in (await call.read()).list_services_response.service]
        assert {SERVICE, "grpc.health.v1.Health"} <= set(names)
        await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE))
        assert (await call.read()).file_descriptor_response.file_descriptor_proto
        call.cancel()


async def test_metrics_count_what_was_merged() -> None:
    async with World(http_port=0) as world, aiohttp.ClientSession() as http:
        a, _ = await world.publisher("a"), await world.publisher("b")
        await a.merged(ins("x", 1, 5), ins("y", 2, 3), stable(4))
        await a.send(stable(1))
        await a.ending()
        async with http.get(f"http://127.0.0.1:{world.server.http_port}/metrics") as response:
            families = list(text_string_to_metric_families(await response.text()))
        samples = {(s.name, *sorted(s.labels.values())): s.value for family in families for s in family.samples}
        assert samples["lmerge_received_elements_total", MERGE, "insert"] == 2
        assert samples["lmerge_emitted_elements_total", MERGE, "stable"] == 1
        assert samples["lmerge_detached_inputs_total", MERGE, "stable-backwards"] == 1
        assert samples["lmerge_attached_inputs", MERGE] == 1
        assert samples["lmerge_stable_point_time", MERGE] == 4
        assert samples["lmerge_input_elements_total", "b", MERGE] == 0
        assert all(
            family.name.startswith(("lmerge_", "process_", "python_")) and family.documentation for family in families
        )


async def test_the_probes_answer() -> None:
    async with World(http_port=0) as world, aiohttp.ClientSession() as http:
        for page in ("healthz", "readyz"):
            async with http.get(f"http://127.0.0.1:{world.server.http_port}/{page}") as response:
                assert response.status == 200


@pytest.mark.parametrize("which", ["port", "http_port"])
async def test_a_port_in_use_is_an_error_that_names_it(which: str) -> None:
    async with World(http_port=0) as world:
        taken = getattr(world.server, which)
        with pytest.raises(AddressInUse, match=f"127.0.0.1:{taken}: the address is in use"):
            await Server(Settings(**{"http_port": 0, which: taken})).start()


async def test_a_host_that_is_not_ours_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.1"):
        await Server(Settings(host="192.0.2.1", http_port=None, insecure=True)).start()


async def test_many_merges_do_not_mix() -> None:
    async with World() as world:
        names = [f"merge-{at}" for at in range(40)]
        publishers = [await world.publisher("a", merge=name) for name in names]
        readers = [await world.subscriber(name) for name in names]
        await asyncio.gather(*(p.merged(ins(n, 1, 2), stable(3)) for n, p in zip(names, publishers)))
        for name, reader in zip(names, readers):
            assert await reader.until_stable(3) == [Event(1, name.encode(), 2)]


async def test_draining_merges_what_was_received_and_ends_every_stream() -> None:
    async with World() as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        reader = await world.subscriber()
        waiting = asyncio.create_task(RawReader(world.subscribe("never", wait=True)).ending())
        for at in range(100):
            await a.send(ins("x", at, at + 1))
        await a.acked()
        await world.server.stop(5)
        for ending in (await a.ending(), await b.ending(), await reader.ending(), await waiting):
            assert ending.code is grpc.StatusCode.UNAVAILABLE
            assert "draining" in ending.details
        assert len(reader.tdb.events()) == 100
        await world.server.wait_closed()


async def test_a_draining_server_waits_for_full_queues_but_not_for_ever() -> None:
    limits = {"message_bytes": 65_536, "payload_bytes": 20_000, "subscriber_queue_bytes": 10_000_000}
    async with World(**limits) as world:
        a = await world.publisher("a")
        stuck = world.subscribe(name="stuck")
        await world.described(lambda merge: len(merge.subscribers) == 1)
        for at in range(100):
            await a.merged(ins(b"x" * 20_000, at, at + 1))
        await world.server.stop(0.1)
        await world.server.wait_closed()
        stuck.cancel()


def test_settings_that_cannot_work_together_are_named() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"port": 70_000}, "port must be"),
        ({"payload_bytes": 5_000_000}, "payload_bytes 5000000 does not fit"),
        ({"subscriber_queue_bytes": 1_000}, "subscriber_queue_bytes 1000 must hold a message"),
        ({"turn_elements": 0}, "turn_elements must be positive"),
        ({"allow_create": False}, "merges must be declared"),
        ({"algorithm": "r9"}, "unknown algorithm 'r9'"),
        ({"policy": "brave"}, "unknown policy 'brave'"),
        ({"algorithm": "r1", "policy": "final-only"}, "needs r3 or r4"),
        ({"record_path": "/no/such/folder/file"}, "no such folder"),
        ({"record_path": "one.jsonl", "merges": ("a", "b")}, "{merge}"),
    ]
    for settings, message in wrong:
        with pytest.raises(UsageError) as caught:
            Server(Settings(**settings))
        assert message in str(caught.value)


async def test_a_bug_in_a_merge_ends_its_streams_and_the_server_reports_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with World() as world:
        a = await world.publisher("a")
        reader = await world.subscriber()
        hub = world.server._registry.hubs[MERGE]
        monkeypatch.setattr(hub.state.merge, "apply", lambda *_: 1 // 0)
        await a.send(ins("x", 1, 2))
        assert (await a.ending()).code is grpc.StatusCode.UNAVAILABLE
        assert (await reader.ending()).code is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(ZeroDivisionError):
            await world.server.wait_closed()
    assert "merge 'flights' failed" in caplog.text


def test_log_lines_are_readable_and_machine_readable(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="lmerge.service"):
        log.event(logging.INFO, "input attached", merge="flights", input="a")
    assert caplog.messages == ["input attached merge='flights' input='a'"]
    line = json.loads(log.JsonFormatter().format(caplog.records[0]))
    assert (line["event"], line["merge"], line["level"]) == ("input attached", "flights", "info")
