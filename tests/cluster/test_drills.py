"""Every drill that can break a release on a cluster, run in the cluster as the chart's CronJob does, each must pass.

What a cluster cannot have: servers that are frozen or stopped without Kubernetes, and full disks. A sandbox has those.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import pytest
from kubernetes_world import RELEASE, TestNamespace, await_that, objects

from bench.rig.kube_release import QUERY, query_of
from lmerge_controller.drill.judging.truth import ProbeTruth
from lmerge_controller.drill.scenario_file import builtin_scenarios

TRUTH = ProbeTruth(int(time.time() * 1e6), events_per_s=100)
DRILL_S_MAX = 600.0


@dataclass(frozen=True)
class DrillGroup:
    """Drills of one release. ``args``: of the servers."""

    names: tuple[str, ...]
    args: tuple[str, ...] = ()


GROUPS = {
    "of replicas": DrillGroup(("kill-winner", "kill-all-but-one", "freeze-replica", "clock-apart")),
    "of versions": DrillGroup(("cutover",), ("--certify-interval=1000000",)),
    "of pods": DrillGroup(("kill-server", "kill-durable-pair", "kill-input")),
    "of a node": DrillGroup(("drain-node",)),
    "of liars": DrillGroup(("lying-replica",), ("--on-divergence=majority", "--certify-interval=1000000")),
    "of links": DrillGroup(("slow-replica", "partition-one-way", "partition")),
}
# They need what no API reaches, or processes that only a sandbox has.
ELSEWHERE = {"freeze-server", "full-disk", "rolling-upgrade", "api-server-gone"}


def installed(namespace: TestNamespace, group: DrillGroup) -> None:
    """Install or upgrade the release to what a group needs."""
    token = {"roles": ["publish", "subscribe", "status", "admin"], "merges": ["lmerge-drill", QUERY], "replicas": ["*"]}
    namespace.add_values(
        drill={"kubernetes": {"enabled": True, "drainNodes": True, "query": QUERY}},
        tokens={"clients": {"drill": token}},
    )
    exists = bool(objects("statefulset", "-n", namespace.name))
    namespace.set_servers(extraArgs=list(group.args))
    namespace.install(replace=exists)
    namespace.kubectl("apply", "-f", "-", text=json.dumps(query_of(namespace.name, TRUTH, 2, QUERY)))
    namespace.kubectl("wait", f"replicatedquery/{QUERY}", "--for=condition=Redundant", "--timeout=180s")


def drilled(namespace: TestNamespace, job: str, names: tuple[str, ...]) -> str:
    """Run drills as a Job of the chart's CronJob; return what it printed."""
    made = json.loads(
        namespace.kubectl("create", "job", job, f"--from=cronjob/{RELEASE}-drill", "--dry-run=client", "--output=json")
    )
    (container,) = made["spec"]["template"]["spec"]["containers"]
    options = [option for option in container["args"] if option.startswith("--")]
    container["args"] = ["drill", "run", *options, *names]
    namespace.kubectl("apply", "-f", "-", text=json.dumps(made))

    def has_ended() -> bool:
        status = json.loads(namespace.kubectl("get", "job", job, "-o", "json")).get("status", {})
        return bool(status.get("succeeded") or status.get("failed"))

    await_that(has_ended, DRILL_S_MAX, f"job {job} has ended")
    return namespace.kubectl("logs", f"job/{job}")


@pytest.mark.parametrize("name", GROUPS)
def test_drills_pass(namespace: TestNamespace, name: str) -> None:
    group = GROUPS[name]
    installed(namespace, group)
    printed = drilled(namespace, name.replace(" ", "-"), group.names)
    assert [drill for drill in group.names if f"PASSED   {drill}:" not in printed] == [], printed
    assert all(not node["spec"].get("unschedulable") for node in objects("node"))


def test_every_drill_is_run_here_or_cannot_be() -> None:
    run_here = {drill for group in GROUPS.values() for drill in group.names}
    assert run_here | ELSEWHERE == set(builtin_scenarios())
    assert not run_here & ELSEWHERE
