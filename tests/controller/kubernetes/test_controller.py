"""The controller against a real API server: what it makes of descriptions, and what it survives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kube_world import KubeServer, api_of, grant, install_definition, make_namespace, shown, until
from kubelet_world import PodMaker, no_image
from tcp_proxy import TcpProxy

from lmerge.service.server import Server
from lmerge.service.settings import Settings
from lmerge_controller.kubernetes.api import BUDGETS, DEPLOYMENTS, EVENTS, LEASES, PODS, QUERIES, Api, Json
from lmerge_controller.kubernetes.api_errors import ApiProblem, ObjectMissing, WriteConflict
from lmerge_controller.kubernetes.controller import Controller, ControllerSettings
from lmerge_controller.kubernetes.crd import schema_digest
from lmerge_controller.kubernetes.election import LeadershipLost
from lmerge_controller.kubernetes.fence import FencedWriter
from lmerge_controller.kubernetes.lease_rules import LeaseTimes, term_of
from lmerge_controller.kubernetes.manifests import PodSettings
from lmerge_controller.kubernetes.pod_states import joined_gate

TIMES = LeaseTimes(lease_s=1.5, renew_s=1.0, retry_s=0.2)
MAKERS: dict[str, PodMaker] = {}
ADDRESSES: dict[str, str] = {}


def query(namespace: str, name: str = "flights", **spec: Any) -> Json:
    servers = {"addresses": [ADDRESSES[namespace]]}
    body = {"servers": servers, "versions": [{"name": "v1", "run": {"replica": "aggressive"}}]} | spec
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": QUERIES.api_version, "kind": QUERIES.kind, "metadata": meta, "spec": body}


async def free_lease(api: Api, namespace: str) -> None:
    """Make the Lease as the chart does, so that the first leader need not wait."""
    meta = {"name": "lmerge-controller", "namespace": namespace}
    await api.create(LEASES, {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta, "spec": {}})


@asynccontextmanager
async def controller(
    kube: KubeServer, namespace: str, name: str = "a", *, token: str = "admin-token", port: int | None = None
) -> AsyncIterator[Controller]:
    async with AsyncExitStack() as stack:
        api, election_api = [await stack.enter_async_context(await api_of(kube, token, port)) for _ in range(2)]
        settings = ControllerSettings(namespace, namespace, name, PodSettings("lmerge:1"), times=TIMES)
        found = Controller(api, election_api, settings)
        running = asyncio.create_task(found.run())
        try:
            yield found
        finally:
            found.stop()
            await running


@asynccontextmanager
async def space(kube: KubeServer, name: str) -> AsyncIterator[Api]:
    """Make a namespace with a maker of pods and a merge server, and yield an administrator's connection."""
    async with await api_of(kube) as api:
        await install_definition(api)
        await make_namespace(api, name)
        await free_lease(api, name)
        server = Server(Settings(port=0, http_port=None))
        await server.start()
        ADDRESSES[name] = f"127.0.0.1:{server.port}"
        try:
            async with PodMaker(api, name).running() as maker:
                MAKERS[name] = maker
                yield api
        finally:
            await server.stop(0.0)


async def seen(read: Callable[[], Awaitable[Any]], limit_s: float = 20.0) -> Any:
    """Wait until ``read`` returns something true, and return it."""
    end = asyncio.get_running_loop().time() + limit_s
    found: Any = None
    while not found:
        assert asyncio.get_running_loop().time() < end, "it did not happen"
        try:
            found = await read()
        except ApiProblem:
            found = None
        await asyncio.sleep(0.005)
    return found


async def names(api: Api, resource: Any, namespace: str) -> list[str]:
    return sorted(one["metadata"]["name"] for one in (await api.page(resource, namespace))["items"])


async def condition(api: Api, namespace: str, kind: str, name: str = "flights") -> Json:
    found = await api.get(QUERIES, namespace, name)
    rows = (found.get("status") or {}).get("conditions") or []
    return next((row for row in rows if row["type"] == kind), {})


