"""A server that cannot be reached is reported, with the reason, once; and once more when it is reached."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from certificates import DAY, Authority
from client_world import MERGE, World

from lmerge.client import AsyncPublisher, AsyncSubscriber, PublisherLimits, Security, Subscriber, SubscriberLimits
from lmerge.client.connection import channels
from lmerge.client.connection.outage import ServerOutage
from lmerge.core.elements import INF
from lmerge.testing.sim.loop import later, run_virtual

SOON_S = 0.05
WRONG_NAME = "the server's certificate does not hold the name that the client calls"


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return a function that returns the warnings of clients so far."""
    return lambda: [
        r.getMessage() for r in caplog.records if r.name == "lmerge.client" and r.levelno >= logging.WARNING
    ]


async def until(claim: Callable[[], Any]) -> None:
    async def holds() -> None:
        while not claim():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)

    await asyncio.wait_for(holds(), 30)


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def subscribed(target: str, **options: Any) -> AsyncIterator[AsyncSubscriber]:
    limits = SubscriberLimits(report_after_s=SOON_S)
    async with AsyncSubscriber(target, MERGE, name="board", limits=limits, **options) as subscriber:
        subscriber.start()
        yield subscriber


# The rule, in virtual time.


def test_an_outage_is_one_warning_after_five_seconds_and_one_line_at_its_end(warnings: Callable[[], list[str]]) -> None:
    async def outages() -> list[int]:
        counts = []
        with ServerOutage("subscriber 'board'", "h:1", SubscriberLimits().report_after_s) as outage:
            for _ in range(2):
                for _ in range(49):
                    outage.attempt()
                    await later(0.1)
                    outage.failed("Connection refused")
                counts.append(len(warnings()))  # 4.9 s
                for _ in range(600):
                    outage.attempt()
                    await later(0.1)
                    outage.failed("Connection refused")
                counts.append(len(warnings()))
                outage.attempt()
                outage.reached()
                outage.reached()
                counts.append(len(warnings()))
        return counts

    assert run_virtual(outages()) == [0, 1, 2, 2, 3, 4]
    assert warnings()[:2] == [
        "subscriber 'board' has not reached server h:1 for 5 s, and goes on trying: Connection refused",
        "subscriber 'board' has reached server h:1, after 65 s",
    ]


def test_a_first_attempt_that_takes_long_is_reported_with_its_reason(warnings: Callable[[], list[str]]) -> None:
    async def hanging() -> None:
        with ServerOutage("publisher 'a'", "h:1", 5.0) as outage:
            outage.attempt()
            await later(7)
            outage.failed("Handshake read failed")
            outage.attempt()
            await later(60)

    run_virtual(hanging())
    assert warnings() == ["publisher 'a' has not reached server h:1 for 7 s, and goes on trying: Handshake read failed"]


def test_an_attempt_that_does_not_end_is_reported(warnings: Callable[[], list[str]]) -> None:
    async def hanging() -> None:
        with ServerOutage("publisher 'a'", "h:1", 5.0) as outage:
            outage.attempt()
            await later(60)

    run_virtual(hanging())
    assert warnings() == [
        "publisher 'a' has not reached server h:1 for 11 s, and goes on trying: no attempt has ended yet"
    ]


def test_short_outages_closed_clients_and_clients_without_reports_are_silent(warnings: Callable[[], list[str]]) -> None:
    async def outages() -> None:
        with ServerOutage("publisher 'a'", "h:1", 5.0) as outage:
            for _ in range(10):
                outage.attempt()
                outage.failed("Socket closed")
                await later(4.9)
                outage.reached()
            outage.attempt()
        with ServerOutage("publisher 'a'", "h:1", None) as outage:
            outage.attempt()
            await later(60)

    run_virtual(outages())
    assert warnings() == []


def test_a_warning_has_the_last_distinct_reasons_each_on_its_line_and_cut(warnings: Callable[[], list[str]]) -> None:
    async def outages() -> None:
        with ServerOutage("publisher 'a'", "h:1", 5.0) as outage:
            outage.attempt()
            for reason in ("first", "second", "\x1b[31mthird\n", "x" * 10_000, "second"):
                outage.failed(reason)
            await later(6)

    run_virtual(outages())
    reasons = rf"\x1b[31mthird\n; or {'x' * 500}; or second"
    assert warnings() == [f"publisher 'a' has not reached server h:1 for 5 s, and goes on trying: {reasons}"]


