"""Helpers of the tests on a real cluster: kubectl and helm, a namespace, volumes, the blocks of a document.

KUBECONFIG names the cluster. LMERGE_IMAGE: an image that its nodes have or can pull. Volumes come from the cluster's
default StorageClass; without one, LMERGE_CLUSTER_VOLUMES names a folder that this machine and all nodes see. What no
API reaches is broken and mended by commands in the environment, LMERGE_CLUSTER_CUT and others: see ``Outage``.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from chart_world import CHART, ROOT

from bench.rig.kube_release import has_default_class, local_volumes

RELEASE: Final = "lmerge"
PROGRAM: Final = CHART / "files" / "test" / "stream_test.py"
IMAGE: Final = os.environ.get("LMERGE_IMAGE", "docker.io/local/lmerge:dev")


def _missing() -> str | None:
    if not os.environ.get("KUBECONFIG"):
        return "KUBECONFIG names no cluster: make one, for example with kind or k3d"
    absent = [program for program in ("kubectl", "helm") if shutil.which(program) is None]
    return f"there is no {absent[0]} on the PATH" if absent else None


MISSING: Final = _missing()


def run(*command: str, text: str | None = None, cwd: Path = ROOT, timeout_s: float = 400.0) -> str:
    """Run a command; return what it prints. A failure shows everything that it printed."""
    result = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, cwd=cwd, timeout=timeout_s
    )
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"
    return result.stdout


def objects(kind: str, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("kubectl", "get", kind, "-o", "json", *options))["items"]
    return found


@dataclass(frozen=True)
class TestNamespace:
    """A namespace for one module of tests. ``values``: what this cluster needs, on top of a document's values."""

    __test__ = False

    name: str
    folder: Path

    @classmethod
    def make(cls, folder: Path) -> TestNamespace:
        name = f"lmerge-test-{secrets.token_hex(3)}"
        run("kubectl", "create", "namespace", name)
        run("kubectl", "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
        repository, _, tag = IMAGE.rpartition(":")
        values = {"image": {"repository": repository, "tag": tag}}
        (folder / "cluster.yaml").write_text(yaml.safe_dump(values))
        return cls(name, folder)

    @property
    def values(self) -> Path:
        return self.folder / "cluster.yaml"

    def add_values(self, **values: Any) -> None:
        self.values.write_text(yaml.safe_dump(yaml.safe_load(self.values.read_text()) | values))

    def set_servers(self, **values: Any) -> None:
        """Set values of the servers beside those that this cluster needs."""
        self.add_values(servers=yaml.safe_load(self.values.read_text()).get("servers", {}) | values)

    def delete(self) -> None:
        """Delete it with its release, which has objects of the cluster too."""
        self.helm("uninstall", RELEASE, "--ignore-not-found", "--wait", "--timeout", "120s")
        run("kubectl", "delete", "namespace", self.name, "--wait=true", "--timeout=120s")

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        return run("kubectl", "--namespace", self.name, *arguments, text=text)

    def helm(self, *arguments: str) -> str:
        return run("helm", "--namespace", self.name, *arguments)

    def install(self, chart: Path = CHART, *, replace: bool = False) -> str:
        """Install or upgrade the release; return when it is ready."""
        command = "upgrade" if replace else "install"
        options = ("--values", str(self.values), "--wait", "--timeout", "180s")
        printed = self.helm(command, RELEASE, str(chart), *options)
        self.ready()
        return printed

    def ready(self) -> None:
        self.kubectl("rollout", "status", f"statefulset/{RELEASE}-server", "--timeout=180s")

    def on_server(self, command: str, number: int = 0) -> str:
        """Run a command of lmerge in the pod of a server, with its administrator's token."""
        return self.kubectl("exec", f"{RELEASE}-server-{number}", "--", "sh", "-c", command)

    def secret(self, name: str, key: str) -> str:
        found = json.loads(self.kubectl("get", "secret", f"{RELEASE}-{name}", "-o", "json"))
        return str(found["data"][key])

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "pod", name, "-o", "json"))
        return found

    def start_stream(self, name: str, events: int) -> None:
        """Start the program of `helm test` as a pod of its own, for 10 ms an event."""
        hooks = yaml.safe_load_all(self.helm("get", "hooks", RELEASE))
        found = {hook["kind"]: hook for hook in hooks if hook and hook["metadata"]["name"] == f"{RELEASE}-test"}
        pod, program = found["Pod"], found["ConfigMap"]
        for made in (pod, program):
            made["metadata"] |= {"name": name, "namespace": self.name, "annotations": {}}
        program["data"] = {PROGRAM.name: PROGRAM.read_text()}  # of this tree, whichever chart is installed
        container = pod["spec"]["containers"][0]
        container["env"].append({"name": "LMERGE_TEST_EVENTS", "value": str(events)})
        container["imagePullPolicy"] = "IfNotPresent"
        pod["spec"] |= {"activeDeadlineSeconds": 600}
        (volume,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "program"]
        volume["configMap"]["name"] = name
        self.kubectl("apply", "-f", "-", text=yaml.safe_dump_all([program, pod]))
        self.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")

    def end_of_stream(self, name: str) -> str:
        """Wait until the pod has judged; return what it printed. Fails if its verdict is bad."""
        phase = "{.status.phase}"
        self.kubectl("wait", f"pod/{name}", f"--for=jsonpath={phase}=Succeeded", "--timeout=300s")
        return self.kubectl("logs", name)


