"""A merged query on a real cluster: joined, killed, led by another, cut over to another version, deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import ticking_app
from chart_world import ROOT
from kubernetes_world import RELEASE, TestNamespace, blocks, objects, run

NAME = "ticks"
SOURCE = Path(ticking_app.__file__).read_text()
RATE = {"TICKS_S": "20", "END_FILE": "/tmp/end"}


def query(namespace: str, *versions: str) -> str:
    """Return the query with the last version active, on the release's servers."""
    rows = [{"name": name, "run": {"command": ["python", "-c", SOURCE]}, "env": RATE} for name in versions]
    domain = f"{RELEASE}-servers.{namespace}.svc.cluster.local:7171"
    spec = {
        "merge": {"divergence": "alarm"},
        "servers": {"addresses": [f"{RELEASE}-server-{number}.{domain}" for number in (0, 1)]},
        "versions": rows,
        "active": versions[-1],
        "replicas": 2,
        "cutover": {"intervals": 3, "timeoutSeconds": 120},
    }
    meta = {"name": NAME, "namespace": namespace}
    found = {"apiVersion": "lmerge.dev/v1alpha1", "kind": "ReplicatedQuery", "metadata": meta, "spec": spec}
    return json.dumps(found)


@pytest.fixture(scope="module")
def streams(namespace: TestNamespace) -> TestNamespace:
    """Install the chart with servers that certify every 20 events, and describe a query of two replicas."""
    values = namespace.values.read_text()
    namespace.values.write_text(values.replace("servers:", "servers:\n  extraArgs: [--certify-interval, '20']", 1))
    namespace.install()
    namespace.kubectl("apply", "-f", "-", text=query(namespace.name, "v1"))
    return namespace


def settled(namespace: TestNamespace, serving: str) -> None:
    """Wait until two replicas of a version are joined and one loss would be survived."""
    for wish in (f"jsonpath={{.status.serving}}={serving}", "jsonpath={.status.joinedOf}=2/2", "condition=Redundant"):
        namespace.kubectl("wait", f"rq/{NAME}", f"--for={wish}", "--timeout=120s")


def leader(namespace: TestNamespace) -> str:
    path = "jsonpath={.spec.holderIdentity}"
    return namespace.kubectl("get", "lease", "lmerge-controller", "-o", path).partition("_")[0]


def pods(namespace: TestNamespace) -> list[dict[str, Any]]:
    return objects("pod", "-n", namespace.name, "-l", f"lmerge.dev/query={NAME}")


def test_both_controllers_are_ready_and_two_replicas_join_at_both_servers(streams: TestNamespace) -> None:
    streams.kubectl("rollout", "status", f"deployment/{RELEASE}-controller", "--timeout=60s")
    settled(streams, "v1")
    assert len({pod["spec"]["nodeName"] for pod in pods(streams)}) == min(2, len(objects("node")))


def test_a_replica_that_is_killed_comes_back(streams: TestNamespace) -> None:
    first = next(pod for pod in pods(streams) if pod["metadata"]["labels"]["lmerge.dev/index"] == "0")
    streams.kubectl("delete", "pod", first["metadata"]["name"], "--grace-period=0", "--force")
    streams.kubectl("rollout", "status", f"deployment/{NAME}-v1-0", "--timeout=60s")
    settled(streams, "v1")
    assert first["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in pods(streams)}


def test_another_controller_leads_after_a_kill_and_cuts_over(streams: TestNamespace) -> None:
    before = leader(streams)
    streams.kubectl("delete", "pod", before, "--grace-period=0", "--force")
    streams.kubectl("apply", "-f", "-", text=query(streams.name, "v1", "v2"))
    settled(streams, "v2")
    assert leader(streams) not in ("", before)
    streams.kubectl("wait", "--for=delete", f"deployment/{NAME}-v1-0", f"deployment/{NAME}-v1-1", "--timeout=120s")
    assert {pod["metadata"]["labels"]["lmerge.dev/version"] for pod in pods(streams)} >= {"v2"}


def test_the_commands_of_the_guide_cut_over(streams: TestNamespace) -> None:
    (block,) = [found for found in blocks(ROOT / "docs" / "day-two.md") if "patch replicatedquery" in found]
    for ours, own in (("--namespace streams", f"--namespace {streams.name}"), ("flights", NAME), ("v2", "v1")):
        block = block.replace(ours, own)
    printed = run("bash", "-c", f"set -euo pipefail\n{block}")
    assert "CutoverBegun" in printed
    assert "Serving" in printed
    settled(streams, "v1")


def test_a_query_that_is_deleted_takes_its_replicas_with_it(streams: TestNamespace) -> None:
    streams.kubectl("delete", "rq", NAME)
    streams.kubectl("wait", "--for=delete", "pod", "-l", f"lmerge.dev/query={NAME}", "--timeout=90s")
    kinds = "deployment,poddisruptionbudget"
    assert objects(kinds, "-n", streams.name, "-l", f"lmerge.dev/query={NAME}") == []
    streams.helm("uninstall", RELEASE, "--wait", "--timeout", "120s")
    assert run("kubectl", "get", "lease", "-n", streams.name, "-o", "name") == ""