async def test_a_query_becomes_deployments_a_budget_a_status_and_events(kube: KubeServer) -> None:
    async with space(kube, "c-made") as api, controller(kube, "c-made") as found:
        await api.create(QUERIES, query("c-made", replicas=3))
        made = ["flights-v1-0", "flights-v1-1", "flights-v1-2"]

        async def all_run() -> bool:
            return await names(api, DEPLOYMENTS, "c-made") == made and len(await names(api, PODS, "c-made")) == 3

        await seen(all_run)
        assert await names(api, BUDGETS, "c-made") == ["flights-v1"]
        deployment = await api.get(DEPLOYMENTS, "c-made", "flights-v1-0")
        assert term_of(deployment) == found.election.term == 1
        assert deployment["metadata"]["ownerReferences"][0]["name"] == "flights"

        async def reported() -> Any:
            return await condition(api, "c-made", "Available")

        assert (await seen(reported))["reason"] == "NothingJoined"
        status = (await api.get(QUERIES, "c-made", "flights"))["status"]
        assert status["record"]["serving"] == status["serving"] == "v1"
        assert status["schema"] == schema_digest()
        notes = [one["note"] for one in (await api.page(EVENTS, "c-made"))["items"]]
        assert any("flights-v1-0" in note for note in notes), shown(notes)


async def test_rounds_without_news_write_nothing(kube: KubeServer) -> None:
    async with space(kube, "c-quiet") as api, controller(kube, "c-quiet") as found:
        await api.create(QUERIES, query("c-quiet"))

        async def is_shown() -> Any:
            return len(await names(api, PODS, "c-quiet")) == 2 and await condition(api, "c-quiet", "Progressing")

        await seen(is_shown)
        writes, backend = -1, found._operated["c-quiet", "flights"].backend
        while found.writer.writes != writes:
            writes = found.writer.writes
            for _ in range(3):
                backend.wake()
                await asyncio.sleep(0)
                await until(lambda: not backend._changed.is_set())
        assert writes < 20


async def test_a_deployment_that_is_deleted_by_hand_comes_back(kube: KubeServer) -> None:
    async with space(kube, "c-back") as api, controller(kube, "c-back"):
        await api.create(QUERIES, query("c-back"))

        async def made() -> Any:
            return (await api.get(DEPLOYMENTS, "c-back", "flights-v1-0"))["metadata"]["uid"]

        uid = await seen(made)
        await api.delete(DEPLOYMENTS, "c-back", "flights-v1-0", uid=uid)

        async def is_another() -> bool:
            return bool(await made() != uid)

        await seen(is_another, 40.0)


async def test_an_image_that_is_not_there_is_named(kube: KubeServer) -> None:
    async with space(kube, "c-image") as api, controller(kube, "c-image"):
        MAKERS["c-image"].states["flights-v1-0"] = no_image("mine:9 is not there")
        await api.create(QUERIES, query("c-image"))

        async def named() -> bool:
            return "mine:9 is not there" in (await condition(api, "c-image", "Degraded")).get("message", "")

        await seen(named)


async def test_a_description_that_is_not_valid_changes_nothing_and_is_named(kube: KubeServer) -> None:
    async with space(kube, "c-invalid") as api, controller(kube, "c-invalid"):
        await api.create(QUERIES, query("c-invalid"))

        async def made() -> bool:
            return len(await names(api, DEPLOYMENTS, "c-invalid")) == 2

        await seen(made)
        wrong = {"spec": {"servers": {"addresses": ["no address"]}}}
        await api.merge_patch(QUERIES, "c-invalid", "flights", wrong)

        async def named() -> bool:
            return (await condition(api, "c-invalid", "Degraded")).get("reason") == "InvalidDescription"

        await seen(named)
        assert await made()


async def test_servers_that_lmerge_would_run_are_refused_with_the_way_out(kube: KubeServer) -> None:
    async with space(kube, "c-servers") as api, controller(kube, "c-servers"):
        await api.create(QUERIES, query("c-servers", servers={"count": 2}))

        async def named() -> bool:
            return "name them in addresses" in (await condition(api, "c-servers", "Degraded")).get("message", "")

        await seen(named)
        assert await names(api, DEPLOYMENTS, "c-servers") == []


