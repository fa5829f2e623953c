"""Rates, numbers and sizes: a caller that takes too much gets an error, and no other caller notices."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st
from secure_world import FORGED, SecureWorld, connect_and_go, refused
from service_world import MERGE, RawPublisher, World, ins, stable

from lmerge.errors import LimitExceeded, TooOften
from lmerge.service.merge.live_limit import Growth
from lmerge.service.security.quota import Connections, Places, TokenBuckets, peer_key
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.generated import lmerge_pb2_grpc as pb_grpc

EXHAUSTED, UNAVAILABLE = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE


# The parts.


def test_a_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    buckets = TokenBuckets(rate_per_s=2.0, burst=3)
    assert [buckets.take("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("b", 0.0) == 0.0
    assert buckets.take("a", 0.4) == pytest.approx(0.1)
    assert buckets.take("a", 0.5) == 0.0
    assert [buckets.take("a", 1000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    with pytest.raises(TooOften, match=r"x too often: 3 at once and 2 a second are allowed; try again in 0.5 s"):
        buckets.must("a", 1000.0, "x")


@given(st.floats(0.1, 10), st.integers(1, 5), st.lists(st.tuples(st.integers(0, 2), st.floats(0, 0.1)), max_size=100))
def test_no_key_ever_gets_more_than_its_burst_and_its_rate(
    rate_per_s: float, burst: int, attempts: list[tuple[int, float]]
) -> None:
    buckets, now_s, given_to = TokenBuckets(rate_per_s, burst), 0.0, dict.fromkeys(range(3), 0)
    for key, pause_s in attempts:
        now_s += pause_s
        given_to[key] += not buckets.take(key, now_s)
    assert all(count <= burst + now_s * rate_per_s + 1e-6 for count in given_to.values())


def test_the_keys_that_are_remembered_are_bounded_and_the_latest_ones() -> None:
    buckets = TokenBuckets(1.0, 1, keys_max=100)
    assert buckets.take("mine", 0.0) == 0.0
    for stranger in range(10_000):
        buckets.take(stranger, 0.0)
        assert buckets.take("mine", 0.0) > 0.0  # it is in use, so it is not forgotten
    assert len(buckets._levels) == 100


def test_places_are_given_back_whatever_happens() -> None:
    places = Places(2)
    with places.one("a", "calls of a"), suppress(ZeroDivisionError), places.one("a", "calls of a"):
        with pytest.raises(LimitExceeded, match="calls of a: 2 at a time is the limit"), places.one("a", "calls of a"):
            pass
        with places.one("b", "calls of b"):
            pass
        raise ZeroDivisionError
    assert places.taken("a") == places.taken("b") == 0


def test_calls_on_one_connection_are_one_connection() -> None:
    connections = Connections(1)
    with connections.one_call("ipv4:10.0.0.1:5"), connections.one_call("ipv4:10.0.0.1:5"):
        with connections.one_call("ipv4:10.0.0.2:5"):
            pass
        with pytest.raises(LimitExceeded, match=r"connections of 10\.0\.0\.1"), connections.one_call("ipv4:10.0.0.1:6"):
            pass
    with connections.one_call("ipv4:10.0.0.1:6"):
        pass


@pytest.mark.parametrize(
    ("peer", "key"),
    [
        ("ipv4:10.0.0.1:50", "10.0.0.1"),
        ("ipv6:%5B::1%5D:50", "::/64"),
        ("unix:", "localhost"),
        ("10.0.0.1", "10.0.0.1"),
        ("ipv6:[2001:db8:1:2:3:4:5:6]:50", "2001:db8:1:2::/64"),
        ("ipv6:[::ffff:10.0.0.1]:50", "10.0.0.1"),
        ("", ""),
    ],
)
def test_a_peer_is_identified_by_its_address_or_network(peer: str, key: str) -> None:
    assert peer_key(peer) == key


def test_the_input_that_brought_the_growth_is_ended_and_not_the_oldest() -> None:
    growth = Growth(1_000)
    assert growth.look(400, {("old", 1): 1_000_000, ("new", 1): 5}) is None
    assert growth.look(1_000, {("old", 1): 1_000_100, ("new", 1): 500}) is None
    name, error = growth.look(1_001, {("old", 1): 1_000_100, ("new", 1): 505}) or ("", None)
    assert name == "new"
    assert "1001 live events, above the limit of 1000" in str(error)
    assert "500 elements" in str(error)
    assert growth.look(1_100, {("old", 1): 1_000_200}) is None  # the next stable removes what the ended one delivered
    assert growth.look(1_200, {("old", 1): 1_000_125}) is None  # the excess came from the ended one
    assert (growth.look(1_300, {("old", 1): 1_000_126}) or ("",))[0] == "old"  # now this one brings too much
    assert growth.look(900, {("other", 1): 200}) is None
    assert (growth.look(1_001, {("other", 1): 201}) or ("",))[0] == "other"
    assert growth.look(5_000, {}) is None


# On a server: rates.


async def test_a_name_that_attaches_too_often_is_refused_with_a_time_and_others_are_not_refused() -> None:
    async with World(attach_burst=3, attach_rate_per_s=0.01) as world:
        good = await world.publisher("good")
        for incarnation in (1, 2, 3):
            await world.publisher("bad", incarnation=incarnation)
        ending = await world.refused("bad", incarnation=4)
        assert ending.code is UNAVAILABLE  # a client library tries again by itself
        assert "input 'bad' of merge 'flights' attaches too often: 3 at once and 0.01 a second are" in ending.details
        await world.publisher("bad", merge="other")
        await world.publisher("another")
        assert (await good.merged(ins("x", 1, 2), stable(3))).stable_point == 3


async def test_a_peer_that_attaches_too_often_is_refused() -> None:
    async with World(peer_attach_burst=3, peer_attach_rate_per_s=0.01) as world:
        first = await world.publisher("0")
        for name in "12":
            await world.publisher(name)
        ending = await world.refused("3")
        assert (ending.code, "127.0.0.1 attaches inputs too often" in ending.details) == (UNAVAILABLE, True)
        assert (await first.merged(stable(3))).sequence == 1


async def test_a_caller_that_may_not_publish_uses_up_no_attaches(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, attach_burst=2, attach_rate_per_s=0.01, peer_attach_burst=2) as world:
        stub = world.stub_of(world.token("b", ["publish"]))
        for _ in range(5):
            publisher = RawPublisher(stub.Publish())
            await publisher.attach("a", MERGE)
            assert (await publisher.ending()).code is grpc.StatusCode.PERMISSION_DENIED
        assert (await world.publisher("a", stub=world.stub_of(world.token("a", ["publish"])))).accepted.joined


async def test_guessing_tokens_ends_in_silence_and_disturbs_no_holder_of_one(tmp_path: Path, caplog: Any) -> None:
    async with SecureWorld(tmp_path, refusal_burst=5, refusal_rate_per_s=0.001) as world:
        guesser, keeper = world.stub_of(FORGED), world.stub_of(world.keeper)
        codes = []
        for _ in range(100):
            codes.append(await guesser.ListMerges(pb.ListMergesRequest()).code())
        assert codes == [grpc.StatusCode.UNAUTHENTICATED] * 5 + [EXHAUSTED] * 95
        await keeper.ListMerges(pb.ListMergesRequest())  # from the same address
        assert sum("call refused" in message for message in caplog.messages) == 5
        assert world.server._guard.refused["unauthenticated"] == 100


async def test_refused_calls_are_counted_in_metrics(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, http_port=0) as world:
        for _ in range(2):
            await world.stub_of(FORGED).ListMerges(pb.ListMergesRequest()).code()
        await world.stub_of(world.token("a", ["publish"])).Subscribe(pb.SubscribeRequest(merge=MERGE)).code()
        world.access_path.write_text("{")
        world.server._guard.check()
        context = ssl.create_default_context(cafile=world.authority.path)
        url = f"https://127.0.0.1:{world.server.http_port}/metrics"
        headers = {"Authorization": f"Bearer {world.keeper}"}
        async with aiohttp.ClientSession() as http, http.get(url, ssl=context, headers=headers) as page:
            text = await page.text()
        for line in (
            'lmerge_refused_calls_total{reason="unauthenticated"} 2.0',
            'lmerge_refused_calls_total{reason="denied"} 1.0',
            'lmerge_security_file_broken_bool{file="access"} 1.0',
            'lmerge_security_file_broken_bool{file="tls"} 0.0',
        ):
            assert line in text


# On a server: numbers.


async def test_one_identity_cannot_take_all_subscriptions(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, subscribers_per_identity=2, merges=(MERGE,)) as world:
        token = world.token("a", ["subscribe"])
        readers = [await world.subscriber(stub=world.stub_of(token)) for _ in range(2)]
        with refused(EXHAUSTED, f"subscriptions of token 'a' ({token[4:12]}): 2 at a time is the limit"):
            await world.subscriber(stub=world.stub_of(token))
        await world.subscriber(stub=world.stub_of(world.token("b", ["subscribe"])))
        readers[0].call.cancel()
        while True:
            with suppress(grpc.RpcError):
                await world.subscriber(stub=world.stub_of(token))
                break


async def test_one_address_cannot_hold_all_connections() -> None:
    async with World(connections_per_peer=2, merges=(MERGE,)) as world, AsyncExitStack() as stack:
        first = await world.subscriber()
        stubs = [pb_grpc.LmergeStub(await stack.enter_async_context(world.new_channel())) for _ in range(2)]
        await world.subscriber(stub=stubs[0])
        with refused(EXHAUSTED, "connections of 127.0.0.1 with calls: 2 at a time is the limit"):
            await world.subscriber(stub=stubs[1])
        await world.subscriber(stub=stubs[0])  # the same connection
        first.call.cancel()


async def test_unidentified_callers_can_hold_few_calls_of_open_methods(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, open_calls_per_peer=3) as world:
        stub = health_pb2_grpc.HealthStub(world.channel)
        watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(3)]
        for watch in watches:
            await watch.read()
        with refused(EXHAUSTED, "calls of 127.0.0.1 that need no credentials: 3 at a time is the limit"):
            await stub.Check(health_pb2.HealthCheckRequest())
        await world.stub_of(world.keeper).ListMerges(pb.ListMergesRequest())
        for watch in watches:
            watch.cancel()


async def test_handshakes_that_never_end_are_ended_and_disturb_no_other(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, http_port=0, handshake_timeout_s=0.5) as world:
        a = await world.publisher("a", stub=world.stub_of(world.token("a", ["publish"])))
        for port in (world.server.port, world.server.http_port):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
            for _, writer in silent[:50]:
                writer.write(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a handshake
            for _ in range(10):
                await a.merged(stable(a.sequence))
            assert (await world.stub_of(world.keeper).DescribeServer(pb.DescribeServerRequest())).version
            for reader, writer in silent:
                with suppress(ConnectionError):
                    while await reader.read(1024):
                        pass
                writer.close()


async def test_ten_thousand_quick_connections_disturb_no_other(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        a = await world.publisher("a", stub=world.stub_of(world.token("a", ["publish"])))
        reader = await world.subscriber(stub=world.stub_of(world.keeper))
        connected = asyncio.get_running_loop().run_in_executor(None, connect_and_go, world.server.port, 10_000)
        vc = 0
        while not connected.done() or vc < 100:
            vc += 1
            await a.merged(ins("x", vc, vc + 1), stable(vc + 1))
        assert await connected == 10_000
        await reader.until_stable(vc + 1)
        assert len(reader.elements) >= vc
        assert (await world.stub_of(world.keeper).DescribeServer(pb.DescribeServerRequest())).version


async def test_more_connections_than_the_limit_are_dropped_and_those_inside_stay() -> None:
    async with World(connections_max=3, merges=(MERGE,)) as world:
        a = await world.publisher("a")
        held = [await asyncio.open_connection("127.0.0.1", world.server.port) for _ in range(10)]
        ended = [asyncio.create_task(reader.read(1 << 16)) for reader, _ in held]
        dropped = 0
        while dropped < 8:
            dropped = sum(task.done() and (task.exception() is not None or not task.result()) for task in ended)
            await asyncio.sleep(0.005)
        assert (await a.merged(stable(3))).stable_point == 3
        for task, (_, writer) in zip(ended, held):
            task.cancel()
            writer.close()


async def test_more_http_connections_than_the_limit_close_those_that_wait_longest() -> None:
    async with World(http_port=0, http_connections_max=2) as world:
        held = [await asyncio.open_connection("127.0.0.1", world.server.http_port) for _ in range(5)]
        for reader, writer in held[:3]:
            with suppress(ConnectionError):
                assert await reader.read(100) == b""
            writer.close()
        for reader, writer in held[3:]:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200 OK" in await reader.readline()
            writer.close()


# On a server: sizes.


@pytest.mark.usefixtures("engine")
async def test_an_input_that_fills_a_merge_is_ended_and_the_others_lose_nothing() -> None:
    async with World(live_events_max=2_000, check_interval_s=0.01) as world:
        good, other = await world.publisher("good"), await world.publisher("other")
        reader = await world.subscriber()
        flood = await world.publisher("flood")
        for vs in range(1, 100):
            for publisher in (good, other, flood):
                await publisher.merged(ins("x", vs, vs + 2), stable(vs))
        ended = await fill(flood)
        assert ended.code == "limit-exceeded"
        assert "input 'flood' was ended" in ended.message
        assert "above the limit of 2000" in ended.message
        for vs in range(100, 200):
            for publisher in (good, other):
                await publisher.merged(ins("x", vs, vs + 2), stable(vs))
        for publisher in (good, other):
            await publisher.merged(stable(1_000_000))
        events = await reader.until_stable(1_000_000)
        assert [event.vs for event in events if event.payload == b"x"] == list(range(1, 200))
        described = await world.describe()
        assert sorted(i.replica for i in described.inputs) == ["good", "other"]
        assert described.live_events == 0


async def fill(publisher: RawPublisher) -> pb.PublishResponse.Detached:
    """Publish events and no stable until the server ends the input."""

    async def publish() -> None:
        for at in itertools.count(1):
            await publisher.send(*(ins(f"{at} {n}", 200 + at, 10_000_000) for n in range(100)))

    publishing = asyncio.create_task(publish())
    ending = await publisher.ending()
    publishing.cancel()  # a write that waits for room when the stream ends may wait for ever
    await asyncio.gather(publishing, return_exceptions=True)
    assert ending.detached is not None
    return ending.detached


async def test_a_merge_above_its_limit_harms_no_other_merge() -> None:
    async with World(live_events_max=1_000, check_interval_s=0.01) as world:
        quiet = await world.publisher("a", merge="quiet")
        only = await world.publisher("only")
        assert (await fill(only)).code == "limit-exceeded"
        assert (await quiet.merged(ins("x", 1, 2), stable(3))).stable_point == 3
        again = await world.publisher("only", join_at=0)
        assert again.accepted.algorithm
