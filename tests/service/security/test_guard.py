"""Every method of a server, with every kind of caller: no unauthenticated caller can attach, read or administer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from certificates import Pair
from grpc.aio import _server as aio_server
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from secure_world import FORGED, SecureWorld, refused
from service_world import EOF, MERGE, RawPublisher, RawReader, World, ins, retried_without_status, stable

from lmerge.service.choices import AccessRole, TransportChoice
from lmerge.service.security.guard import ACCESS_RULES
from lmerge.service.server import SERVICE, Server
from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb

pytestmark = pytest.mark.usefixtures("transport")

Call = Callable[[Any], Awaitable[None]]
PUBLISH, SUBSCRIBE, STATUS, ADMIN = ROLES = tuple(AccessRole)
UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
HEALTH = "grpc.health.v1.Health"
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"


@retried_without_status
async def publish(stub: Any, replica: str = "a") -> None:
    publisher = RawPublisher(stub.Publish())
    await publisher.attach(replica, MERGE)
    assert (await publisher.call.read()).accepted.algorithm
    publisher.call.cancel()


async def subscribe(stub: Any) -> None:
    reader = RawReader(stub.Subscribe(pb.SubscribeRequest(merge=MERGE)))
    await reader.read_snapshot()
    reader.call.cancel()


FROM_AND_TO: dict[str, Any] = {"from": "nobody", "to": "no one"}  # `from` is a keyword of Python


async def cut_over(stub: Any) -> None:
    async for _ in stub.Cutover(pb.CutoverRequest(merge=MERGE, **FROM_AND_TO)):
        pass


@retried_without_status
async def stage(stub: Any, replica: str = "a") -> None:
    opened = pb.StageRequest.Open(merge=MERGE, replica=replica, query="q")
    await stub.Stage(iter([pb.StageRequest(open=opened)]))


def unary(method: str, request: Any) -> Call:
    async def call(stub: Any) -> None:
        await getattr(stub, method)(request)

    return call


# A call of each method of the service, and the roles that may make it.
CALLS: dict[str, tuple[Call, tuple[str, ...]]] = {
    "Publish": (publish, (PUBLISH,)),
    "Stage": (stage, (PUBLISH,)),
    "Subscribe": (subscribe, (SUBSCRIBE,)),
    "ListMerges": (unary("ListMerges", pb.ListMergesRequest()), ROLES),
    "DescribeMerge": (unary("DescribeMerge", pb.DescribeMergeRequest(merge=MERGE)), ROLES),
    "DescribeServer": (unary("DescribeServer", pb.DescribeServerRequest()), ROLES),
    "CertifyMerge": (unary("CertifyMerge", pb.CertifyMergeRequest(merge=MERGE)), (SUBSCRIBE, ADMIN)),
    "DetachInput": (unary("DetachInput", pb.DetachInputRequest(merge=MERGE, replica="nobody")), (ADMIN,)),
    "ReleaseInput": (unary("ReleaseInput", pb.ReleaseInputRequest(merge=MERGE, replica="nobody")), (ADMIN,)),
    "ChangeRole": (
        unary("ChangeRole", pb.ChangeRoleRequest(merge=MERGE, replica="nobody", role=pb.ROLE_ACTIVE)),
        (ADMIN,),
    ),
    "Cutover": (cut_over, (ADMIN,)),
    "ResetMerge": (unary("ResetMerge", pb.ResetMergeRequest(merge=MERGE)), (ADMIN,)),
    "Drain": (unary("Drain", pb.DrainRequest(wait_seconds=-1)), ()),  # no role in one merge opens it
}
NOT_OF_ONE_MERGE = ("ListMerges", "DescribeServer")


def served() -> list[str]:
    return sorted(Server(Settings())._handlers())


async def call_status(stub: Any, method: str) -> grpc.StatusCode:
    """Call the method; return the status. If access is granted, the method itself may refuse the request."""
    try:
        await CALLS[method][0](stub)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("method", served())
async def test_a_method_is_open_to_the_right_token_and_to_no_other(method: str, tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        keeper = await world.publisher("keeper", stub=world.stub_of(world.keeper))
        await keeper.merged(ins("x", 1, 20), stable(5))
        roles = CALLS[method][1]
        wrong = {
            "no credentials": None,
            "forged": FORGED,
            "forged with a known name": world.token("known", list(ROLES))[:-1] + "?",
            "expired": world.expired("a", list(ROLES)),
            "revoked": world.revoked("gone", list(ROLES)),
        }
        for kind, token in wrong.items():
            assert await call_status(world.stub_of(token), method) is UNAUTHENTICATED, kind
        for role in ROLES:
            token = world.token(f"a-{role}", [role], [MERGE], ["a"])
            assert ((await call_status(world.stub_of(token), method)) is DENIED) is (role not in roles), role
        for merge in ("other", "flight", "flightsx", "xflights", "FLIGHTS", "flight?s"):
            token = world.token(f"in-{merge}", list(ROLES), [merge], ["*"])
            is_refused = await call_status(world.stub_of(token), method) is DENIED
            assert is_refused is (method not in NOT_OF_ONE_MERGE), merge


@pytest.mark.parametrize("method", served())
async def test_a_method_is_open_to_the_right_certificate_and_to_no_other(method: str, tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, access=False, mtls=True) as world:
        everything = world.authority.issue("keeper", uris=["lmerge://*/*?roles=publish,subscribe,status,admin"])
        keeper = await world.publisher("keeper", stub=world.stub_of(pair=everything))
        await keeper.merged(stable(5))
        assert await call_status(world.stub_of(), method) is grpc.StatusCode.UNAVAILABLE  # not even a connection
        unlisted = world.authority.issue("nobody", common_name="lmerge://flights/a", hosts=["lmerge.example"])
        assert await call_status(world.stub_of(pair=unlisted), method) is UNAUTHENTICATED
        for role in ROLES:
            uri = f"lmerge://{MERGE}/a" if role == PUBLISH else f"lmerge://{MERGE}?roles={role}"
            pair = world.authority.issue(f"as-{role}", uris=[uri])
            is_denied = await call_status(world.stub_of(pair=pair), method) is DENIED
            assert is_denied is (role not in CALLS[method][1]), role
        other = world.authority.issue("other", uris=["lmerge://other/a?roles=publish,subscribe,status,admin"])
        assert (await call_status(world.stub_of(pair=other), method) is DENIED) is (method not in NOT_OF_ONE_MERGE)


def test_every_served_method_has_its_rule_and_its_call(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that is added without a rule fails here, and is closed (see below)."""
    registered: set[str] = set()
    port: Any = aio_server.Server
    if transport == TransportChoice.NATIVE:
        from lmerge.service.port.native_port import NativePort

        port = NativePort
    add = port.add_generic_rpc_handlers

    def record(server: Any, handlers: Any) -> None:
        for handler in handlers:
            registered.update(name if name.startswith("/") else f"/{name}" for name in handler._method_handlers)
        add(server, handlers)

    async def start() -> None:
        server = Server(Settings(http_port=None, reflection=True))
        await server.start()
        await server.stop(0.0)

    monkeypatch.setattr(port, "add_generic_rpc_handlers", record)
    asyncio.run(start())
    assert {f"/{SERVICE}/{name}" for name in served()} < registered
    assert any(name.startswith(f"/{HEALTH}/") for name in registered)
    assert any(name.startswith(f"/{REFLECTION}/") for name in registered)
    assert registered <= set(ACCESS_RULES)
    assert all(name.startswith(f"/{HEALTH}/") for name, rule in ACCESS_RULES.items() if rule.is_open)
    methods = {method.name for method in pb.DESCRIPTOR.services_by_name["Lmerge"].methods}
    assert methods == set(CALLS)
    assert {f"/{SERVICE}/{name}" for name in methods} <= set(ACCESS_RULES)


