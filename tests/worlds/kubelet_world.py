"""The part of Kubernetes that an API server alone does not have: makes pods of Deployments, and gives them a state.

It stands for the controllers of Deployments and for kubelets. A test decides what becomes of a pod.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from lmerge_controller.kubernetes.api import DEPLOYMENTS, PODS, Api, Json
from lmerge_controller.kubernetes.api_errors import ApiProblem, ObjectExists

RUNNING: Json = {
    "phase": "Running",
    "containerStatuses": [
        {
            "name": "replica", "image": "i", "imageID": "", "ready": True, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }
    ],
}  # fmt: skip
# The controller of Deployments notes it in each at once, so a writer meets a newer resource version.
_REVISION = "deployment.kubernetes.io/revision"


def no_image(message: str) -> Json:
    waiting = {"reason": "ImagePullBackOff", "message": message}
    container = {"name": "replica", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    return {"phase": "Pending", "containerStatuses": [container | {"state": {"waiting": waiting}}]}


class PodMaker:
    """Makes the pods of one namespace. ``state_of`` gives the status of a pod by the name of its replica."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self.states: dict[str, Json] = {}
        self.made: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[PodMaker]:
        task = asyncio.create_task(self._run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            with suppress(ApiProblem):
                await self._round()
            await asyncio.sleep(0.005)

    async def _round(self) -> None:
        deployments = (await self._api.page(DEPLOYMENTS, self._namespace))["items"]
        pods = {one["metadata"]["name"]: one for one in (await self._api.page(PODS, self._namespace))["items"]}
        wished: dict[str, tuple[str, Any]] = {}
        for one in deployments:
            if _REVISION not in (one["metadata"].get("annotations") or {}):
                change = {"metadata": {"annotations": {_REVISION: "1"}}}
                await self._api.merge_patch(DEPLOYMENTS, self._namespace, one["metadata"]["name"], change)
            if one["spec"]["replicas"]:
                template = one["spec"]["template"]
                digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:8]
                wished[f"{one['metadata']['name']}-{digest}"] = one["metadata"]["name"], template
        for name, found in pods.items():
            if name not in wished:
                await self._api.delete(PODS, self._namespace, name, uid=found["metadata"]["uid"])
        for name, (replica, template) in wished.items():
            if name not in pods:
                await self._make(name, replica, template)

    async def _make(self, name: str, replica: str, template: Json) -> None:
        meta = template["metadata"] | {"name": name, "namespace": self._namespace}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
        with suppress(ObjectExists):
            await self._api.create(PODS, body)
        status = self.states.get(replica, RUNNING)
        await self._api.merge_patch(PODS, self._namespace, name, {"status": status}, "status")
        self.made.append(replica)
