"""A release of the chart on Kubernetes: its servers and a query's replicas are killed, and nodes are drained.

Kubernetes keeps the pods. So the drill makes none: it waits until another pod is ready. A drained node is the one thing
that the drill must undo itself. The node is in the journal, and has an annotation, before it is cordoned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from lmerge.errors import LmergeError, Unavailable, UsageError
from lmerge_controller.drill.journal import UndoJournal
from lmerge_controller.drill.kube_calls import cordon, cordoned_nodes, evict_pod, is_ready, kill_pod, pods, uncordon
from lmerge_controller.drill.kube_place import KubePlace
from lmerge_controller.drill.scenario import DrillStep
from lmerge_controller.drill.targets.target import AddressedTarget, Break, Undo
from lmerge_controller.kubernetes.api import Json
from lmerge_controller.kubernetes.api_errors import NotAllowed
from lmerge_controller.kubernetes.manifests import QUERY_LABEL, REPLICA_LABEL

POLL_S: Final = 0.5
# A pod is scheduled, its image is there, and it is ready within seconds. A volume that moves takes minutes.
READY_S_MAX: Final = 180.0
# A server drains for up to a minute, and a disruption budget lets them go one after the other.
EVICTED_S_MAX: Final = 180.0
PORT: Final = 7171


class KubeRelease(AddressedTarget):
    """The pods of a release. ``addresses``: its servers as clients reach them, in their order; empty: by DNS."""

    def __init__(self, place: KubePlace, journal: UndoJournal, addresses: list[str], security: Any = None) -> None:
        """Read what runs. Raises UsageError, ApiProblem."""
        self._place, self._journal = place, journal
        servers = server_pods(place)
        super().__init__(addresses or [address_of(pod) for pod in servers], security)
        if len(self._addresses) != len(servers):
            raise UsageError(f"{len(self._addresses)} servers are given, and {self._title} has {len(servers)}")
        self._servers = [str(pod["metadata"]["name"]) for pod in servers]
        self._inputs = sorted({_replica(pod) for pod in _query_pods(place)})
        self._nodes = _nodes_to_drain(servers)

    @property
    def title(self) -> str:
        return f"{self._title} on Kubernetes"

    @property
    def breaks(self) -> Mapping[str, Break]:
        found: dict[str, Break] = {"kill server": self._kill_server}
        if self._inputs:
            found["kill input"] = self._kill_input
        if self._nodes:
            found["drain node"] = self._drain
        return found

    @property
    def numbers(self) -> Mapping[str, int]:
        return {"server": len(self._servers), "input": len(self._inputs), "node": len(self._nodes)}

    @property
    def _title(self) -> str:
        return f"release {self._place.release} in namespace {self._place.namespace}"

    def _kill_server(self, number: int, step: DrillStep) -> Undo:
        return self._kill(_numbered(self._servers, number, "server"), self._by_server)

    def _kill_input(self, number: int, step: DrillStep) -> Undo:
        return self._kill(_numbered(self._inputs, number, "input"), self._by_replica)

    def _kill(self, name: str, found_by: Callable[[str], list[Json]]) -> Undo:
        victims = found_by(name)
        if not victims:
            raise Unavailable(f"{name} has no pod")
        for pod in victims:
            kill_pod(self._place, pod)
        old = {pod["metadata"]["uid"] for pod in victims}
        return lambda: self._wait(lambda: _has_another(found_by(name), old), READY_S_MAX, f"another pod of {name}")

    def _drain(self, number: int, step: DrillStep) -> Undo:
        """Cordon a node, and evict the pods of the release and of the query that are on it, and no others."""
        node = _numbered(self._nodes, number, "node")
        servers = server_pods(self._place)
        if all(_node(pod) == node for pod in servers):
            raise Unavailable(f"all servers of {self._title} are on node {node} now")
        note = self._journal.note("uncordon-node", node=node, place=self._place.as_json())

        def undo() -> None:
            uncordon(self._place, node)
            self._journal.done(note)
            self._wait(self._are_servers_ready, READY_S_MAX, "all servers are ready")

        try:
            cordon(self._place, node)
            leaving = [pod for pod in (*servers, *_query_pods(self._place)) if _node(pod) == node]
            self._evict(leaving)
        except LmergeError:
            uncordon(self._place, node)
            self._journal.done(note)
            raise
        return undo

    def _evict(self, leaving: list[Json]) -> None:
        """Evict pods as fast as their disruption budgets allow."""
        left = list(leaving)

        def is_done() -> bool:
            left[:] = [pod for pod in left if not evict_pod(self._place, pod)]
            return not left

        self._wait(is_done, EVICTED_S_MAX, "the disruption budgets let all pods go")

    def _are_servers_ready(self) -> bool:
        found = server_pods(self._place)
        return len(found) == len(self._servers) and all(map(is_ready, found))

    def _by_server(self, name: str) -> list[Json]:
        return [pod for pod in server_pods(self._place) if pod["metadata"]["name"] == name]

    def _by_replica(self, name: str) -> list[Json]:
        return [pod for pod in _query_pods(self._place) if _replica(pod) == name]

    def _wait(self, is_met: Callable[[], bool], limit_s: float, what: str) -> None:
        until_s = time.monotonic() + limit_s
        while not is_met():
            if time.monotonic() >= until_s:
                raise Unavailable(f"waited {limit_s:.0f} s until {what}")
            time.sleep(POLL_S)


def server_pods(place: KubePlace) -> list[Json]:
    """Return the servers of a release, in their order. Raises UsageError if there are none; ApiProblem."""
    labels = f"app.kubernetes.io/instance={place.release},app.kubernetes.io/component=server"
    found = pods(place, labels)
    if not found:
        raise UsageError(f"release {place.release} has no servers in namespace {place.namespace}")
    return found


def address_of(pod: Json) -> str:
    """Return the address of a server by the name that its StatefulSet gives it."""
    meta, spec = pod["metadata"], pod["spec"]
    return f"{meta['name']}.{spec['subdomain']}.{meta['namespace']}.svc:{PORT}"


def merges_of_query(place: KubePlace) -> tuple[str, ...]:
    """Return the merges to which the replicas of the query publish, by their environment. Raises ApiProblem."""
    containers = [one for pod in _query_pods(place) for one in pod["spec"]["containers"]]
    variables = [found for container in containers for found in container.get("env", ())]
    return tuple(sorted({str(found["value"]) for found in variables if found["name"] == "LMERGE_MERGE"}))


def mend_nodes(place: KubePlace) -> list[str]:
    """Uncordon the nodes that a killed drill of this release has left cordoned. Return them. Raises ApiProblem.

    Without the right to list nodes no drill can have cordoned one.
    """
    try:
        left = cordoned_nodes(place)
    except NotAllowed:
        return []
    for node in left:
        uncordon(place, node)
    return left


def _query_pods(place: KubePlace) -> list[Json]:
    return pods(place, f"{QUERY_LABEL}={place.query}") if place.query else []


def _replica(pod: Json) -> str:
    return str(pod["metadata"]["labels"].get(REPLICA_LABEL, pod["metadata"]["name"]))


def _node(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


def _nodes_to_drain(servers: list[Json]) -> list[str]:
    """Return the nodes with some of the servers, and not with all."""
    nodes = {_node(pod) for pod in servers} - {""}
    return sorted(node for node in nodes if any(_node(pod) not in (node, "") for pod in servers))


def _has_another(found: list[Json], old: set[str]) -> bool:
    return any(is_ready(pod) and pod["metadata"]["uid"] not in old for pod in found)


def _numbered(names: list[str], number: int, kind: str) -> str:
    if number > len(names):
        raise UsageError(f"there are {len(names)} {kind}s, and no number {number}")
    return names[number - 1]