# Real servers and certificates.


@pytest.mark.usefixtures("client_transport")
async def test_a_name_that_the_certificate_does_not_hold_is_the_reason(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    authority = Authority(tmp_path)
    wrong, right = authority.issue("wrong", hosts=["merge.example"]), authority.issue_server("right")
    security = Security(ca=authority.path)
    async with (
        World(tls_cert=wrong.cert, tls_key=wrong.key) as world,
        subscribed(world.target, security=security) as subscriber,
    ):
        await until(warnings)
        first = warnings()[0]
        assert f"subscriber 'board' of merge '{MERGE}' has not reached server {world.target} for " in first
        assert f", and goes on trying: {WRONG_NAME} (" in first
        world.settings |= {"tls_cert": right.cert, "tls_key": right.key}
        await world.restart()
        async with AsyncPublisher(world.target, MERGE, "a", security=security) as publisher:
            await publisher.stable(INF)
        assert [element async for element in subscriber.elements()]
    assert len(warnings()) == 2
    assert f"subscriber 'board' of merge '{MERGE}' has reached server {world.target}, after " in warnings()[1]


async def test_a_ca_that_did_not_sign_the_server_is_the_reason(
    tmp_path: Path, warnings: Callable[[], list[str]], client_transport: str
) -> None:
    pair, other = Authority(tmp_path).issue_server(), Authority(tmp_path, "other")
    async with (
        World(tls_cert=pair.cert, tls_key=pair.key) as world,
        subscribed(world.target, security=Security(ca=other.path)),
    ):
        await until(warnings)
    assert "no CA that the client trusts has signed the server's certificate" in warnings()[0]
    detail = {channels.GRPC: "CERTIFICATE_VERIFY_FAILED", channels.NATIVE: "UnknownIssuer"}[client_transport]
    assert detail in warnings()[0]


@pytest.mark.usefixtures("client_transport")
async def test_a_server_that_does_not_encrypt_is_the_reason(tmp_path: Path, warnings: Callable[[], list[str]]) -> None:
    async with World() as world, subscribed(world.target, security=Security(ca=Authority(tmp_path).path)):
        await until(warnings)
    assert "the server does not encrypt, and the client does" in warnings()[0]


@pytest.mark.usefixtures("client_transport")
async def test_a_certificate_that_has_expired_is_the_reason(tmp_path: Path, warnings: Callable[[], list[str]]) -> None:
    authority = Authority(tmp_path)
    old = authority.issue("old", hosts=["127.0.0.1"], age=3 * DAY, lifetime=DAY)
    async with (
        World(tls_cert=old.cert, tls_key=old.key) as world,
        subscribed(world.target, security=Security(ca=authority.path)),
    ):
        await until(warnings)
    assert "the server's certificate has expired" in warnings()[0]


@pytest.mark.usefixtures("native_engine")  # gRPC has several reasons for it
async def test_a_certificate_of_the_client_that_is_missing_is_the_reason(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue_server()
    async with (
        World(tls_cert=pair.cert, tls_key=pair.key, tls_client_ca=authority.path) as world,
        subscribed(world.target, security=Security(ca=authority.path)),
    ):
        await until(warnings)
    assert "a certificate of the client" in warnings()[0]


@pytest.mark.usefixtures("client_transport")
async def test_a_client_that_does_not_encrypt_is_reported(tmp_path: Path, warnings: Callable[[], list[str]]) -> None:
    pair = Authority(tmp_path).issue_server()
    async with World(tls_cert=pair.cert, tls_key=pair.key) as world, subscribed(world.target):
        await until(warnings)
    assert "the server may require TLS" in warnings()[0]


@pytest.mark.usefixtures("client_transport")
async def test_the_port_for_http_is_the_reason(warnings: Callable[[], list[str]]) -> None:
    async with World(http_port=0) as world, subscribed(f"127.0.0.1:{world.server.http_port}"):
        await until(warnings)
    assert "this port is one for HTTP; the server has another one for gRPC" in warnings()[0]


async def test_a_name_that_does_not_resolve_is_the_reason(
    warnings: Callable[[], list[str]], client_transport: str
) -> None:
    async with subscribed("no.such.name.invalid:7171"):
        await until(warnings)
    assert "server no.such.name.invalid:7171 for" in warnings()[0]
    detail = {channels.GRPC: "no.such.name.invalid", channels.NATIVE: "failed to lookup address"}[client_transport]
    assert detail in warnings()[0].split("goes on trying: ")[1]


@pytest.mark.usefixtures("client_transport")
async def test_a_server_that_connects_and_refuses_every_call_is_an_outage(warnings: Callable[[], list[str]]) -> None:
    async def refuse(_: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "no healthy upstream")

    class Refusing(grpc.GenericRpcHandler):
        def service(self, _: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(refuse)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers([Refusing()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with subscribed(f"127.0.0.1:{port}"):
            await until(warnings)
    finally:
        await server.stop(None)
    assert warnings()[0].endswith("no healthy upstream")


async def test_one_of_two_servers_is_reported_once_while_the_other_serves(warnings: Callable[[], list[str]]) -> None:
    away = f"127.0.0.1:{unused_port()}"
    limits = PublisherLimits(report_after_s=SOON_S)
    async with World() as world, subscribed(f"{world.target},{away}") as subscriber:
        async with AsyncPublisher(f"{world.target},{away}", MERGE, "a", limits=limits) as publisher:
            await publisher.insert(b"x", 1, 9)
            await until(lambda: len(warnings()) >= 2)
            await publisher.stable(INF)
        assert [element async for element in subscriber.elements()]
    assert len(warnings()) == 2
    assert sorted(text.split(" has not reached ")[0] for text in warnings()) == [
        f"publisher 'a' of merge '{MERGE}'",
        f"subscriber 'board' of merge '{MERGE}'",
    ]
    assert all(f"server {away} for" in text for text in warnings())


async def test_a_merge_that_is_not_there_yet_is_no_outage(warnings: Callable[[], list[str]]) -> None:
    async with World(merges=()) as world, subscribed(world.target) as subscriber:
        async with subscribed(f"127.0.0.1:{unused_port()}"):  # began later, so the first one had time for a report
            await until(warnings)
        async with AsyncPublisher(world.target, MERGE, "a") as publisher:
            await publisher.stable(INF)
        assert [element async for element in subscriber.elements()]
    assert len(warnings()) == 1


def test_a_blocking_client_reports_too() -> None:
    target = f"127.0.0.1:{unused_port()}"
    log = logging.getLogger("lmerge.client")
    with Subscriber(target, MERGE, limits=SubscriberLimits(report_after_s=SOON_S)) as subscriber:
        closes = _Closes(subscriber)
        log.addHandler(closes)
        try:
            assert list(subscriber) == []
        finally:
            log.removeHandler(closes)
    assert closes.texts[0].startswith(f"subscriber of merge '{MERGE}' has not reached server {target} for ")


class _Closes(logging.Handler):
    """Closes a subscriber at the first warning."""

    def __init__(self, subscriber: Subscriber) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self._subscriber = subscriber

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self._subscriber.close()


@pytest.mark.parametrize("command", ["subscribe", "publish"])
async def test_a_command_prints_the_reason_on_standard_error(command: str) -> None:
    target = f"127.0.0.1:{unused_port()}"
    command_line = [sys.executable, "-m", "lmerge", command, MERGE, "--server", target]
    process = await asyncio.create_subprocess_exec(
        *command_line, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdin is not None
        process.stdin.write(b'["insert", "x", 1, 9]\n')
        assert process.stderr is not None
        line = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
        assert line.startswith("lmerge: ")
        assert f" of merge '{MERGE}' has not reached server {target} for " in line
        assert "Connection refused" in line
    finally:
        os.kill(process.pid, signal.SIGKILL)
        await process.communicate()
