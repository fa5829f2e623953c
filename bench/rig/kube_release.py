"""A release of the chart on the cluster that KUBECONFIG names, with a query that publishes a known stream.

Called by ``cluster_faults``. It is installed into a namespace of its own, with the defaults of the chart: certificates,
tokens, two servers on two nodes with a volume each, and two controllers. Everything is removed at the end.

The reader runs on this machine, outside of what is broken. It reaches each server by a Service of its own, whose
address stays the same when the pod is another one. So this machine must be a node of the cluster, or route to its
services.
"""

from __future__ import annotations

import base64
import inspect
import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from bench.rig import pod_replica
from lmerge.client import Security
from lmerge_controller.drill.judging.truth import ProbeTruth
from lmerge_controller.drill.probe.fleet import MERGE

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts" / "lmerge"
RELEASE: Final = "lmerge"
QUERY: Final = "known"
BYSTANDER: Final = "bystander"
# It starts as a replica does, and does nothing then.
BYSTANDER_PROGRAM: Final = "import lmerge_controller.drill.probe.replica, threading; threading.Event().wait()"
SERVERS: Final = 2
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
COMMAND_S_MAX: Final = 400.0
REQUESTS: Final = {"cpu": "200m", "memory": "96Mi"}


def command(*parts: str, text: str | None = None, timeout_s: float = COMMAND_S_MAX) -> str:
    """Run a command and return what it prints. Raises RuntimeError with its output if it fails."""
    done = subprocess.run(parts, input=text, capture_output=True, text=True, check=False, timeout=timeout_s)
    if done.returncode:
        raise RuntimeError(f"{' '.join(parts)}\n{done.stdout}{done.stderr}")
    return done.stdout


def listed(kind: str, *options: str) -> list[dict[str, Any]]:
    """Return the objects of a kind, as JSON."""
    found: list[dict[str, Any]] = json.loads(command("kubectl", "get", kind, "-o", "json", *options))["items"]
    return found


def has_default_class() -> bool:
    """Whether the cluster makes volumes by itself."""
    annotations = (found["metadata"].get("annotations", {}) for found in listed("storageclass"))
    return any(found.get(DEFAULT_CLASS) == "true" for found in annotations)


@contextmanager
def local_volumes(storage_class: str, folder: Path) -> Iterator[None]:
    """Make one volume on each node for servers, as folders that this machine and the nodes share."""
    names = [_local_volume(storage_class, node["metadata"]["name"], folder) for node in listed("node")]
    try:
        yield
    finally:
        for name in names:
            command("kubectl", "delete", "persistentvolume", name, "--ignore-not-found", "--wait=false")
            shutil.rmtree(folder / name, ignore_errors=True)


def _local_volume(storage_class: str, node: str, folder: Path) -> str:
    name = f"{storage_class}-{node}"
    path = folder / name
    path.mkdir(parents=True)
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }
    command("kubectl", "apply", "-f", "-", text=yaml.safe_dump(volume))
    return name


