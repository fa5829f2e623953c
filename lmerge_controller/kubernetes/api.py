"""Calls to the Kubernetes API with objects as plain JSON, over the official asyncio client.

The client gives addresses, certificates, tokens and their renewal. Its models are not used: a custom resource has
none, and a thousand objects as models take ten times the memory of the same objects as dictionaries.

No call is repeated here. The caller decides by the error (``api_errors``), and each call ends in time.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import aiohttp
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

from lmerge.errors import UsageError
from lmerge_controller.kubernetes.api_errors import ApiUnreachable, problem_of

Json = dict[str, Any]

# The longest wait for the answer of a call. An API server that is well answers in milliseconds.
CALL_S_MAX: Final = 10.0
# Objects of a page of a list: two pages for a thousand queries.
PAGE_OBJECTS: Final = 500
_MERGE_PATCH: Final = "application/merge-patch+json"
_STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
_APPLY_PATCH: Final = "application/apply-patch+yaml"
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@dataclass(frozen=True)
class Resource:
    """A kind of objects of the API, such as ``apps/v1`` ``statefulsets``."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """Return the value of ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Return the path of an object, or of all in a namespace, or of all (namespace None)."""
        root = f"/apis/{self.group}" if self.group else "/api"
        inside = f"/namespaces/{namespace}" if namespace is not None else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}/{self.version}{inside}/{self.plural}{tail}"


QUERIES: Final = Resource("lmerge.dev", "v1alpha1", "replicatedqueries", "ReplicatedQuery")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
NODES: Final = Resource("", "v1", "nodes", "Node")
PODS: Final = Resource("", "v1", "pods", "Pod")
BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
DEFINITIONS: Final = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")


async def connect(config_file: str | None = None, context: str | None = None) -> Api:
    """Return an Api by a kubeconfig, or by the service account of the pod where there is no kubeconfig.

    Raises UsageError, which names what is missing.
    """
    settings = kubernetes_client.Configuration()
    loaders: Any = kubernetes_config  # its functions have no types
    try:
        if config_file is None and context is None and _SERVICE_ACCOUNT.exists():
            loaders.load_incluster_config(client_configuration=settings)
        else:
            await loaders.load_kube_config(config_file, context, client_configuration=settings)
        return Api(kubernetes_client.ApiClient(settings))
    except (kubernetes_config.ConfigException, OSError, ssl.SSLError, TypeError, KeyError) as problem:
        raise UsageError(f"cannot read the credentials for Kubernetes: {problem}") from None


class Api:
    """Calls over one pool of connections, which ``async with`` closes. Objects are JSON, as the server sends them."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def get(self, resource: Resource, namespace: str | None, name: str, *, timeout_s: float = CALL_S_MAX) -> Json:
        """Return an object. Raises ApiProblem."""
        return await self._call("get", resource, namespace, name, timeout_s=timeout_s)

    async def page(self, resource: Resource, namespace: str | None, more: str = "", selector: str = "") -> Json:
        """Return a page of a list. ``more`` is the ``continue`` of the page before. Raises ApiProblem.

        No ``resourceVersion`` is asked for, so the answer is as new as the call, never an old cache's.
        """
        query = {"limit": str(PAGE_OBJECTS)}
        query |= {"continue": more} if more else {}
        query |= {"labelSelector": selector} if selector else {}
        return await self._call("list", resource, namespace, query=query)

    async def create(self, resource: Resource, body: Json, *, timeout_s: float = CALL_S_MAX) -> Json:
        """Create an object and return it. Raises ObjectExists, ApiProblem."""
        namespace = body["metadata"].get("namespace")
        return await self._call("create", resource, namespace, body=body, timeout_s=timeout_s)

    async def replace(
        self, resource: Resource, body: Json, subresource: str = "", *, timeout_s: float = CALL_S_MAX
    ) -> Json:
        """Replace an object, if it has not changed since its ``resourceVersion``. Raises WriteConflict, ApiProblem."""
        meta = body["metadata"]
        return await self._call(
            "update", resource, meta.get("namespace"), meta["name"], subresource, body=body, timeout_s=timeout_s
        )

    async def apply(self, resource: Resource, body: Json, *, manager: str, subresource: str = "") -> Json:
        """Apply the fields of an object on the server's side, as their owner. Raises ApiProblem.

        A ``resourceVersion`` in the object makes it conditional. Fields of other managers are taken over.
        """
        meta = body["metadata"]
        query = {"fieldManager": manager, "force": "true"}
        return await self._call(
            "patch", resource, meta.get("namespace"), meta["name"], subresource,
            query=query, body=body, content=_APPLY_PATCH,
        )  # fmt: skip

    async def merge_patch(
        self, resource: Resource, namespace: str | None, name: str, body: Json, subresource: str = ""
    ) -> Json:
        """Change fields of an object. A ``resourceVersion`` in it makes it conditional. Raises ApiProblem."""
        return await self._call("patch", resource, namespace, name, subresource, body=body, content=_MERGE_PATCH)

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str, grace_s: int | None = None
    ) -> None:
        """Delete the object of that uid, and what it owns. One that is gone is an ObjectMissing. Raises ApiProblem.

        ``grace_s``: of a pod, the seconds until it is killed; None: its own.
        """
        body: Json = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        body |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        await self._call("delete", resource, namespace, name, body=body)

    async def evict(self, namespace: str, name: str, *, uid: str) -> None:
        """Evict the pod of that uid. Raises Throttled if a disruption budget does not allow it now, ApiProblem."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._call("create", PODS, namespace, name, "eviction", body=body)

    async def strategic_patch(
        self, resource: Resource, namespace: str | None, name: str, body: Json, subresource: str = ""
    ) -> Json:
        """Change fields of an object of Kubernetes itself; lists with keys are merged. Raises ApiProblem."""
        return await self._call("patch", resource, namespace, name, subresource, body=body, content=_STRATEGIC_PATCH)

    async def watch(
        self,
        resource: Resource,
        namespace: str | None,
        since: str,
        *,
        seconds: int,
        selector: str = "",
        accepted: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[tuple[str, Json]]:
        """Yield (ADDED | MODIFIED | DELETED | BOOKMARK, object) after a resource version, for ``seconds``.

        Then the server ends it. A watch without changes sends nothing at all, not even bookmarks: silence is no fault
        until the server has had its time to end it. ``accepted`` is called when the server has begun to watch.
        Raises HistoryGone if that version is too old, and ApiProblem. It ends if the connection ends.
        """
        query = {"watch": "1", "resourceVersion": since, "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        query |= {"labelSelector": selector} if selector else {}
        attempted = f"watch {resource.plural}"
        # A server that has not ended the watch by then has lost the connection without notice.
        timeout = aiohttp.ClientTimeout(total=seconds + CALL_S_MAX, sock_connect=CALL_S_MAX)
        async with self._answer("watch", resource, namespace, "", "", query, None, None, timeout) as response:
            accepted()
            try:
                async for line in response.content:
                    change = json.loads(line)
                    found = change["object"]
                    if change["type"] == "ERROR":
                        raise problem_of(
                            attempted,
                            f"watch {resource.plural}",
                            int(found.get("code") or 500),
                            json.dumps(found).encode(),
                        )
                    yield change["type"], found
            except (json.JSONDecodeError, KeyError, ValueError) as problem:
                raise ApiUnreachable(attempted, f"a line that is no change: {problem}") from None

    async def _call(
        self,
        verb: str,
        resource: Resource,
        namespace: str | None,
        name: str = "",
        subresource: str = "",
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content: str | None = None,
        timeout_s: float = CALL_S_MAX,
    ) -> Json:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with self._answer(verb, resource, namespace, name, subresource, query, body, content, timeout) as answer:
            found: Json = json.loads(await answer.read())
            return found

    @asynccontextmanager
    async def _answer(
        self,
        verb: str,
        resource: Resource,
        namespace: str | None,
        name: str,
        subresource: str,
        query: Mapping[str, str] | None,
        body: Json | None,
        content: str | None,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a call and yield its answer, whose status is below 400. Raises ApiProblem."""
        plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
        where = "/".join(part for part in (namespace, name) if part)
        attempted = f"{verb} {plural} {where}".rstrip()
        right = f"{verb} {plural}" + (f" ({resource.group})" if resource.group else "")
        headers = {"Accept": "application/json"} | ({"Content-Type": content} if content else {})
        try:
            # The client adds the token here, and renews it where it is about to expire.
            method, url, headers, payload, _ = await self._client.param_serialize(
                _METHODS[verb], resource.path(namespace, name, subresource), query_params=list((query or {}).items()),
                header_params=headers, body=body, auth_settings=["BearerToken"],
            )  # fmt: skip
            answer = await self._client.call_api(method, url, headers, payload, _request_timeout=timeout)
            response: aiohttp.ClientResponse = answer.response
            try:
                if response.status >= 400:
                    after = response.headers.get("Retry-After")
                    raise problem_of(attempted, right, response.status, await response.read(), after)
                yield response
            finally:
                _end(response)
        except asyncio.TimeoutError:
            raise ApiUnreachable(attempted, f"no answer within {timeout.total} s") from None
        except (aiohttp.ClientError, OSError) as problem:
            raise ApiUnreachable(attempted, f"{problem or type(problem).__name__}") from None


def _end(response: aiohttp.ClientResponse) -> None:
    """Give back the connection of an answer; one that is not read to its end, such as a watch, ends at once.

    A TLS connection that is closed waits for its peer, and nobody waits for it: it outlived the event loop.
    """
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


_METHODS: Final = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
