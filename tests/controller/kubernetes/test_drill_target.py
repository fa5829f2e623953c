"""The drill's target on Kubernetes against a real API server: pods die, nodes are cordoned, and all of it is undone."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kube_world import KubeServer, api_of, grant, make_namespace

from lmerge.errors import Unavailable, UsageError
from lmerge_controller.drill.aim import at_kube
from lmerge_controller.drill.journal import UndoJournal
from lmerge_controller.drill.kube_calls import CORDONED_BY, kill_pod, pods
from lmerge_controller.drill.kube_place import KubePlace
from lmerge_controller.drill.redundancy import MergeReports, ServerReport, refusal
from lmerge_controller.drill.scenario import DrillStep, FaultKind, StepVictim, VictimKind
from lmerge_controller.drill.targets.kube_release import KubeRelease, mend_nodes, merges_of_query, server_pods
from lmerge_controller.drill.undo import undo_all
from lmerge_controller.kubernetes.api import NODES, PODS, Api, Json
from lmerge_controller.kubernetes.api_errors import NotAllowed, ObjectExists, ObjectMissing

RELEASE = {"app.kubernetes.io/instance": "lm", "app.kubernetes.io/component": "server"}
REPLICA = {"lmerge.dev/query": "flights"}
READY: Json = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
KILL = DrillStep(FaultKind.KILL, StepVictim(VictimKind.SERVER, 1))
DRAIN = DrillStep(FaultKind.DRAIN, StepVictim(VictimKind.NODE, 1))


class DrilledCluster:
    """Two nodes, each with a server, and a replica of a query. There is no kubelet: the test makes and moves pods."""

    def __init__(self, kube: KubeServer, name: str) -> None:
        self.kube, self.name = kube, name
        self.nodes = [f"{name}-a", f"{name}-b"]
        self.place = KubePlace(name, "lm", "flights", kube.kubeconfig)
        self.do(lambda api: make_namespace(api, name))
        for body in [{"metadata": {"name": node}} for node in self.nodes]:
            self.do(partial(Api.create, resource=NODES, body=body))
        for number, node in enumerate(self.nodes):
            self.add(f"lm-server-{number}", node, RELEASE)
            self.add(f"flights-v1-{number}-x", node, REPLICA | {"lmerge.dev/replica": f"flights-v1-{number}"})
        self.add("other", self.nodes[0], {})

    def do(self, work: Callable[[Api], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with await api_of(self.kube) as api:
                return await work(api)

        return asyncio.run(run())

    def add(self, name: str, node: str, labels: dict[str, str]) -> None:
        """Make a pod that is ready on a node, in the place of the one of its name."""
        meta = {"name": name, "namespace": self.name, "labels": labels}
        container = {"name": "c", "image": "i", "env": [{"name": "LMERGE_MERGE", "value": "of-flights"}]}
        spec = {"nodeName": node, "subdomain": "lm-servers", "containers": [container]}

        async def work(api: Api) -> None:
            try:
                await api.create(PODS, {"metadata": meta, "spec": spec})
            except ObjectExists:
                found = await api.get(PODS, self.name, name)
                await api.delete(PODS, self.name, name, uid=found["metadata"]["uid"], grace_s=0)
                await api.create(PODS, {"metadata": meta, "spec": spec})
            await api.merge_patch(PODS, self.name, name, {"status": READY}, "status")

        self.do(work)

    def node(self, number: int) -> tuple[bool, str]:
        """Return whether a node is cordoned, and by whose drill."""
        found = self.do(lambda api: api.get(NODES, None, self.nodes[number]))
        owner = found["metadata"].get("annotations", {}).get(CORDONED_BY, "")
        return bool(found["spec"].get("unschedulable")), owner

    def running(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in pods(self.place, "")}


@pytest.fixture
def cluster(kube: KubeServer) -> DrilledCluster:
    return DrilledCluster(kube, f"drill-{secrets.token_hex(4)}")


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    with UndoJournal(tmp_path / "one.journal") as opened:
        yield opened


def test_the_parts_of_a_release_are_found(cluster: DrilledCluster, journal: UndoJournal) -> None:
    target = KubeRelease(cluster.place, journal, [])
    domain = f"lm-servers.{cluster.name}.svc:7171"
    assert target.addresses == [f"lm-server-0.{domain}", f"lm-server-1.{domain}"]
    assert target.numbers == {"server": 2, "input": 2, "node": 2}
    with pytest.raises(UsageError, match="1 servers are given, and release lm in namespace"):
        KubeRelease(cluster.place, journal, ["one"])
    with pytest.raises(UsageError, match="release none has no servers"):
        KubeRelease(KubePlace(cluster.name, "none", "", cluster.kube.kubeconfig), journal, [])


def test_the_merge_of_the_query_is_guarded_even_if_the_servers_do_not_show_it(cluster: DrilledCluster) -> None:
    assert merges_of_query(cluster.place) == ("of-flights",)
    assert merges_of_query(KubePlace(cluster.name, "lm", "", cluster.kube.kubeconfig)) == ()
    aimed = at_kube(cluster.place, ["127.0.0.1:0", "127.0.0.1:0"], None)
    assert aimed.protected(["mine"]) == ["of-flights", "mine"]
    unseen = [MergeReports(name, (ServerReport("s", name, problem="no right"),)) for name in ("probe", "of-flights")]
    assert refusal(DrillStep(FaultKind.KILL, StepVictim(VictimKind.INPUT, 1)), 1, unseen) == [
        "of-flights: server s: no right"
    ]


def test_a_killed_pod_is_gone_at_once_and_another_one_ends_the_fault(
    cluster: DrilledCluster, journal: UndoJournal
) -> None:
    target = KubeRelease(cluster.place, journal, [])
    undo = target.breaks["kill server"](2, KILL)
    with pytest.raises(ObjectMissing):  # it does not end in its own time
        cluster.do(lambda api: api.get(PODS, cluster.name, "lm-server-1"))
    cluster.add("lm-server-1", cluster.nodes[1], RELEASE)
    undo()
    ended = target.breaks["kill input"](1, KILL)
    assert "flights-v1-0-x" not in cluster.running()
    cluster.add("flights-v1-0-y", cluster.nodes[0], REPLICA | {"lmerge.dev/replica": "flights-v1-0"})
    ended()


def test_a_node_is_drained_of_the_release_and_the_query_alone(cluster: DrilledCluster, journal: UndoJournal) -> None:
    target = KubeRelease(cluster.place, journal, [])
    undo = target.breaks["drain node"](1, DRAIN)
    assert cluster.node(0) == (True, f"{cluster.name}.lm")
    assert cluster.node(1) == (False, "")
    assert cluster.running() == {"lm-server-1", "flights-v1-1-x", "other"}
    assert [entry.action for entry in journal.pending] == ["uncordon-node"]
    cluster.add("lm-server-0", cluster.nodes[1], RELEASE)
    undo()
    assert cluster.node(0) == (False, "")
    assert journal.pending == []


def test_the_last_servers_are_not_drained(cluster: DrilledCluster, journal: UndoJournal) -> None:
    target = KubeRelease(cluster.place, journal, [])
    cluster.add("lm-server-1", cluster.nodes[0], RELEASE)
    with pytest.raises(Unavailable, match="all servers of release lm"):
        target.breaks["drain node"](1, DRAIN)
    assert cluster.node(0) == (False, "")
    assert "drain node" not in KubeRelease(cluster.place, journal, []).breaks


def test_a_node_that_someone_else_has_cordoned_stays_so(cluster: DrilledCluster, journal: UndoJournal) -> None:
    target = KubeRelease(cluster.place, journal, [])
    cluster.do(lambda api: api.merge_patch(NODES, None, cluster.nodes[0], {"spec": {"unschedulable": True}}))
    with pytest.raises(UsageError, match="cordoned already"):
        target.breaks["drain node"](1, DRAIN)
    assert cluster.node(0) == (True, "")
    assert journal.pending == []
    assert len(cluster.running()) == 5


def test_what_a_killed_drill_has_cordoned_is_undone_by_its_journal_or_without_it(
    cluster: DrilledCluster, journal: UndoJournal
) -> None:
    target = KubeRelease(cluster.place, journal, [])
    target.breaks["drain node"](1, DRAIN)
    assert undo_all(journal, lambda text: None) == []
    assert cluster.node(0) == (False, "")
    cluster.add("lm-server-0", cluster.nodes[0], RELEASE)
    target.breaks["drain node"](1, DRAIN)
    assert mend_nodes(cluster.place) == [cluster.nodes[0]]
    assert cluster.node(0) == (False, "")


def test_a_drill_without_the_right_names_it(cluster: DrilledCluster, journal: UndoJournal) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    cluster.do(lambda api: grant(api, cluster.name, rules))
    narrow = KubePlace(cluster.name, "lm", "", cluster.kube.kubeconfig_of("narrow-token"))
    assert mend_nodes(narrow) == []
    target = KubeRelease(narrow, journal, [])
    with pytest.raises(NotAllowed, match="delete pods"):
        target.breaks["kill server"](1, KILL)
    with pytest.raises(NotAllowed):
        kill_pod(narrow, server_pods(narrow)[0])
    with pytest.raises(NotAllowed, match="get nodes"):
        target.breaks["drain node"](1, DRAIN)