@dataclass(frozen=True)
class BenchRelease:
    """A release that runs. ``addresses``: of each server, as this machine reaches it."""

    namespace: str
    addresses: tuple[str, ...]
    security: Security

    def kubectl(self, *parts: str, text: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return command("kubectl", "--namespace", self.namespace, *parts, text=text)

    def start_query(self, truth: ProbeTruth, replicas: int) -> None:
        """Let the controllers start a query whose replicas publish the probe stream."""
        self.kubectl("apply", "-f", "-", text=json.dumps(query_of(self.namespace, truth, replicas, MERGE)))

    def start_bystander(self, image: str) -> None:
        """Start a pod that has nothing to do with the stream."""
        self.kubectl("apply", "-f", "-", text=json.dumps(bystander_of(self.namespace, image)))
        self.kubectl("rollout", "status", f"deployment/{BYSTANDER}", "--timeout=60s")

    def replica_names(self, replicas: int) -> frozenset[str]:
        """Return the inputs of the merge that the query publishes."""
        return frozenset(f"{QUERY}-v1-{index}" for index in range(replicas))


def query_of(namespace: str, truth: ProbeTruth, replicas: int, merge: str) -> dict[str, Any]:
    """Return the ReplicatedQuery of a known stream.

    Its replicas ask for CPU: a pod that asks for none gets next to none where anything else needs it.
    """
    servers = [f"{RELEASE}-server-{index}.{RELEASE}-servers.{namespace}.svc:7171" for index in range(SERVERS)]
    parts = ["python", "-c", inspect.getsource(pod_replica), json.dumps(asdict(truth))]
    return {
        "apiVersion": "lmerge.dev/v1alpha1",
        "kind": "ReplicatedQuery",
        "metadata": {"name": QUERY, "namespace": namespace},
        "spec": {
            "merge": {"name": merge},
            "servers": {"addresses": servers},
            "versions": [{"name": "v1", "run": {"command": parts}, "resources": {"requests": REQUESTS}}],
            "active": "v1",
            "replicas": replicas,
        },
    }


def bystander_of(namespace: str, image: str) -> dict[str, Any]:
    """Return a Deployment of one pod that costs what a replica costs until it publishes."""
    container = {
        "name": BYSTANDER,
        "image": image,
        "command": ["python", "-c", BYSTANDER_PROGRAM],
        "resources": {"requests": REQUESTS},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    labels = {"app": BYSTANDER}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": BYSTANDER, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


@contextmanager
def bench_release(image: str, values: list[str], volumes: Path | None, folder: Path) -> Iterator[BenchRelease]:
    """Install a release, and remove it with all that it has made. ``values``: files for helm."""
    name = f"lmerge-bench-{secrets.token_hex(3)}"
    repository, _, tag = image.rpartition(":")
    persistence: dict[str, Any] = {"size": "1Gi", "whenDeleted": "Delete"}
    own = {"image": {"repository": repository, "tag": tag}, "servers": {"persistence": persistence}}
    if not has_default_class():
        persistence |= {"storageClassName": name} if volumes is not None else {"enabled": False}
    (folder / "values.yaml").write_text(yaml.safe_dump(own))
    files = [part for path in (str(folder / "values.yaml"), *values) for part in ("--values", path)]
    command("kubectl", "create", "namespace", name)
    try:
        command("kubectl", "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
        with _volumes_for(name, persistence, volumes):
            command("helm", "--namespace", name, "install", RELEASE, str(CHART), *files, "--wait", "--timeout", "300s")
            try:
                addresses = tuple(_reachable(name, index) for index in range(SERVERS))
                yield BenchRelease(name, addresses, _security(name, folder))
            finally:
                command("kubectl", "--namespace", name, "delete", "rq", "--all", "--timeout=60s")
                command("helm", "--namespace", name, "uninstall", RELEASE, "--wait", "--timeout", "180s")
    finally:
        command("kubectl", "delete", "namespace", name, "--timeout=120s")


@contextmanager
def _volumes_for(name: str, persistence: dict[str, Any], folder: Path | None) -> Iterator[None]:
    if folder is None or persistence.get("storageClassName") != name:
        yield
        return
    with local_volumes(name, folder):
        yield


def _reachable(namespace: str, index: int) -> str:
    """Make a Service for one server. Return its address."""
    name = f"{RELEASE}-server-{index}"
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"statefulset.kubernetes.io/pod-name": name},
            "publishNotReadyAddresses": True,
            "ports": [{"name": "grpc", "port": 7171, "protocol": "TCP"}],
        },
    }
    made = json.loads(command("kubectl", "apply", "-o", "json", "-f", "-", text=json.dumps(service)))
    return f"{made['spec']['clusterIP']}:7171"


def _security(namespace: str, folder: Path) -> Security:
    """Return how this machine connects: the token of drills, and a name that every server's certificate has."""
    for secret, key, path in (("tls", "ca.crt", "ca.pem"), ("token-drill", "token", "token")):
        found = command("kubectl", "--namespace", namespace, "get", "secret", f"{RELEASE}-{secret}", "-o", "json")
        made = folder / path
        made.touch(0o600)
        made.write_bytes(base64.b64decode(json.loads(found)["data"][key]))
    return Security(
        ca=str(folder / "ca.pem"), token_file=str(folder / "token"), server_name=f"{RELEASE}.{namespace}.svc"
    )