async def test_a_right_that_is_missing_is_named_in_the_status(kube: KubeServer) -> None:
    rules = [
        {"apiGroups": [LEASES.group], "resources": ["leases"], "verbs": ["get", "create", "update"]},
        {"apiGroups": [QUERIES.group], "resources": ["replicatedqueries"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [QUERIES.group], "resources": ["replicatedqueries/status"], "verbs": ["update"]},
        {"apiGroups": ["", "policy"], "resources": ["pods", "poddisruptionbudgets"], "verbs": ["list", "watch"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "watch"]},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["patch", "create"]},
    ]
    async with space(kube, "c-narrow") as api:
        await grant(api, "c-narrow", rules)
        async with controller(kube, "c-narrow", token="narrow-token"):
            await api.create(QUERIES, query("c-narrow"))

            async def named() -> bool:
                row = await condition(api, "c-narrow", "Degraded")
                return row.get("reason") == "RightMissing" and "patch deployments" in row["message"]

            await seen(named)


def chart_rules() -> list[Json]:
    """Return the rights that the chart gives to the controller."""
    text = (Path(__file__).resolve().parents[3] / "charts/lmerge/templates/controller.yaml").read_text()
    block = text.partition('{{- define "lmerge.controllerRules" -}}')[2].partition("{{- end }}")[0]
    rules: list[Json] = yaml.safe_load(block)
    return [*rules, {"apiGroups": [LEASES.group], "resources": ["leases"], "verbs": ["get", "create", "update"]}]


async def test_the_rights_that_the_chart_gives_are_enough(kube: KubeServer, caplog: pytest.LogCaptureFixture) -> None:
    async with space(kube, "c-chart") as api:
        await grant(api, "c-chart", chart_rules())
        async with controller(kube, "c-chart", token="narrow-token") as found:
            await api.create(QUERIES, query("c-chart", replicas=2))

            async def made() -> bool:
                return len(await names(api, PODS, "c-chart")) == 2 and len(await names(api, EVENTS, "c-chart")) > 0

            await seen(made)
            backend = found._operated["c-chart", "flights"].backend
            await backend._open_gates(frozenset(["flights-v1-0"]))

            async def is_open() -> bool:
                pods = (await api.page(PODS, "c-chart"))["items"]
                return any(joined_gate(one) for one in pods)

            await seen(is_open)
            for deployment in (await api.page(DEPLOYMENTS, "c-chart"))["items"]:
                await found.writer.delete(DEPLOYMENTS, deployment)
    assert "does not allow" not in caplog.text
    assert "403" not in caplog.text


async def test_leader_and_follower_are_ready_once_they_have_listed_and_read_the_lease(kube: KubeServer) -> None:
    async with space(kube, "c-ready"), controller(kube, "c-ready", "a") as first:
        assert first.why_not_ready() == "the cluster is not listed yet"
        await until(lambda: first.election.term and first.why_not_ready() is None)
        async with controller(kube, "c-ready", "b") as second:
            await until(lambda: second.why_not_ready() is None)
            assert second.election.term == 0


async def test_a_candidate_that_may_not_read_the_lease_is_not_ready(kube: KubeServer) -> None:
    async with space(kube, "c-unready") as api:
        await grant(api, "c-unready", chart_rules()[:-1])
        async with controller(kube, "c-unready", token="narrow-token") as found:
            await until(lambda: "get leases" in (found.why_not_ready() or ""))