async def raw_call(channel: Any, method: str) -> bytes:
    """Call a method with bytes as they are."""
    answer: bytes = await channel.unary_unary(method)(b"")
    return answer


async def test_a_method_without_a_rule_is_closed_to_everyone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def secret(_request: bytes, _context: Any) -> bytes:
        return b"secret"

    handlers = Server._handlers
    added: dict[str, Any] = {"Secret": grpc.unary_unary_rpc_method_handler(secret)}
    monkeypatch.setattr(Server, "_handlers", lambda server: handlers(server) | added)
    async with SecureWorld(tmp_path) as world:
        call = world.new_channel(world.keeper).unary_unary(f"/{SERVICE}/Secret")
        with refused(DENIED, "/lmerge.v1.Lmerge/Secret is closed"):
            await call(b"")
    async with World() as open_world:
        with refused(DENIED, "is closed"):
            await raw_call(open_world.channel, f"/{SERVICE}/Secret")


async def test_unidentified_callers_cannot_find_out_which_methods_there_are(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        for method in (f"/{SERVICE}/Nothing", "/other.Service/Method"):
            with refused(UNAUTHENTICATED):
                await raw_call(world.channel, method)
            with refused(grpc.StatusCode.UNIMPLEMENTED):
                await world.new_channel(world.keeper).unary_unary(method)(b"")


async def test_health_is_open_to_all(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        stub = health_pb2_grpc.HealthStub(world.channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


@retried_without_status
async def asked_for_the_protocol(channel: Any) -> bool:
    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    answer = await call.read()
    assert answer is not EOF
    call.cancel()
    return bool(answer.list_services_response.service)


async def test_reflection_is_off_where_callers_are_identified_unless_asked_for(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        with refused(grpc.StatusCode.UNIMPLEMENTED):
            await asked_for_the_protocol(world.new_channel(world.keeper))
        with refused(UNAUTHENTICATED):
            await asked_for_the_protocol(world.channel)
    async with SecureWorld(tmp_path, reflection=True) as world:
        with refused(UNAUTHENTICATED):
            await asked_for_the_protocol(world.channel)
        assert await asked_for_the_protocol(world.new_channel(world.keeper))


async def page(world: SecureWorld, path: str, token: str | None = None, pair: Pair | None = None) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=world.authority.path)
    if pair is not None:
        context.load_cert_chain(*pair)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    url = f"https://127.0.0.1:{world.server.http_port}{path}"
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers, ssl=context) as response:
        return response.status, await response.text()


async def test_of_http_only_the_probes_are_open(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, http_port=0, refusal_burst=1000) as world:
        for path in ("/healthz", "/readyz"):
            assert (await page(world, path))[0] == 200
        for path in ("/metrics", "/", "/nothing", "/healthz/", "/healthz/../metrics", "/%6detrics", "//metrics"):
            for token in (None, FORGED, world.expired("old", [STATUS]), world.revoked("gone", [STATUS])):
                status, text = await page(world, path, token)
                assert (status, MERGE in text) == (401, False), path
        for roles, merges in (([PUBLISH, SUBSCRIBE], ["*"]), ([STATUS, ADMIN], [MERGE]), ([STATUS], ["f*"])):
            status, text = await page(world, "/metrics", world.token("few", roles, merges))
            assert status == 403
            assert "may not read /metrics: that needs status or admin for every merge" in text
        for role in (STATUS, ADMIN):
            token = world.token(role, [role], ["*"])
            assert "lmerge_build_info" in (await page(world, "/metrics", token))[1]
            assert (await page(world, "/nothing", token))[0] == 404


async def test_metrics_open_for_a_certificate_too(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, access=False, mtls=True, http_port=0) as world:
        watcher = world.authority.issue("watcher", uris=["lmerge://*?roles=status"])
        reader = world.authority.issue("reader", uris=["lmerge://*?roles=subscribe"])
        assert [(await page(world, "/metrics", pair=pair))[0] for pair in (watcher, reader, None)] == [200, 403, 401]
        assert (await page(world, "/healthz"))[0] == 200


async def test_the_list_of_merges_has_only_those_in_which_the_caller_has_rights(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, merges=("eu-a", "eu-b", "us-a")) as world:
        every = ["eu-a", "eu-b", "us-a"]
        for pattern, seen in (("eu-*", every[:2]), ("us-a", every[2:]), ("us", []), ("*", every)):
            stub = world.stub_of(world.token(f"of {pattern}", [SUBSCRIBE], [pattern]))
            assert [merge.merge for merge in (await stub.ListMerges(pb.ListMergesRequest())).merges] == seen


async def test_a_refused_publisher_has_touched_nothing(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        stub = world.stub_of(world.token("a", [PUBLISH]))
        for attempt in (publish, stage):
            with refused(DENIED):
                await attempt(stub, replica="b")
        assert not (await world.stub_of(world.keeper).ListMerges(pb.ListMergesRequest())).merges


@pytest.mark.parametrize(
    "header", ["Bearer", "Basic {token}", "{token}", "Bearer {token} x", "Bearer x{token}", "bearer", "Bearer   "]
)
async def test_an_authorization_that_is_not_a_bearer_token_opens_nothing(header: str, tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        metadata = (("authorization", header.format(token=world.keeper)),)
        with refused(UNAUTHENTICATED):
            await world.stub.ListMerges(pb.ListMergesRequest(), metadata=metadata)
        with refused(UNAUTHENTICATED, "more than one authorization"):
            await world.stub.ListMerges(
                pb.ListMergesRequest(),
                metadata=[("authorization", f"Bearer {world.keeper}"), ("authorization", f"Bearer {FORGED}")],
            )
