"""The objects of a query: valid for each Kubernetes, restricted, owned; and pods as processes."""

from __future__ import annotations

from typing import Any

import pytest
from kube_world import shown
from kubernetes_validate import validate

from lmerge_controller.kubernetes.manifests import (
    JOINED_GATE,
    STARTED_AFTER,
    PodSettings,
    ReplicaStart,
    budget,
    deployment,
)
from lmerge_controller.kubernetes.pod_states import joined_gate, problem_of_pod, process_of, processes
from lmerge_controller.model.query import JumpStartSource, ReplicatedQuery
from lmerge_controller.model.reading import query_of
from lmerge_controller.plan.observed import ProcessPhase

SETTINGS = PodSettings("lmerge:1", ca_secret="tls", token_secret="publisher")


def query_of_spec(**spec: Any) -> ReplicatedQuery:
    version = {"name": "v1", "run": {"replica": "aggressive"}, "resources": {"limits": {"memory": "1Gi"}}}
    body = {"servers": {"addresses": ["a:7171", "b:7171"]}, "versions": [version]} | spec
    meta = {"name": "flights", "namespace": "n"}
    return query_of(
        {"apiVersion": "lmerge.dev/v1alpha1", "kind": "ReplicatedQuery", "metadata": meta, "spec": body}, source="q"
    )


def made(query: ReplicatedQuery, **start: Any) -> dict[str, Any]:
    return deployment(query, "uid", ReplicaStart(query.versions[0], 1, "observe", 5.0, **start), SETTINGS)


@pytest.mark.parametrize("release", ["1.30", "1.34", "1.37"])
def test_objects_are_valid_for_each_kubernetes(release: str) -> None:
    query = query_of_spec(jumpStart={"from": "checkpoint"})
    validate(made(query, jump_start=JumpStartSource.CHECKPOINT), release, strict=True)
    validate(budget(query, "uid", "v1"), release, strict=True)


def test_a_replica_gets_its_work_by_its_environment_and_its_command() -> None:
    container = made(query_of_spec())["spec"]["template"]["spec"]["containers"][0]
    env = {one["name"]: one["value"] for one in container["env"]}
    assert env["LMERGE_SERVERS"] == "a:7171,b:7171"
    assert (env["LMERGE_MERGE"], env["LMERGE_REPLICA"], env["LMERGE_ROLE"]) == ("flights", "flights-v1-1", "observe")
    assert env["LMERGE_TOKEN_FILE"] == "/etc/lmerge/token/token"
    assert container["command"][:4] == ["lmerge", "replica", "run", "aggressive"]
    assert container["resources"] == {"limits": {"memory": "1Gi"}}


def test_without_a_command_the_image_runs_its_own() -> None:
    version = {"name": "v1", "run": {"command": ["./run", "{replica}"]}, "image": "mine:2"}
    container = made(query_of_spec(versions=[version]))["spec"]["template"]["spec"]["containers"][0]
    assert (container["image"], container["command"]) == ("mine:2", ["./run", "flights-v1-1"])


