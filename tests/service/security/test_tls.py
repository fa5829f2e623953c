"""Certificates on both ports: which clients are accepted, which versions, and how changed files are read."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from pathlib import Path
from shutil import move
from typing import Any

import aiohttp
import grpc
import pytest
from certificates import DAY, Authority, Pair
from secure_world import SecureWorld, connect_and_go, refused
from service_world import MERGE, World, ins, stable

from lmerge.client.connection import channels
from lmerge.errors import UsageError
from lmerge.loopback import host_of, is_loopback
from lmerge.service.security.tls import TlsFiles
from lmerge.service.server import Server
from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb

pytestmark = pytest.mark.usefixtures("transport")

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


async def subject_at(port: int | None) -> bytes:
    """Return the certificate that the server shows to a new connection."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.transport.abort()
    return bytes(shown)


def der(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(Path(pair.cert).read_text())


def spoil(path: Path, content: str | None) -> None:
    path.unlink() if content is None else path.write_text(content)


# Which clients are accepted.


async def test_a_client_with_the_right_authority_gets_in_and_gets_the_kind_of_security(tmp_path: Path) -> None:
    for mtls, access, security in ((False, True, "tls"), (True, False, "mtls"), (True, True, "mtls")):
        async with SecureWorld(tmp_path, mtls=mtls, access=access) as world:
            pair = world.authority.issue("watcher", uris=["lmerge://*?roles=status"])
            stub = world.stub_of(world.keeper if access else None, pair if mtls else None)
            described = await stub.DescribeServer(pb.DescribeServerRequest())
            assert (described.transport_security, described.tokens_required) == (security, access)
    async with World() as world:
        described = await world.stub.DescribeServer(pb.DescribeServerRequest())
        assert (described.transport_security, described.tokens_required) == ("none", False)


async def test_a_client_without_the_authority_sends_no_token(tmp_path: Path, client_transport: str) -> None:
    why = {channels.GRPC: "CERTIFICATE_VERIFY_FAILED", channels.NATIVE: "UnknownIssuer"}[client_transport]
    async with SecureWorld(tmp_path) as world:
        other = Authority(tmp_path, "other")
        channel = world.new_channel(world.keeper, ca=other.path)
        with refused(UNAVAILABLE, why):
            await channel.unary_unary("/lmerge.v1.Lmerge/DescribeServer")(b"")


@pytest.mark.usefixtures("client_transport")
async def test_a_server_of_another_name_is_not_trusted(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        for name, is_believed in (("elsewhere.example", False), ("localhost", True)):
            channel = world.new_channel(world.keeper, server_name=name)
            call = channel.unary_unary("/lmerge.v1.Lmerge/DescribeServer")
            if is_believed:
                assert await call(b"")
            else:
                with refused(UNAVAILABLE):
                    await call(b"")


async def test_client_certificates_of_others_or_of_another_time_do_not_get_in(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, access=False, mtls=True) as world:
        everything = ["lmerge://*?roles=status"]
        wrong = {
            "of another authority": Authority(tmp_path, "other").issue("other", uris=everything),
            "expired": world.authority.issue("old", uris=everything, age=3 * DAY, lifetime=2 * DAY),
            "of next year": world.authority.issue("early", uris=everything, age=-365 * DAY),
            "signed by itself": Authority(tmp_path, "self").issue("self", uris=everything),
            "none": None,
        }
        for kind, pair in wrong.items():
            call = world.stub_of(pair=pair).DescribeServer(pb.DescribeServerRequest())
            assert await call.code() is UNAVAILABLE, kind
        right = world.authority.issue("right", uris=everything, lifetime=DAY + datetime.timedelta(minutes=5))
        assert (await world.stub_of(pair=right).DescribeServer(pb.DescribeServerRequest())).version


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("port", ["port", "http_port"])
async def test_nothing_older_than_tls_1_2_is_accepted(port: str, tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, http_port=0) as world:
        for version, is_accepted in ((ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(world.authority.path)
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = version
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.set_alpn_protocols(["h2", "http/1.1"])
            opening = asyncio.open_connection("127.0.0.1", getattr(world.server, port), ssl=context)
            if is_accepted:
                _, writer = await opening
                assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
                writer.transport.abort()
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await opening


async def test_plain_text_is_refused_where_there_is_tls(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, http_port=0) as world:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{world.server.port}") as channel:
            with refused(UNAVAILABLE):
                describe: Any = channel.unary_unary("/lmerge.v1.Lmerge/DescribeServer")
                await describe(b"", wait_for_ready=False)
        async with aiohttp.ClientSession() as http:
            with pytest.raises(aiohttp.ClientError):
                await http.get(f"http://127.0.0.1:{world.server.http_port}/healthz")


# Files that change.


async def test_new_certificates_are_taken_by_both_ports_without_a_restart(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, http_port=0) as world:
        server, before = world.server, der(world.server_pair)
        a = await world.publisher("a", stub=world.stub_of(world.token("a", ["publish"])))
        assert await subject_at(server.port) == await subject_at(server.http_port) == before
        after = der(world.authority.issue_server())  # the same files
        assert after != before
        for port in (server.http_port, server.port):
            while await subject_at(port) != after:
                pass
        assert (await a.merged(ins("x", 1, 2), stable(3))).stable_point == 3  # open streams go on
        context = ssl.create_default_context(cafile=world.authority.path)
        async with aiohttp.ClientSession() as http:
            for _ in range(3):
                async with http.get(f"https://127.0.0.1:{server.http_port}/healthz", ssl=context) as page:
                    assert page.status == 200


async def test_a_new_client_authority_replaces_the_old_one(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, access=False, mtls=True) as world:
        uris = ["lmerge://*?roles=status"]
        old = world.authority.issue("old", uris=uris)
        await world.stub_of(pair=old).ListMerges(pb.ListMergesRequest())
        other = Authority(tmp_path, "other")
        new = other.issue("new", uris=uris)
        move(world.authority.path, tmp_path / "kept.pem")
        move(other.path, world.authority.path)
        world.server._guard.check()

        async def code_for(pair: Pair) -> grpc.StatusCode:
            channel = world.new_channel(pair=pair, ca=str(tmp_path / "kept.pem"))
            code: grpc.StatusCode = await channel.unary_unary("/lmerge.v1.Lmerge/ListMerges")(b"").code()
            return code

        while await code_for(new) is not grpc.StatusCode.OK:
            pass
        assert await code_for(old) is UNAVAILABLE


async def test_certificates_change_while_clients_connect_and_nothing_breaks(tmp_path: Path) -> None:
    """gRPC frees the old certificate while handshakes may be about to use it: see ``TlsFiles``."""
    async with SecureWorld(tmp_path) as world:
        loop, port = asyncio.get_running_loop(), world.server.port
        crowds = [loop.run_in_executor(None, connect_and_go, port, 3_000) for _ in range(2)]
        while not all(crowd.done() for crowd in crowds):
            world.authority.issue_server()
            assert world.server._guard.check()
            call = world.stub_of(world.keeper).DescribeServer(pb.DescribeServerRequest())
            assert await call.code() is grpc.StatusCode.OK
        after = der(world.server_pair)
        world.server._guard.check()
        while await subject_at(port) != after:
            pass


def test_files_that_do_not_fit_together_leave_the_last_good_ones(tmp_path: Path, caplog: Any) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue_server()
    files = TlsFiles(pair.cert, pair.key, authority.path)
    context = files.http_context
    fresh = authority.issue_server("fresh")
    Path(fresh.cert).replace(pair.cert)  # its key is not replaced yet
    assert not files.refresh()
    assert not files.refresh()
    assert "key values mismatch" in str(files.problem)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert files.http_context is context
    Path(fresh.key).replace(pair.key)
    assert files.refresh()
    assert files.problem is None
    assert files.http_context is not context
    Path(authority.path).write_text("no certificate")
    assert not files.refresh()
    assert "client CA" in str(files.problem)


def test_a_file_that_is_replaced_behind_a_link_is_seen(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for name in ("one", "two"):
        pair = authority.issue_server(name)
        (tmp_path / f"{name}.d").mkdir()
        Path(pair.cert).rename(tmp_path / f"{name}.d/tls.pem")
        Path(pair.key).rename(tmp_path / f"{name}.d/tls.key")
    (tmp_path / "now").symlink_to("one.d")
    files = TlsFiles(str(tmp_path / "now/tls.pem"), str(tmp_path / "now/tls.key"))
    (tmp_path / "next").symlink_to("two.d")
    (tmp_path / "next").rename(tmp_path / "now")
    assert files.refresh()


@pytest.mark.parametrize(
    ("which", "content", "message"),
    [
        ("cert", None, "certificate '{path}' cannot be read: No such file"),
        ("key", None, "key '{path}' cannot be read: No such file"),
        ("tls_client_ca", None, "client CA '{path}' cannot be read: No such file"),
        ("cert", "x", "cannot be used: not in PEM"),
        ("key", "x", "cannot be used: "),
        ("tls_client_ca", "x", "client CA '{path}' cannot be used: "),
        ("cert", "x" * (2**20 + 1), "is larger than 1048576 bytes"),
        ("key", "-----BEGIN ENCRYPTED PRIVATE KEY-----", "cannot be used: "),
    ],
)
async def test_files_that_cannot_be_used_are_named_and_the_server_does_not_start(
    which: str, content: str | None, message: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue_server()
    path = Path({"cert": pair.cert, "key": pair.key}.get(which, authority.path))
    spoil(path, content)
    settings = Settings(tls_cert=pair.cert, tls_key=pair.key, tls_client_ca=authority.path, http_port=None)
    with pytest.raises(UsageError) as caught:
        await Server(settings).start()
    assert message.format(path=path) in str(caught.value)
    assert "xxx" not in str(caught.value)


# Settings without encryption.


@pytest.mark.parametrize(
    ("settings", "texts"),
    [
        (
            {"host": "0.0.0.0"},
            ["cannot listen on 0.0.0.0", "would not be encrypted", "anybody could publish", "insecure"],
        ),
        ({"host": "::"}, ["cannot listen on ::", "would not be encrypted"]),
        ({"host": "192.0.2.7"}, ["cannot listen on 192.0.2.7"]),
        ({"host": "merge.example"}, ["cannot listen on merge.example"]),
        ({"host": ""}, ["cannot listen on "]),
        ({"host": "0.0.0.0", "access_path": "x"}, ["would not be encrypted"]),
        ({"host": "0.0.0.0", "tls_cert": "x", "tls_key": "y"}, ["anybody could publish and read"]),
        ({"tls_cert": "x"}, ["tls_cert and tls_key go together"]),
        ({"tls_key": "x"}, ["tls_cert and tls_key go together"]),
        ({"tls_client_ca": "x"}, ["tls_client_ca needs tls_cert and tls_key"]),
        ({"check_interval_s": 0.0}, ["check_interval_s must be above 0"]),
    ],
)
def test_settings_that_would_leave_access_open_are_refused(settings: dict[str, Any], texts: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        Server(Settings(**settings))
    assert all(text in str(caught.value) for text in texts)


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "0.0.0.0", "insecure": True},
        {"host": "0.0.0.0", "tls_cert": "x", "tls_key": "y", "access_path": "z"},
        {"host": "::", "tls_cert": "x", "tls_key": "y", "tls_client_ca": "z"},
        {"host": "127.0.0.1"},
        {"host": "::1"},
        {"host": "localhost"},
        {"access_path": "z"},
    ],
)
def test_settings_that_leave_nothing_open_or_set_insecure_are_accepted(settings: dict[str, Any]) -> None:
    Settings(**settings).validate()


def test_only_addresses_that_never_leave_the_machine_are_loopback() -> None:
    for host in ("127.0.0.1", "127.255.0.9", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"):
        assert is_loopback(host), host
    for host in ("0.0.0.0", "::", "", "10.0.0.1", "128.0.0.1", "::ffff:8.8.8.8", "0x7f.1", "127.1"):
        assert not is_loopback(host), host
    for host in ("localhost.example", "127.0.0.1.example"):
        assert not is_loopback(host), host


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("merge.example:7171", "merge.example"),
        ("[::1]:0", "::1"),
        ("::1", "::1"),
        ("localhost", "localhost"),
        ("dns:///merge.example:7171", "merge.example"),
        ("dns:merge.example:7171", "merge.example"),
        ("ipv4:10.0.0.1:5", "10.0.0.1"),
        ("ipv6:%5B::1%5D:5", "::1"),
        ("ipv6:[fe80::1%25eth0]:5", "fe80::1%eth0"),
        ("unix:/tmp/socket", "localhost"),
        ("127.0.0.1:0@evil.example:7171", "127.0.0.1:0@evil.example:7171"),
        ("passthrough:///evil.example:1", "passthrough:///evil.example:1"),
    ],
)
def test_the_host_of_an_address_is_found(address: str, host: str) -> None:
    assert host_of(address) == host


async def test_a_server_on_loopback_without_security_goes_on_as_ever() -> None:
    async with World() as world:
        a = await world.publisher("a")
        reader = await world.subscriber()
        await a.merged(ins("x", 1, 2), stable(3))
        assert len(await reader.until_stable(3)) == 1
        assert [m.merge for m in (await world.stub.ListMerges(pb.ListMergesRequest())).merges] == [MERGE]
