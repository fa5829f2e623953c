"""Which transport a channel has, and what the native one accepts of certificates and of forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from certificates import DAY, Authority, self_signed
from client_world import MERGE, World, threaded_world

from lmerge.client import AsyncPublisher, Security
from lmerge.client.connection import channels
from lmerge.core.engines import selection
from lmerge.errors import UsageError


async def kind(target: str) -> str:
    async with channels.open_channel(target) as channel:
        return type(channel).__name__


@pytest.mark.parametrize("engine", [selection.NATIVE], indirect=True)
async def test_it_is_native_unless_grpc_alone_can_connect(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in ("merge.example:7171", "10.0.0.1:7171", "[2001:db8::1]:7171"):
        assert await kind(target) == "NativeChannel"
    for target in ("unix:/tmp/socket", "dns:///merge.example:7171", "ipv4:10.0.0.1:7171", "[fe80::1%eth0]:7171"):
        assert await kind(target) == "Channel"
    for variable in ("grpc_proxy", "https_proxy", "http_proxy"):
        with monkeypatch.context() as patched:
            patched.setenv("no_proxy", "10.0.0.1,.inside")
            patched.setenv(variable, "http://proxy.example:3128")
            assert await kind("merge.example:7171") == "Channel"
            assert await kind("10.0.0.1:7171") == await kind("merge.inside:7171") == "NativeChannel"


@pytest.mark.parametrize("engine", [selection.PYTHON], indirect=True)
async def test_it_is_grpc_where_the_engine_is_that_of_python(engine: str) -> None:
    assert await kind("merge.example:7171") == "Channel"


async def test_a_choice_that_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(channels.VARIABLE, "quic")
    with pytest.raises(UsageError, match="LMERGE_CLIENT_TRANSPORT is 'quic'; it is auto, native, grpc"):
        channels.open_channel("merge.example:7171")
    monkeypatch.setenv(channels.VARIABLE, channels.NATIVE)
    monkeypatch.setattr(selection, "native_problem", lambda: "it is not built")
    with pytest.raises(UsageError, match="the native transport cannot be used: it is not built"):
        channels.open_channel("merge.example:7171")


@pytest.mark.usefixtures("native_engine")
def test_the_native_transport_is_refused_for_an_address_of_grpc_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(channels.VARIABLE, channels.NATIVE)
    with pytest.raises(UsageError, match=r"the native transport cannot be used: .*one of gRPC's own forms"):
        channels.open_channel("unix:/tmp/socket")


def test_without_a_list_of_authorities_grpc_uses_its_own(
    native_engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("lmerge.client.connection.security._SYSTEM_CA", ())
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nothing"))
    monkeypatch.setattr("ssl.DefaultVerifyPaths.cafile", None)
    certificates = Security(tls=True).certificates("merge.example:7171")
    assert certificates.ca is None
    assert channels._problem_of_native("merge.example:7171", certificates) is not None


# Certificates.


@pytest.mark.usefixtures("client_transport")
async def test_a_certificate_that_is_its_own_authority_is_accepted_for_its_names(tmp_path: Path) -> None:
    pair = self_signed(tmp_path, ["localhost"])
    async with World(tls_cert=pair.cert, tls_key=pair.key) as world:
        port = world.server.port
        async with AsyncPublisher(f"localhost:{port}", MERGE, "a", security=Security(ca=pair.cert)) as publisher:
            await publisher.stable(1)
            await publisher.flush()
        named = Security(ca=pair.cert, server_name="localhost")
        async with AsyncPublisher(f"127.0.0.1:{port}", MERGE, "b", security=named) as publisher:
            await publisher.stable(1)
            await publisher.flush()
        for security, target in (
            (Security(ca=pair.cert), f"127.0.0.1:{port}"),
            (Security(ca=Authority(tmp_path).path), f"localhost:{port}"),
        ):
            assert await refusal(security, target)


@pytest.mark.usefixtures("client_transport")
@pytest.mark.parametrize("age_days", [-1, 3])
async def test_its_dates_are_checked(tmp_path: Path, age_days: int) -> None:
    pair = self_signed(tmp_path, ["localhost"], age=age_days * DAY)
    async with World(tls_cert=pair.cert, tls_key=pair.key) as world:
        assert await refusal(Security(ca=pair.cert), f"localhost:{world.server.port}")


async def test_files_without_a_certificate_are_refused_at_once(native_engine: str, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(UsageError, match=r"certificates for localhost:0 cannot be used: the authorities: there is no"):
        Security(ca=str(tmp_path / "ca.pem")).channel("localhost:0")
    with pytest.raises(UsageError, match="is no name of a server"):
        Security(ca=Authority(tmp_path).path, server_name="no name").channel("localhost:0")


async def refusal(security: Security, target: str) -> str:
    """Return why a call cannot connect."""
    async with security.channel(target) as channel:
        call = channel.unary_unary("/lmerge.v1.Lmerge/DescribeServer")(b"")
        assert (await call.code()).name == "UNAVAILABLE"
        return str(await call.details())


# Forks.


def test_a_child_leaves_the_connection_to_its_parent(native_engine: str) -> None:
    code = (
        "import gc, os, sys, lmerge\n"
        "publisher = lmerge.Publisher(sys.argv[1], 'flights', 'a').open()\n"
        "publisher.insert('x', 1)\n"
        "publisher.flush()\n"
        "if os.fork() == 0:\n"
        "    del publisher\n"
        "    gc.collect()\n"
        "    sys.exit(0)\n"
        "assert os.wait()[1] == 0\n"
        "publisher.insert('y', 2)\n"
        "publisher.flush()\n"
        "print(publisher.reconnects)\n"
    )
    with threaded_world() as world:
        command = [sys.executable, "-c", code, world.target]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_a_child_that_closes_a_channel_closes_nothing_of_its_parent(native_engine: str) -> None:
    code = (
        "import asyncio, os, sys\n"
        "from lmerge.client.connection import channels\n"
        "async def main():\n"
        "    async with channels.open_channel(sys.argv[1]) as channel:\n"
        "        ask = channel.unary_unary('/lmerge.v1.Lmerge/DescribeServer')\n"
        "        await ask(b'')\n"
        "        if os.fork() == 0:\n"
        "            await channel.close()\n"
        "            os._exit(0)\n"
        "        print(os.wait()[1], len(bytes(await ask(b''))) > 0)\n"
        "asyncio.run(main())\n"
    )
    with threaded_world() as world:
        command = [sys.executable, "-c", code, world.target]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "0 True\n", "")
