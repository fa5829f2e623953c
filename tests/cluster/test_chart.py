"""The life of a release on a real cluster: upgrade from the chart before, rollback, uninstall."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes_world import RELEASE, TestNamespace, chart_before, objects, run

MERGE = "helm-test"
TOKENS = ("admin", "publisher", "subscriber", "metrics", "test")
# Of Kubernetes itself, in every namespace.
OF_THE_NAMESPACE = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
OF_THE_CLUSTER = ("clusterrole", "clusterrolebinding", "priorityclass", "validatingwebhookconfiguration")


@pytest.fixture(scope="module")
def installed(namespace: TestNamespace) -> TestNamespace:
    namespace.install(chart_before(namespace.folder))
    namespace.helm("test", RELEASE)
    return namespace


def stable_point(namespace: TestNamespace, number: int) -> int:
    printed = namespace.on_server(f'lmerge status {MERGE} --json --server "$LMERGE_SELF"', number)
    described = json.loads(printed)
    return int(described["summary"]["stable_point"] if "summary" in described else described["stable_point"])


def credentials(namespace: TestNamespace) -> list[str]:
    return [*(namespace.secret(f"token-{name}", "token") for name in TOKENS), namespace.secret("tls", "ca.crt")]


def test_an_upgrade_keeps_data_stream_and_credentials(installed: TestNamespace) -> None:
    kept, known = [stable_point(installed, number) for number in (0, 1)], credentials(installed)
    pods = {number: installed.pod(f"{RELEASE}-server-{number}")["metadata"]["uid"] for number in (0, 1)}
    installed.start_stream("during-upgrade", events=4000)
    installed.add_values(commonAnnotations={"upgraded": "yes"}, tests={"enabled": True})
    values = installed.values.read_text()
    installed.values.write_text(values.replace("servers:", "servers:\n  podAnnotations: {upgraded: 'yes'}", 1))
    installed.install(replace=True)
    for number in (0, 1):
        assert installed.pod(f"{RELEASE}-server-{number}")["metadata"]["uid"] != pods[number]  # both were replaced
        assert stable_point(installed, number) >= kept[number]
        command = f'lmerge subscribe {MERGE} --server "$LMERGE_SELF" --resume {MERGE}@{kept[number] - 1} -n 1'
        assert json.loads(installed.on_server(command, number).splitlines()[0])["op"] == "insert"
    assert credentials(installed) == known
    assert "passed: 4000 events, each once" in installed.end_of_stream("during-upgrade")
    installed.helm("test", RELEASE)


def test_a_rollback_keeps_data_stream_and_credentials(installed: TestNamespace) -> None:
    kept, known = [stable_point(installed, number) for number in (0, 1)], credentials(installed)
    installed.start_stream("during-rollback", events=4000)
    installed.helm("rollback", RELEASE, "1", "--wait", "--timeout", "180s")
    installed.ready()
    assert "upgraded" not in installed.pod(f"{RELEASE}-server-0")["metadata"].get("annotations", {})
    assert [stable_point(installed, number) >= kept[number] for number in (0, 1)] == [True, True]
    assert credentials(installed) == known
    assert "passed: 4000 events, each once" in installed.end_of_stream("during-rollback")


def namespace_of(found: dict[str, Any]) -> str:
    """Return the namespace of the release that an object of the cluster belongs to."""
    return str(found["metadata"].get("annotations", {}).get("meta.helm.sh/release-namespace", ""))


def test_an_uninstall_leaves_nothing(installed: TestNamespace) -> None:
    for name in ("during-upgrade", "during-rollback"):
        installed.kubectl("delete", "pod,configmap", name, "--ignore-not-found")
    installed.helm("uninstall", RELEASE, "--wait", "--timeout", "120s")
    for name in (f"{RELEASE}-test", f"{RELEASE}-test-drill"):  # what helm test has made
        installed.kubectl("delete", "pod,configmap", name, "--ignore-not-found")
    installed.kubectl("wait", "--for=delete", "pod,pvc", "--all", "--timeout=90s")
    kinds = run("kubectl", "api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
    kinds = [kind for kind in kinds if not kind.startswith("events")]
    left = {(found["kind"], found["metadata"]["name"]) for found in objects(",".join(kinds), "-n", installed.name)}
    assert left - OF_THE_NAMESPACE == set()
    for kind in OF_THE_CLUSTER:
        found = objects(kind, "-l", f"app.kubernetes.io/instance={RELEASE}")
        assert [one["metadata"]["name"] for one in found if namespace_of(one) == installed.name] == []