async def test_another_takes_over_from_a_leader_that_is_cut_off(kube: KubeServer) -> None:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(space(kube, "c-over"))
        proxy = await stack.enter_async_context(TcpProxy("127.0.0.1", kube.port))
        first = await stack.enter_async_context(controller(kube, "c-over", "a", port=proxy.port))
        await until(lambda: first.election.term)
        async with controller(kube, "c-over", "b") as second:
            await api.create(QUERIES, query("c-over"))

            async def made() -> bool:
                return len(await names(api, DEPLOYMENTS, "c-over")) == 2

            await seen(made)
            proxy.is_frozen = True
            await until(lambda: second.election.term, 5.0)
            assert first.election.term == 0
            await api.merge_patch(QUERIES, "c-over", "flights", {"spec": {"replicas": 3}})

            async def grown() -> Any:
                return (await api.get(DEPLOYMENTS, "c-over", "flights-v1-2"))["spec"]["replicas"]

            await seen(grown, 5.0)
            assert term_of(await api.get(DEPLOYMENTS, "c-over", "flights-v1-2")) == 2
            assert (await api.get(QUERIES, "c-over", "flights"))["status"]["term"] == 2
            proxy.is_frozen = False


async def test_nothing_is_changed_by_an_earlier_term(kube: KubeServer) -> None:
    async with space(kube, "c-fence") as api, controller(kube, "c-fence") as found:
        await api.create(QUERIES, query("c-fence"))

        async def made() -> Any:
            return (await api.get(DEPLOYMENTS, "c-fence", "flights-v1-0"))["spec"]["replicas"]

        await seen(made)
        deployment = await api.get(DEPLOYMENTS, "c-fence", "flights-v1-0")
        await until(lambda: found.election.term)
        early = FencedWriter(api, lambda: 0, lambda resource, one: None)
        with pytest.raises(LeadershipLost, match="a controller of term 1 has written it"):
            await early.apply(DEPLOYMENTS, deployment, deployment)
        with pytest.raises(LeadershipLost):
            await early.delete(DEPLOYMENTS, deployment)
        stale = deployment | {"metadata": deployment["metadata"] | {"resourceVersion": "1", "generation": 0}}
        late = FencedWriter(api, lambda: 9, lambda resource, one: None)
        body = {key: deployment[key] for key in ("apiVersion", "kind", "spec")}
        meta = {"name": "flights-v1-0", "namespace": "c-fence"}
        with pytest.raises(WriteConflict):
            await late.apply(DEPLOYMENTS, body | {"metadata": meta}, stale)


async def test_a_created_deployment_has_no_pods_until_the_second_write(kube: KubeServer) -> None:
    async with space(kube, "c-two") as api:
        terms = iter([7])

        def once() -> int:
            try:
                return next(terms)
            except StopIteration:
                raise LeadershipLost("frozen in between") from None

        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "c-two"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template},
        }
        with pytest.raises(LeadershipLost):
            await FencedWriter(api, once, lambda resource, one: None).apply(DEPLOYMENTS, body, None)
        assert (await api.get(DEPLOYMENTS, "c-two", "d"))["spec"]["replicas"] == 0


async def test_a_query_that_is_deleted_is_left_alone(kube: KubeServer) -> None:
    async with space(kube, "c-gone") as api, controller(kube, "c-gone") as found:
        made = await api.create(QUERIES, query("c-gone"))
        await until(lambda: found._operated)
        await api.delete(QUERIES, "c-gone", "flights", uid=made["metadata"]["uid"])
        await until(lambda: not found._operated)
        with pytest.raises(ObjectMissing):
            await api.get(QUERIES, "c-gone", "flights")


async def test_the_api_server_may_die_and_come_back(own_kube: KubeServer) -> None:
    async with space(own_kube, "c-dead") as api, controller(own_kube, "c-dead") as found:
        await api.create(QUERIES, query("c-dead"))

        async def made() -> bool:
            return len(await names(api, DEPLOYMENTS, "c-dead")) == 2

        await seen(made)
        own_kube.kill_api_server()
        await until(lambda: not found.election.term)
        await asyncio.to_thread(own_kube.start_api_server)
        await until(lambda: found.election.term, 30.0)
        await api.merge_patch(QUERIES, "c-dead", "flights", {"spec": {"replicas": 3}})

        async def grown() -> bool:
            return len(await names(api, DEPLOYMENTS, "c-dead")) == 3

        await seen(grown)
