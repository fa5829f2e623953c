"""Calls to Kubernetes for drills, each to its end: pods deleted and evicted, nodes cordoned and uncordoned.

Called by the target on Kubernetes, and by ``undo`` long after. Each call has a connection of its own: while a drill
runs, the API server may be gone, and come back.

A node that a drill has cordoned has an annotation with the release. So the next drill of that release finds it, even if
the journal went with the pod of a drill that was killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from lmerge.errors import UsageError
from lmerge_controller.drill.kube_place import KubePlace
from lmerge_controller.kubernetes.api import NODES, PODS, Api, Json, connect
from lmerge_controller.kubernetes.api_errors import ObjectMissing, Throttled, WriteConflict

CORDONED_BY: Final = "lmerge.dev/cordoned-by"
Found = TypeVar("Found")


def pods(place: KubePlace, selector: str) -> list[Json]:
    """Return the pods with these labels that are not being deleted, by name. Raises ApiProblem."""

    async def found(api: Api) -> list[Json]:
        page = await api.page(PODS, place.namespace, selector=selector)
        return list(page["items"])

    items = [pod for pod in _called(place, found) if "deletionTimestamp" not in pod["metadata"]]
    return sorted(items, key=lambda pod: (len(pod["metadata"]["name"]), pod["metadata"]["name"]))


def kill_pod(place: KubePlace, pod: Json) -> None:
    """Delete a pod without a grace period. The kubelet kills its processes within 2 s. Raises ApiProblem."""
    meta = pod["metadata"]
    _called(place, lambda api: api.delete(PODS, place.namespace, meta["name"], uid=meta["uid"], grace_s=0))


def evict_pod(place: KubePlace, pod: Json) -> bool:
    """Evict a pod. Return False if a disruption budget does not allow it now. Raises ApiProblem."""
    meta = pod["metadata"]
    try:
        _called(place, lambda api: api.evict(place.namespace, meta["name"], uid=meta["uid"]))
    except Throttled:
        return False
    except (ObjectMissing, WriteConflict):
        return True  # it is gone, or another one has its name
    return True


def cordon(place: KubePlace, node: str) -> None:
    """Let no pod be scheduled on a node. Raises UsageError if someone else has cordoned it; ApiProblem."""

    async def work(api: Api) -> None:
        found = await api.get(NODES, None, node)
        if found["spec"].get("unschedulable") and _owner(found) != place.owner:
            raise UsageError(f"node {node} is cordoned already, and not by this drill")
        version = found["metadata"]["resourceVersion"]
        await api.merge_patch(NODES, None, node, _changed(version, place.owner, True))

    _called(place, work)


def uncordon(place: KubePlace, node: str) -> None:
    """Undo ``cordon``. A node that this release's drill has not cordoned stays as it is. Raises ApiProblem."""

    async def work(api: Api) -> None:
        try:
            found = await api.get(NODES, None, node)
        except ObjectMissing:
            return
        if _owner(found) == place.owner:
            version = found["metadata"]["resourceVersion"]
            await api.merge_patch(NODES, None, node, _changed(version, None, None))

    _called(place, work)


def cordoned_nodes(place: KubePlace) -> list[str]:
    """Return the nodes that a drill of this release has cordoned. Raises ApiProblem."""

    async def found(api: Api) -> list[Json]:
        page = await api.page(NODES, None)
        return list(page["items"])

    return [str(node["metadata"]["name"]) for node in _called(place, found) if _owner(node) == place.owner]


def is_ready(pod: Json) -> bool:
    """Whether a pod is ready."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)


def _changed(version: str, owner: str | None, unschedulable: bool | None) -> Json:
    """Return a patch of a node that is as it was at ``version``; None removes a field."""
    return {
        "metadata": {"resourceVersion": version, "annotations": {CORDONED_BY: owner}},
        "spec": {"unschedulable": unschedulable},
    }


def _owner(node: Json) -> str:
    return str(node["metadata"].get("annotations", {}).get(CORDONED_BY, ""))


def _called(place: KubePlace, work: Callable[[Api], Awaitable[Found]]) -> Found:
    async def run() -> Found:
        async with await connect(place.kubeconfig, place.context) as api:
            return await work(api)

    return asyncio.run(run())
