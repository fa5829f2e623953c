"""The backend for Kubernetes: one query's replicas as Deployments. ``lmerge_controller.backend`` is its contract.

It reads from the controller's copies and writes through the leader's fence. The servers are not its own: a query on
Kubernetes names the addresses of servers that the chart runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from lmerge.clock import wall_us
from lmerge.errors import UsageError
from lmerge.time_limit import time_limit
from lmerge_controller.backend import ActionOutcome
from lmerge_controller.kubernetes.api import BUDGETS, DEPLOYMENTS, PODS, Json
from lmerge_controller.kubernetes.api_errors import NotAllowed, ObjectMissing, WriteConflict
from lmerge_controller.kubernetes.cluster_copy import ClusterCopy
from lmerge_controller.kubernetes.controller_metrics import ControllerMetrics
from lmerge_controller.kubernetes.election import steady_s
from lmerge_controller.kubernetes.events import EventWriter
from lmerge_controller.kubernetes.fence import FencedWriter
from lmerge_controller.kubernetes.manifests import (
    FINGERPRINT,
    JOINED_GATE,
    REPLICA_LABEL,
    VERSION_LABEL,
    PodSettings,
    ReplicaStart,
    budget,
    deployment,
)
from lmerge_controller.kubernetes.object_cache import ObjectKey
from lmerge_controller.kubernetes.pod_states import joined_gate, processes
from lmerge_controller.kubernetes.query_status import QueryStatus
from lmerge_controller.kubernetes.statuses import time_text
from lmerge_controller.model.query import ReplicatedQuery
from lmerge_controller.plan.actions import (
    ProcessAction,
    ReplaceReplica,
    StartReplica,
    StartServer,
    StopReplica,
    StopServer,
    target_of,
)
from lmerge_controller.plan.conditions import QueryPlan
from lmerge_controller.plan.observed import ObservedProcess, RunningParts
from lmerge_controller.plan.record import Record


class KubernetesBackend:
    """The replicas of one query. ``query`` is its present description; ``described`` replaces it."""

    def __init__(
        self,
        query: ReplicatedQuery,
        copies: ClusterCopy,
        writer: FencedWriter,
        events: EventWriter,
        settings: PodSettings,
        metrics: ControllerMetrics,
    ) -> None:
        self.query = query
        self.key: ObjectKey = (query.namespace, query.name)
        self.status = QueryStatus(self.key, copies, writer)
        self._metrics = metrics
        self._copies, self._writer, self._events, self._settings = copies, writer, events, settings
        self._changed = asyncio.Event()
        self._described_at: float | None = steady_s()
        self._missing_right = ""

    def described(self, query: ReplicatedQuery) -> None:
        """Take a changed description, on which the next round acts."""
        self.query = query
        self._described_at = steady_s()
        self.wake()

    def wake(self) -> None:
        """End the present ``wait``."""
        self._changed.set()

    async def running(self) -> RunningParts:
        """Return what runs now, and the record. Raises ApiProblem if the copies are not current."""
        self._copies.check()
        self._missing_right = ""
        return RunningParts(
            addresses=self.query.servers.addresses, replicas=self._processes(), record=self.status.record
        )

    async def persist(self, record: Record) -> None:
        """Store the record in the status, with the leader's term. Raises LeadershipLost, ApiProblem."""
        await self.status.persist(record)

    async def act(self, action: ProcessAction) -> None:
        """Begin one change. Raises LeadershipLost, ApiProblem; UsageError for servers, which the chart runs."""
        if isinstance(action, StartServer | StopServer):
            raise UsageError("on Kubernetes the servers are those of the chart: name them in servers.addresses")
        try:
            await self._act(action)
        except NotAllowed as problem:
            self._missing_right = self._missing_right or problem.missing  # the first is what the rest follows from
            raise

    async def _act(self, action: StartReplica | StopReplica | ReplaceReplica) -> None:
        await self.status.claim()
        found = self._copies.parts(DEPLOYMENTS, self.key).get(action.replica)
        if isinstance(action, StartReplica):
            await self._start(action, found)
        elif self._is_life(action.replica, action.uid):
            if isinstance(action, StopReplica):
                if found is not None:
                    await self._writer.delete(DEPLOYMENTS, found)
            else:
                await self._start(action, found)

    async def report(self, plan: QueryPlan, outcomes: Sequence[ActionOutcome]) -> None:
        """Write Events, the readiness of pods, budgets and the status. Raises LeadershipLost, ApiProblem."""
        query = self.status.query
        for outcome in outcomes:
            name, action = type(outcome.action).__name__, outcome.action
            text = f"{target_of(action)}: {action.reason}"
            self._metrics.actions[name, "failed" if outcome.error else "done"] += 1
            if outcome.error:
                await self._events.emit(query, name, f"{name}Failed", f"{text}: {outcome.error}", is_warning=True)
            else:
                await self._events.emit(query, name, name, text)
        for note in plan.notes:
            await self._events.emit(query, "Decide", note.reason, note.message, is_warning=note.is_warning)
        try:
            await self._open_gates(frozenset(plan.joined))
            await self._keep_budgets()
        except NotAllowed as problem:
            self._missing_right = self._missing_right or problem.missing  # the first is what the rest follows from
            await self._events.emit(query, "Report", "RightMissing", str(problem), is_warning=True)
        await self.status.show_plan(plan, self.query.generation, self._missing_right)
        if self._described_at is not None:
            self._metrics.reaction.observe(steady_s() - self._described_at)
            self._described_at = None

    async def wait(self, timeout_s: float) -> None:
        """Return when something of the query has changed, or after ``timeout_s`` seconds."""
        with suppress(asyncio.TimeoutError):
            async with time_limit(timeout_s):
                await self._changed.wait()
        self._changed.clear()

    def _processes(self) -> tuple[ObservedProcess, ...]:
        deployments = self._copies.parts(DEPLOYMENTS, self.key).values()
        pods = self._copies.parts(PODS, self.key).values()
        return processes(deployments, pods, wall_us() / 1e6, self.query.restart.backoff_max_s)

    def _is_life(self, replica: str, uid: str) -> bool:
        return any(one.name == replica and one.uid == uid for one in self._processes())

    async def _start(self, action: StartReplica | ReplaceReplica, found: Json | None) -> None:
        """Apply the Deployment of a replica. One that is there as it should be is left alone."""
        version = self.query.version(action.version)
        if version is None:
            raise UsageError(f"there is no version {action.version} any more")
        after = action.after if isinstance(action, StartReplica) else action.uid
        record = self.status.record
        started_s = record.started_s if record is not None else wall_us() / 1e6
        start = ReplicaStart(version, action.index, action.role, started_s, action.jump_start, after)
        uid = self.status.query["metadata"]["uid"]
        if found is not None and isinstance(action, StartReplica) and not after and self._is_same(found, action):
            return
        await self._keep_budget(action.version)
        await self._writer.apply(DEPLOYMENTS, deployment(self.query, uid, start, self._settings), found)

    @staticmethod
    def _is_same(found: Json, action: StartReplica) -> bool:
        annotations = found["spec"]["template"]["metadata"].get("annotations") or {}
        return annotations.get(FINGERPRINT) == action.fingerprint and found["spec"].get("replicas") == 1

    async def _open_gates(self, joined: frozenset[str]) -> None:
        """Set the readiness gate of each pod: whether its replica is joined."""
        lives = {one.uid for one in self._processes()}
        for pod in self._copies.parts(PODS, self.key).values():
            meta = pod["metadata"]
            is_joined = meta["labels"].get(REPLICA_LABEL) in joined and meta["uid"] in lives
            if is_joined == joined_gate(pod) or meta.get("deletionTimestamp"):
                continue
            status = "True" if is_joined else "False"
            row = {"type": JOINED_GATE, "status": status, "lastTransitionTime": time_text(wall_us() / 1e6)}
            with suppress(ObjectMissing, WriteConflict):  # the pod is gone
                await self._writer.patch_status(PODS, pod, {"conditions": [row]})

    async def _keep_budgets(self) -> None:
        """Keep a budget for each version that has replicas, and none for the others."""
        versions = {
            one["metadata"]["labels"].get(VERSION_LABEL) for one in self._copies.parts(DEPLOYMENTS, self.key).values()
        }
        for found in self._copies.parts(BUDGETS, self.key).values():
            if found["metadata"]["labels"].get(VERSION_LABEL) not in versions:
                await self._writer.delete(BUDGETS, found)
        for version in sorted(str(one) for one in versions):
            await self._keep_budget(version)

    async def _keep_budget(self, version: str) -> None:
        body = budget(self.query, self.status.query["metadata"]["uid"], version)
        found = self._copies.parts(BUDGETS, self.key).get(body["metadata"]["name"])
        if found is None or any(found["spec"].get(key) != value for key, value in body["spec"].items()):
            await self._writer.apply(BUDGETS, body, found)


def problem_reason(problem: Exception) -> tuple[str, str]:
    """Return the reason and the text of a condition for what keeps a query from being operated."""
    if isinstance(problem, NotAllowed):
        return "RightMissing", f"RBAC does not allow the controller to {problem.missing}"
    if isinstance(problem, UsageError):
        return "InvalidDescription", str(problem)
    return "ClusterUnreachable", str(problem)
