"""The credentials that the client sends and those it never sends; renewed tokens and certificates; the command line."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from secure_world import FORGED, SecureWorld
from service_world import MERGE, World
from typer.testing import CliRunner

from lmerge.cli.main import app
from lmerge.client import (
    AsyncPublisher,
    AsyncSubscriber,
    Publisher,
    PublisherLimits,
    Security,
    Subscriber,
    describe_merge,
    describe_server,
    list_merges,
)
from lmerge.core.elements import INF, Element
from lmerge.errors import PermissionDenied, ServerGone, Unauthenticated, UsageError
from lmerge.service.security import tokens

TOKEN = "lmt_3f9a2c11_" + "0" * 64


async def until(claim: Callable[[], bool]) -> None:
    while not claim():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.005)


# What is never sent.


@pytest.mark.parametrize(
    "target",
    ["merge.example:7171", "10.0.0.1:7171", "[2001:db8::1]:7171", "dns:///merge.example:7171", "localhost.example:1"],
)
@pytest.mark.parametrize("how", ["token", "token_file"])
async def test_a_token_does_not_leave_the_machine_unencrypted(target: str, how: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    options: dict[str, Any] = {"token": TOKEN} if how == "token" else {"token_file": str(tmp_path / "token")}
    securities = (Security(**options).channel, lambda target: Security(**options).blocking_channel(target).__enter__())
    for channel in securities:
        with pytest.raises(UsageError) as caught:
            channel(target)
        assert f"the token would go to {target} without encryption" in str(caught.value)
        assert TOKEN not in str(caught.value)
    for more in ({"insecure": True}, {"tls": True}):
        await Security(**{**options, **more}).channel(target).close()
    await Security(**options).channel("127.0.0.1:0").close()


def test_a_secret_is_not_in_the_text_of_an_object_or_an_error(tmp_path: Path) -> None:
    assert TOKEN not in repr(Security(token=TOKEN))
    (tmp_path / "token").write_text(f"{TOKEN} {TOKEN}")
    for security in (Security(token_file=str(tmp_path / "token")), Security(token=TOKEN + "\n" + TOKEN)):
        with pytest.raises(UsageError, match="must hold one token") as caught:
            security.channel("localhost:0")
        assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cert": "x"}, "cert and key go together"),
        ({"key": "x"}, "cert and key go together"),
        ({"token": "x", "token_file": "y"}, "a token or a token_file, not both"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Security(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ca": "{folder}/nothing"}, "CA '{folder}/nothing' cannot be read: No such file"),
        ({"cert": "{folder}/nothing", "key": "{folder}/nothing"}, "certificate '{folder}/nothing' cannot be read"),
        ({"cert": "{folder}/authority.pem", "key": "{folder}/authority.pem"}, "cannot be used: not in PEM"),
        ({"token_file": "{folder}/nothing"}, "token file '{folder}/nothing' cannot be read: No such file"),
    ],
)
async def test_a_file_that_cannot_be_used_is_named(options: dict[str, str], message: str, tmp_path: Path) -> None:
    Authority(tmp_path)
    chosen: dict[str, Any] = {name: value.format(folder=tmp_path) for name, value in options.items()}
    security = Security(**chosen)
    with pytest.raises(UsageError) as caught:
        security.channel("localhost:0")
    assert message.format(folder=tmp_path) in str(caught.value)
    publisher = AsyncPublisher("localhost:0", MERGE, "a", security=security)
    with pytest.raises(UsageError):
        await publisher.open()


def test_the_environment_supplies_what_the_caller_left_out() -> None:
    environment = {"LMERGE_CA": "c", "LMERGE_TOKEN": "t", "LMERGE_TLS": "1"}
    assert Security.from_environment({}) is None
    assert Security.from_environment({}, ca=None, tls=False) is None
    assert Security.from_environment(environment) == Security(ca="c", token="t", tls=True)
    over = Security.from_environment(environment, ca="d", token_file="f")
    assert over == Security(ca="d", token_file="f", tls=True)


# On a server.


@pytest.mark.usefixtures("client_transport")
async def test_a_publisher_and_a_subscriber_work_through_tls_with_tokens(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        ca = world.authority.path
        a = Security(ca=ca, token=world.token("a", ["publish"]))
        board = Security(ca=ca, token=world.token("board", ["subscribe"]))
        async with AsyncPublisher(world.target, MERGE, "a", properties=["key"], security=a) as publisher:
            await publisher.insert(b"x", 1, 5)
            await publisher.stable(10)
            await publisher.flush()
            subscriber = AsyncSubscriber(world.target, MERGE, security=board)
            async for batch in subscriber.batches():
                if batch.count and subscriber.stable_point >= 10:
                    break
        assert subscriber.stable_point == 10


@pytest.mark.usefixtures("client_transport")
async def test_what_the_server_has_against_a_caller_is_an_error_of_its_own_kind(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        ca = world.authority.path
        a = Security(ca=ca, token=world.token("a", ["publish"]))
        for security, replica, kind, message in (
            (Security(ca=ca), "a", Unauthenticated, "no credentials came"),
            (Security(ca=ca, token=FORGED), "a", Unauthenticated, "not in the access file of this server"),
            (a, "b", PermissionDenied, "may not publish into merge 'flights' as replica 'b'"),
        ):
            with pytest.raises(kind, match=message):
                await AsyncPublisher(world.target, MERGE, replica, security=security).open()
        with pytest.raises(PermissionDenied, match="may not subscribe to merge 'flights'"):
            async for _ in AsyncSubscriber(world.target, MERGE, security=a).batches():
                pass
        limits = PublisherLimits(give_up_after_s=0.05)
        with pytest.raises(ServerGone):
            await AsyncPublisher(world.target, MERGE, "a", limits=limits).open()  # not even TLS


def ask_everything(target: str, security: Security) -> tuple[str, list[str]]:
    describe_merge(target, MERGE, security=security)
    merges = [merge.merge for merge in list_merges(target, security=security)]
    return str(describe_server(target, security=security).transport_security), merges


@pytest.mark.usefixtures("client_transport")
async def test_questions_carry_the_token_and_the_certificate(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, mtls=True, merges=(MERGE,)) as world:
        pair = world.authority.issue("plain")
        security = Security(ca=world.authority.path, token=world.keeper, **pair._asdict())
        output = await asyncio.to_thread(ask_everything, world.target, security)
        assert output == ("mtls", [MERGE])
        without = Security(ca=world.authority.path, **pair._asdict())
        with pytest.raises(Unauthenticated):
            await asyncio.to_thread(list_merges, world.target, security=without)


@pytest.mark.usefixtures("client_transport")
async def test_a_token_on_loopback_needs_no_tls(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    token = tokens.make(path, "a", ["publish"], [MERGE])
    async with World(access_path=str(path)) as world:
        target = f"127.0.0.1:{world.server.port}"
        async with AsyncPublisher(target, MERGE, "a", security=Security(token=token)) as publisher:
            await publisher.flush()
        with pytest.raises(Unauthenticated):
            await AsyncPublisher(target, MERGE, "a").open()


# What is renewed.


@pytest.mark.usefixtures("client_transport")
async def test_a_token_that_is_renewed_in_its_file_goes_on_without_a_restart(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        file = tmp_path / "a.token"
        first = world.token("a", ["publish", "subscribe"])
        file.write_text(f"{first}\n")
        security = Security(ca=world.authority.path, token_file=str(file))
        subscriber = AsyncSubscriber(world.target, MERGE, security=security)
        events: list[Element] = []

        async def read() -> None:
            async for batch in subscriber.batches():
                events.extend(element for element in batch.elements() if hasattr(element, "ve"))

        reading = asyncio.create_task(read())
        async with AsyncPublisher(world.target, MERGE, "a", properties=["key"], security=security) as publisher:
            await publisher.insert(b"x", 1, 50)
            await publisher.stable(1)
            await publisher.flush()
            file.write_text(world.token("a", ["publish", "subscribe"]))
            tokens.revoke(world.access_path, first[4:12])
            await until(lambda: publisher.reconnects == 1)
            await publisher.insert(b"y", 2, 60)
            await publisher.stable(100)
            await publisher.flush()
            await until(lambda: subscriber.stable_point == 100)
        assert publisher.reconnects == 1
        assert subscriber.gaps == []
        assert sorted({event.payload for event in events}) == [b"x", b"y"]
        subscriber.close()
        await reading


@pytest.mark.usefixtures("client_transport")
async def test_a_publisher_whose_token_is_revoked_fails_with_the_reason(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        security = Security(ca=world.authority.path, token=world.token("a", ["publish"]))
        publisher = await AsyncPublisher(world.target, MERGE, "a", security=security).open()
        tokens.revoke(world.access_path, "a")
        await until(lambda: publisher.failure is not None)
        with pytest.raises(Unauthenticated, match="has been revoked"):
            await publisher.flush()


@pytest.mark.usefixtures("client_transport")
async def test_a_client_certificate_that_is_renewed_is_shown_from_the_next_call_on(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, access=False, mtls=True, merges=(MERGE,)) as world:
        pair = world.authority.issue("a", uris=["lmerge://other?roles=subscribe"])
        channel = world.new_channel(pair=pair)
        reader = AsyncSubscriber(world.target, MERGE, security=Security(ca=world.authority.path, **pair._asdict()))
        with pytest.raises(PermissionDenied):
            async for _ in reader.batches():
                pass
        call = channel.unary_unary("/lmerge.v1.Lmerge/DescribeMerge")
        request = b"\x0a" + bytes([len(MERGE)]) + MERGE.encode()
        with pytest.raises(Exception, match="may not describe merge 'flights'"):
            await call(request)
        world.authority.issue("a", uris=[f"lmerge://{MERGE}?roles=subscribe"])
        assert await call(request)
        await channel.close()


# Through the command line, and in threads.


def published(target: str, security: Security) -> list[Any]:
    with Publisher(target, MERGE, "a", properties=["key"], security=security) as publisher:
        publisher.insert(b"x", 1, 5)
        publisher.stable(2**63 - 1)
        publisher.flush()
        with Subscriber(target, MERGE, security=security) as subscriber:
            return list(subscriber)


@pytest.mark.usefixtures("client_transport")
async def test_the_blocking_client_takes_security_too(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        security = Security(ca=world.authority.path, token=world.token("a", ["publish", "subscribe"]))
        assert len(await asyncio.to_thread(published, world.target, security)) >= 1


@pytest.mark.usefixtures("client_transport")
async def test_commands_take_security_from_options_and_the_environment(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, merges=(MERGE,)) as world:
        file = tmp_path / "keeper.token"
        file.write_text(world.keeper)
        run = CliRunner().invoke
        server = ["status", "--json", "--server", world.target]
        options = ["--ca", world.authority.path, "--token-file", str(file)]
        result = await asyncio.to_thread(run, app, [*server, *options])
        assert json.loads(result.output)["transport_security"] == "tls"
        environment = {"LMERGE_CA": world.authority.path, "LMERGE_TOKEN": world.keeper}
        result = await asyncio.to_thread(run, app, server, env=environment)
        assert json.loads(result.output)["tokens_required"] is True
        result = await asyncio.to_thread(run, app, [*server, "--ca", world.authority.path])
        assert isinstance(result.exception, Unauthenticated)


@pytest.mark.usefixtures("client_transport")
@pytest.mark.parametrize("given", ["options", "environment", "nothing"])
async def test_a_replica_that_comes_with_lmerge_takes_it_too(tmp_path: Path, given: str) -> None:
    async with SecureWorld(tmp_path) as world:
        file = tmp_path / "a.token"
        file.write_text(world.token("a", ["publish", "status"]))
        options, environment = [], {"LMERGE_CA": world.authority.path}
        if given == "options":
            options, environment = ["--ca", world.authority.path, "--token-file", str(file)], {}
        elif given == "environment":
            environment["LMERGE_TOKEN"] = file.read_text()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "lmerge",
            "replica",
            "run",
            "conservative",
            "--server",
            world.target,
            "--replica",
            "a",
            "--speed",
            "1000",
            "--start",
            "0",
            "--first",
            "2013-02-08",
            "--last",
            "2013-02-08",
            *options,
            env=os.environ | environment,
            stderr=asyncio.subprocess.PIPE,
        )
        _, output = await process.communicate()
        if given == "nothing":
            assert process.returncode == 1
            assert b"no credentials came" in output
        else:
            assert (process.returncode, output) == (0, b"")
            reader = Security(ca=world.authority.path, token=world.keeper)
            described = await asyncio.to_thread(describe_merge, world.target, MERGE, security=reader)
            assert described.summary.stable_point == INF