@dataclass(frozen=True)
class Outage:
    """What no API reaches: broken and mended by commands for the shell, LMERGE_CLUSTER_`breaks` and _`mends`."""

    breaks: str
    mends: str

    @property
    def is_given(self) -> pytest.MarkDecorator:
        """Skip a test, with the names of the variables, unless both commands are given."""
        missing = [name for name in (self.breaks, self.mends) if not os.environ.get(_variable(name))]
        names = ", ".join(map(_variable, missing))
        return pytest.mark.skipif(bool(missing), reason=f"not run: set {names} to commands for the shell")

    @contextmanager
    def lasts(self) -> Iterator[None]:
        """Break, and mend at the end, whatever happens in between."""
        try:
            run("sh", "-c", os.environ[_variable(self.breaks)])
            yield
        finally:
            run("sh", "-c", os.environ[_variable(self.mends)])
            await_that(is_api_there, 90.0, "the API server answers")


LINK: Final = Outage("CUT", "HEAL")
API_SERVER: Final = Outage("KILL_APISERVER", "START_APISERVER")
KUBELET: Final = Outage("KILL_KUBELET", "START_KUBELET")
KILL_POD: Final = "LMERGE_CLUSTER_KILL_POD"


def _variable(name: str) -> str:
    return f"LMERGE_CLUSTER_{name}"


def kill_processes(pod: dict[str, Any]) -> None:
    """Kill the processes of a pod with SIGKILL, by the command LMERGE_CLUSTER_KILL_POD with {uid} and {node} in it."""
    command = os.environ[KILL_POD].replace("{uid}", pod["metadata"]["uid"]).replace("{node}", pod["spec"]["nodeName"])
    run("sh", "-c", command)


def is_api_there() -> bool:
    done = subprocess.run(["kubectl", "get", "--raw", "/readyz"], capture_output=True, check=False, timeout=60)
    return done.returncode == 0


def await_that(is_met: Callable[[], bool], limit_s: float, what: str) -> float:
    """Wait for a condition that costs a call; return the seconds. Fails after ``limit_s``."""
    began_s = time.monotonic()
    while not is_met():
        assert time.monotonic() - began_s < limit_s, f"waited {limit_s:.0f} s until {what}"
    return time.monotonic() - began_s


def silent_nodes() -> set[str]:
    """Return the nodes of which Kubernetes has heard nothing for some time."""
    return {
        node["metadata"]["name"]
        for node in objects("node")
        if any(found["type"] == "Ready" and found["status"] == "Unknown" for found in node["status"]["conditions"])
    }


@contextmanager
def storage_values(namespace: TestNamespace) -> Iterator[None]:
    """Give the servers volumes that go with the release, and remove what the test has made for them."""
    folder = os.environ.get("LMERGE_CLUSTER_VOLUMES")
    persistence: dict[str, Any] = {"size": "1Gi", "whenDeleted": "Delete"}
    if has_default_class():
        namespace.add_values(servers={"persistence": persistence})
        yield
        return
    assert folder, "the cluster has no default StorageClass: set LMERGE_CLUSTER_VOLUMES"
    with local_volumes(namespace.name, Path(folder)):
        namespace.add_values(servers={"persistence": persistence | {"storageClassName": namespace.name}})
        yield


def blocks(document: Path) -> list[str]:
    """Return the blocks of shell commands of a document."""
    return re.findall(r"^```sh\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)


def chart_before(folder: Path) -> Path:
    """Return the chart as it was before its last change: LMERGE_CHART_BEFORE, else from git's history."""
    given = os.environ.get("LMERGE_CHART_BEFORE")
    if given:
        return Path(given)
    commits = run("git", "log", "--format=%H", "--max-count=2", "--", "charts/lmerge").split()
    archive = folder / "before.tar"
    run("git", "archive", "--format=tar", f"--output={archive}", commits[-1], "charts/lmerge")
    run("tar", "-xf", str(archive), "-C", str(folder))
    return folder / "charts" / "lmerge"