def test_pods_meet_the_restricted_profile() -> None:
    query = query_of_spec(jumpStart={"from": "checkpoint"})
    pod = made(query, jump_start=JumpStartSource.CHECKPOINT)["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for container in (*pod["containers"], *pod["initContainers"]):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False, shown(container)
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False


DRIVER = {
    "name": "v1",
    "run": {"command": ["driver"]},
    "serviceAccount": "spark",
    "fsGroup": 185,
    "volumes": [
        {"claim": "checkpoints", "path": "/checkpoints"},
        {"configMap": "forms", "path": "/etc/forms"},
        {"secret": "password", "path": "/etc/password"},
    ],
}


@pytest.mark.parametrize("release", ["1.30", "1.37"])
def test_a_replica_gets_the_account_and_the_volumes_of_its_version(release: str) -> None:
    made_of = made(query_of_spec(versions=[DRIVER]))
    validate(made_of, release, strict=True)
    pod = made_of["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("spark", True)
    assert pod["securityContext"]["fsGroup"] == 185
    assert pod["securityContext"]["runAsNonRoot"] is True
    volumes = {volume.pop("name"): volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: (volumes[mount["name"]], mount) for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts["/checkpoints"][0] == {"persistentVolumeClaim": {"claimName": "checkpoints"}}
    assert mounts["/etc/forms"][0] == {"configMap": {"name": "forms"}}
    assert mounts["/etc/password"][0] == {"secret": {"secretName": "password"}}
    assert [path for path, (_, mount) in mounts.items() if not mount.get("readOnly")] == ["/tmp", "/checkpoints"]


def test_a_jump_start_has_none_of_the_volumes_of_its_version() -> None:
    query = query_of_spec(versions=[DRIVER], jumpStart={"from": "checkpoint"})
    pod = made(query, jump_start=JumpStartSource.CHECKPOINT)["spec"]["template"]["spec"]
    assert "/checkpoints" not in {mount["mountPath"] for mount in pod["initContainers"][0]["volumeMounts"]}


def test_a_pod_is_ready_only_when_its_replica_has_joined() -> None:
    spec = made(query_of_spec())["spec"]
    assert spec["template"]["spec"]["readinessGates"] == [{"conditionType": JOINED_GATE}]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 1}
    assert budget(query_of_spec(), "uid", "v1")["spec"]["maxUnavailable"] == 1


def test_everything_is_owned_by_the_query() -> None:
    for found in (made(query_of_spec()), budget(query_of_spec(), "uid", "v1")):
        owner = found["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("ReplicatedQuery", "uid", True)
        assert "finalizers" not in found["metadata"]


def test_a_replacement_differs_from_what_it_replaces() -> None:
    template = made(query_of_spec(), after="old-uid")["spec"]["template"]
    assert template["metadata"]["annotations"][STARTED_AFTER] == "old-uid"
    assert made(query_of_spec())["spec"]["template"] != template


def pod(
    name: str = "flights-v1-1", uid: str = "p1", *, at: str = "2026-01-01T00:00:00Z", **status: Any
) -> dict[str, Any]:
    labels = made(query_of_spec())["metadata"]["labels"] | {"lmerge.dev/replica": name}
    meta = {"name": f"{name}-x", "namespace": "n", "uid": uid, "labels": labels, "creationTimestamp": at}
    return {"metadata": meta, "status": status}


def container(state: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [{"name": "replica", "state": state} | more]


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:10Z"}}
KILLED = {
    "terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:09Z", "message": "a\nb"}
}
BACKED_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
UNSCHEDULED = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes: cpu"}]
NO_IMAGE = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
CASES: list[tuple[dict[str, Any], ProcessPhase, str]] = [
    ({"phase": "Pending"}, ProcessPhase.STARTING, ""),
    ({"phase": "Pending", "conditions": UNSCHEDULED}, ProcessPhase.STARTING, "Unschedulable: 0/2 nodes: cpu"),
    (
        {"phase": "Pending", "containerStatuses": container(NO_IMAGE)},
        ProcessPhase.STARTING,
        "ImagePullBackOff: no such image",
    ),
    ({"phase": "Running", "containerStatuses": container(RUNNING)}, ProcessPhase.RUNNING, ""),
    (
        {"phase": "Running", "containerStatuses": container(BACKED_OFF, lastState=KILLED, restartCount=3)},
        ProcessPhase.RESTARTING,
        "CrashLoopBackOff: back-off 10s; OOMKilled with exit code 137: b",
    ),
    ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, ProcessPhase.EXITED, "Evicted: disk"),
    ({"phase": "Running", "conditions": [{"type": "Ready", "status": "Unknown"}]}, ProcessPhase.UNKNOWN, ""),
    (
        {"phase": "Pending", "initContainerStatuses": container(BACKED_OFF, lastState=KILLED)},
        ProcessPhase.STARTING,
        "CrashLoopBackOff: back-off 10s; OOMKilled with exit code 137: b",
    ),
]


@pytest.mark.parametrize(("status", "phase", "problem"), CASES)
def test_a_pod_is_a_process_with_its_problem(status: dict[str, Any], phase: ProcessPhase, problem: str) -> None:
    found = process_of(pod(**status), 0.0, 60.0)
    assert (found.phase, found.problem) == (phase, problem)
    assert (found.name, found.version, found.index) == ("flights-v1-1", "v1", 1)


def test_ends_count_until_it_has_run_for_long() -> None:
    seen = pod(phase="Running", containerStatuses=container(RUNNING, lastState=KILLED, restartCount=3))
    started = 1767225610.0  # 00:00:10
    young, old = process_of(seen, started + 59, 60.0), process_of(seen, started + 60, 60.0)
    assert (young.exits, old.exits) == (3, 0)
    assert (young.exit_code, young.exited_at_s, young.started_at_s) == (137, started - 1, started)


def test_the_youngest_pod_that_is_not_ending_is_the_process() -> None:
    ending, older, younger = (
        pod(uid="e", at="2026-01-01T00:00:09Z"),
        pod(uid="o"),
        pod(uid="y", at="2026-01-01T00:00:05Z"),
    )
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    assert [one.uid for one in processes([], [ending, older, younger], 0.0, 60.0)] == ["y"]
    assert processes([], [ending], 0.0, 60.0)[0].phase is ProcessPhase.STOPPING


def test_a_deployment_without_a_pod_is_a_process_that_starts() -> None:
    found = made(query_of_spec())
    found["metadata"] |= {"uid": "d", "generation": 2}
    found["status"] = {
        "conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}]
    }
    (process,) = processes([found], [], 0.0, 60.0)
    assert (process.uid, process.phase, process.problem) == ("d-2", ProcessPhase.STARTING, "FailedCreate: quota")
    assert process.role == "observe"
    assert processes([found], [pod()], 0.0, 60.0)[0].uid == "p1"


def test_a_deployment_that_wishes_no_pod_is_not_started_yet() -> None:
    found = made(query_of_spec())
    found["metadata"] |= {"uid": "d", "generation": 1}
    found["spec"]["replicas"] = 0
    assert processes([found], [], 0.0, 60.0) == ()


def test_hostile_statuses_are_read() -> None:
    hostile: list[dict[str, Any]] = [{}, {"containerStatuses": [{}]}, {"conditions": None, "phase": None}]
    for status in hostile:
        assert problem_of_pod(pod(**status)) == ""
        assert not joined_gate(pod(**status))
        process_of(pod(at="no time", **status), 0.0, 1.0)


def test_a_token_under_another_key_is_mounted_as_the_same_file() -> None:
    settings = PodSettings("lmerge:1", token_secret="mine", token_key="publisher.token")
    query = query_of_spec()
    start = ReplicaStart(query.versions[0], 0, "active", 5.0)
    pod = deployment(query, "uid", start, settings)["spec"]["template"]["spec"]
    (token,) = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "token"]
    assert token["items"] == [{"key": "publisher.token", "path": "token"}]
    mount = {"name": "token", "mountPath": "/etc/lmerge/token", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]
