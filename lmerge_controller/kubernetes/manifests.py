"""The objects of a query on Kubernetes, as JSON. Pure.

    Deployment  one for each replica, of one pod: the name of the replica is that of the Deployment
    PDB         one for each version: at most one of its replicas may be evicted at a time

A replica is a Deployment and not a member of a StatefulSet because replicas differ (their plan, their role, how they
are jump-started), and because a StatefulSet does not replace a pod whose node does not answer: the pod might still run.
A second pod does no harm here: servers let the newer incarnation replace the older one.

A pod is ready when the controller has found its replica joined (readiness gate ``lmerge.dev/joined``). So the budget
counts what could carry the output, not what merely runs. Pods meet the restricted profile of pod security. They have
no probes of their own: a command is any program, and what a probe would ask is seen at the servers.

Everything is owned by the query, so that deleting the query deletes it, also without a controller. No finalizer is
needed, and none can hang.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from lmerge_controller.kubernetes.api import BUDGETS, DEPLOYMENTS, QUERIES
from lmerge_controller.model.invocation import ReplicaWork, invocation
from lmerge_controller.model.query import JumpStartSource, ReplicatedQuery, VersionSpec

QUERY_LABEL: Final = "lmerge.dev/query"
VERSION_LABEL: Final = "lmerge.dev/version"
REPLICA_LABEL: Final = "lmerge.dev/replica"
INDEX_LABEL: Final = "lmerge.dev/index"
FINGERPRINT: Final = "lmerge.dev/fingerprint"
ROLE: Final = "lmerge.dev/role"
STARTED_AFTER: Final = "lmerge.dev/started-after"
JOINED_GATE: Final = "lmerge.dev/joined"
MANAGER: Final = "lmerge-controller"

CONTAINER: Final = "replica"
_CHECKPOINT: Final = "/jump-start/checkpoint.jsonl"
# A pod on a node that does not answer is replaced after so long; the default of Kubernetes is 300 s.
_UNREACHABLE_S: Final = 30
_GRACE_S: Final = 30


@dataclass(frozen=True)
class PodSettings:
    """What the controller adds to pods. ``image``: of versions that name none; it has the command ``lmerge``.

    ``ca_secret``: a Secret with ``ca.crt``; ``token_secret``: one with the token by which replicas publish, under
    ``token_key``. Empty: none.
    """

    image: str
    pull_policy: str = "IfNotPresent"
    ca_secret: str = ""
    token_secret: str = ""
    token_key: str = "token"
    service_account: str = ""


@dataclass(frozen=True)
class ReplicaStart:
    """What one replica is started as. ``after``: the uid of the pod that it replaces, so that equal starts differ."""

    version: VersionSpec
    index: int
    role: str
    started_s: float
    jump_start: JumpStartSource = JumpStartSource.NONE
    after: str = ""


def labels_of(query: ReplicatedQuery, version: str, index: int | None = None) -> dict[str, str]:
    """Return the labels of what belongs to a version, or to one replica of it."""
    labels = {
        "app.kubernetes.io/name": "lmerge-replica",
        "app.kubernetes.io/instance": query.name,
        "app.kubernetes.io/managed-by": MANAGER,
        QUERY_LABEL: query.name,
        VERSION_LABEL: version,
    }
    if index is not None:
        labels |= {REPLICA_LABEL: query.replica_name(version, index), INDEX_LABEL: str(index)}
    return labels


def owner_of(query: ReplicatedQuery, uid: str) -> list[dict[str, Any]]:
    """Return the reference to the query that owns an object."""
    reference = {"apiVersion": QUERIES.api_version, "kind": QUERIES.kind, "name": query.name, "uid": uid}
    return [reference | {"controller": True, "blockOwnerDeletion": False}]


def deployment(query: ReplicatedQuery, uid: str, start: ReplicaStart, settings: PodSettings) -> dict[str, Any]:
    """Return the Deployment of one replica, with one pod."""
    name = query.replica_name(start.version.name, start.index)
    labels = labels_of(query, start.version.name, start.index)
    return {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": DEPLOYMENTS.kind,
        "metadata": {
            "name": name,
            "namespace": query.namespace,
            "labels": labels,
            "annotations": {FINGERPRINT: start.version.fingerprint},
            "ownerReferences": owner_of(query, uid),
        },
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            # Not Recreate: that waits for the old pod to end, which it never does on a node that does not answer.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
            "selector": {"matchLabels": {QUERY_LABEL: query.name, REPLICA_LABEL: name}},
            "template": _pod(query, name, labels, start, settings),
        },
    }


def budget(query: ReplicatedQuery, uid: str, version: str) -> dict[str, Any]:
    """Return the disruption budget of a version: one replica at a time; one that is not joined may always go."""
    return {
        "apiVersion": BUDGETS.api_version,
        "kind": BUDGETS.kind,
        "metadata": {
            "name": f"{query.name}-{version}",
            "namespace": query.namespace,
            "labels": labels_of(query, version),
            "ownerReferences": owner_of(query, uid),
        },
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {QUERY_LABEL: query.name, VERSION_LABEL: version}},
        },
    }


def _pod(
    query: ReplicatedQuery, name: str, labels: dict[str, str], start: ReplicaStart, settings: PodSettings
) -> dict[str, Any]:
    version, is_jumping = start.version, start.jump_start is JumpStartSource.CHECKPOINT
    work = ReplicaWork(
        servers=query.servers.addresses,
        merge=query.merge.name,
        replica=name,
        role=start.role,
        started_s=start.started_s,
        checkpoint=_CHECKPOINT if is_jumping else "",
        table=query.jump_start.table if start.jump_start is JumpStartSource.TABLE else "",
    )
    made = invocation(query, version, start.index, work)
    volumes, mounts = _volumes(settings, is_jumping)
    own_volumes, own_mounts = _own_volumes(version)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": version.image or settings.image,
        "imagePullPolicy": settings.pull_policy,
        "env": _env(dict(made.env), settings),
        "volumeMounts": mounts + own_mounts,
        "securityContext": _container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if made.command:
        container["command"] = list(made.command)
    resources = {
        kind: dict(pairs)
        for kind, pairs in (("requests", version.resources.requests), ("limits", version.resources.limits))
        if pairs
    }
    if resources:
        container["resources"] = resources
    annotations = {FINGERPRINT: version.fingerprint, ROLE: start.role, STARTED_AFTER: start.after}
    spec: dict[str, Any] = {
        "containers": [container],
        "volumes": volumes + own_volumes,
        "readinessGates": [{"conditionType": JOINED_GATE}],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_S,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "topologySpreadConstraints": [_spread(query, version.name)],
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": s}
            for key, s in (("not-ready", _UNREACHABLE_S), ("unreachable", _UNREACHABLE_S))
        ],
    }
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    if version.service_account:
        spec |= {"serviceAccountName": version.service_account, "automountServiceAccountToken": True}
    if version.fs_group:
        spec["securityContext"] |= {"fsGroup": version.fs_group, "fsGroupChangePolicy": "OnRootMismatch"}
    if is_jumping:
        spec["initContainers"] = [_jump_start(query, settings, mounts)]
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


def _spread(query: ReplicatedQuery, version: str) -> dict[str, Any]:
    """Return the constraint that spreads replicas. Nodes that do not answer are no places to spread over."""
    return {
        "maxSkew": query.spread.max_skew,
        "topologyKey": query.spread.topology_key,
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {QUERY_LABEL: query.name, VERSION_LABEL: version}},
    }


def _jump_start(query: ReplicatedQuery, settings: PodSettings, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the container that writes the merge's live events to a file, before the replica starts."""
    servers = ",".join(query.servers.addresses)
    return {
        "name": "jump-start",
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "command": ["lmerge", "checkpoint", query.merge.name, "--server", servers, "--output", _CHECKPOINT],
        "env": _env({}, settings),
        "volumeMounts": mounts,
        "securityContext": _container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _volumes(settings: PodSettings, is_jumping: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]
    if is_jumping:
        volumes.append({"name": "jump-start", "emptyDir": {}})
        mounts.append({"name": "jump-start", "mountPath": "/jump-start"})
    for name, secret, key, file, path in (
        ("ca", settings.ca_secret, "ca.crt", "ca.crt", "/etc/lmerge/tls"),
        ("token", settings.token_secret, settings.token_key, "token", "/etc/lmerge/token"),
    ):
        if secret:
            source = {"secretName": secret, "items": [{"key": key, "path": file}], "defaultMode": 0o444}
            volumes.append({"name": name, "secret": source})
            mounts.append({"name": name, "mountPath": path, "readOnly": True})
    return volumes, mounts


def _own_volumes(version: VersionSpec) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the volumes that the description names, and their mounts. Only a claim can be written to."""
    sources = {"claim": ("persistentVolumeClaim", "claimName"), "configMap": ("configMap", "name")}
    volumes, mounts = [], []
    for index, volume in enumerate(version.volumes):
        kind, key = sources.get(volume.kind, ("secret", "secretName"))
        volumes.append({"name": f"own-{index}", kind: {key: volume.name}})
        mounts.append({"name": f"own-{index}", "mountPath": volume.path, "readOnly": volume.kind != "claim"})
    return volumes, mounts


def _env(own: dict[str, str], settings: PodSettings) -> list[dict[str, Any]]:
    added = {"HOME": "/tmp"}
    if settings.ca_secret:
        added["LMERGE_CA"] = "/etc/lmerge/tls/ca.crt"
    if settings.token_secret:
        added["LMERGE_TOKEN_FILE"] = "/etc/lmerge/token/token"
    return [{"name": name, "value": value} for name, value in sorted((added | own).items())]


def _container_security() -> dict[str, Any]:
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
