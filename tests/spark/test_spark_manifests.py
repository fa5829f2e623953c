"""What `deploy/spark` describes, without a cluster: restricted pods, one image, least rights, a query that can be read.

`tests/cluster/test_spark.py` runs all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import validate

from lmerge_controller.kubernetes.manifests import PodSettings, ReplicaStart, deployment
from lmerge_controller.model.query import ReplicatedQuery
from lmerge_controller.model.reading import query_of

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "spark"
SHARED = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
SUBMIT = yaml.safe_load((DEPLOY / "cluster-mode.yaml").read_text())
IMAGE = "REGISTRY/spark-lmerge:0.1.0"


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = [one for one in SHARED if one["kind"] == kind]
    return dict(found)


def query() -> ReplicatedQuery:
    return query_of(yaml.safe_load((DEPLOY / "replicated-query.yaml").read_text()), source="replicated-query.yaml")


def form() -> dict[str, Any]:
    """Return the form of the pods that Spark makes."""
    pod: dict[str, Any] = yaml.safe_load(of_kind("ConfigMap")["data"]["pod.yaml"])
    return pod


def controlled() -> dict[str, Any]:
    start = ReplicaStart(query().versions[0], 0, "active", 1.0)
    made = deployment(query(), "uid", start, PodSettings("lmerge:1", ca_secret="lmerge-tls", token_secret="publisher"))
    return dict(made["spec"]["template"]["spec"])


def all_pods() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "client mode", of_kind("StatefulSet")["spec"]["template"]["spec"]
    yield "cluster mode", SUBMIT["spec"]["template"]["spec"]
    yield "made by Spark", form()["spec"]
    yield "controller", controlled()


PODS = dict(all_pods())


@pytest.mark.parametrize("release", ["1.30", "1.37"])
def test_each_object_is_valid_for_each_kubernetes(release: str) -> None:
    for one in (*SHARED, SUBMIT):
        validate(one, release, strict=True)
    # What Spark fills in: the name, the image.
    (container,) = form()["spec"]["containers"]
    named = form() | {"metadata": {"name": "x"}, "spec": form()["spec"] | {"containers": [container | {"image": "x"}]}}
    validate(named, release, strict=True)


@pytest.mark.parametrize("name", PODS)
def test_every_pod_meets_the_restricted_profile(name: str) -> None:
    pod = PODS[name]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("name", [name for name in PODS if name != "cluster mode"])
def test_who_runs_the_query_can_write_the_checkpoints_and_has_no_key_of_the_servers(name: str) -> None:
    pod = PODS[name]
    (container,) = pod["containers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert not mounts["/checkpoints"].get("readOnly")
    assert pod["securityContext"]["fsGroup"] == 185
    volumes = str(pod["volumes"])
    assert volumes.count("lmerge-tls") == 1
    assert "ca.crt" in volumes
    assert "tls.key" not in volumes
    assert pod.get("automountServiceAccountToken", True) is True


def test_all_that_runs_the_query_has_one_image() -> None:
    image = {version.image for version in query().versions}
    assert image == {IMAGE}
    texts = [(DEPLOY / name).read_text() for name in ("kubernetes.yaml", "cluster-mode.yaml", "replicated-query.yaml")]
    for text in texts:
        assert set(re.findall(r"container\.image=(\S+)", text)) == {IMAGE}
    plans = {version.name: version.run.args for version in query().versions}
    assert plans == {"update": ("update",), "append": ("append",)}


def test_what_is_submitted_belongs_to_the_pod_that_submits_it() -> None:
    """The shell puts the owner where the form has its metadata: a form without that line would have no owner."""
    assert "\nmetadata: {}\n" in of_kind("ConfigMap")["data"]["pod.yaml"]
    script = SUBMIT["spec"]["template"]["spec"]["containers"][0]["args"][0]
    assert "s/^metadata: {}/metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: $POD_NAME" in script
    env = {one["name"]: one for one in SUBMIT["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["POD_UID"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.uid"}}


def test_spark_may_do_what_it_does_and_no_more() -> None:
    rules = {tuple(rule["apiGroups"]): rule for rule in of_kind("Role")["rules"]}
    assert sorted(rules) == [("",), ("networking.k8s.io",)]
    assert "secrets" not in rules[("",)]["resources"]
    assert {"create", "patch"} <= set(rules[("networking.k8s.io",)]["verbs"])
    assert {"create", "watch", "deletecollection"} <= set(rules[("",)]["verbs"])


def test_the_image_is_of_a_user_that_kubernetes_sees_not_to_be_root_and_has_all_packages() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE)[-1] == "185:185"
    root = DEPLOY.parents[1]
    packages = {path.parent.name for path in root.glob("lmerge*/__init__.py")}
    assert packages == set(re.findall(r"^COPY (lmerge\w*) ", text, re.MULTILINE))
