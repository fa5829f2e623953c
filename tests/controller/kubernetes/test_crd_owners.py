"""The CRD when kubectl and helm have both applied it: what the documents show and advise, on a real server."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from chart_world import CHART, ROOT, helm_path
from kube_world import KubeServer, program

CRD = CHART / "crds" / "replicatedqueries.yaml"
CURE = "kubectl apply --server-side --force-conflicts --filename charts/lmerge/crds/"
INSTALL = "helm install lmerge charts/lmerge --namespace streams --create-namespace"


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """Return a CRD with one column less, as an earlier release might have had."""
    found = yaml.safe_load(CRD.read_text())
    found["spec"]["versions"][0]["additionalPrinterColumns"].pop()
    path = tmp_path / "earlier.yaml"
    path.write_text(yaml.safe_dump(found))
    return path


class Shell:
    """Runs helm and kubectl as an administrator of a server, in the project's folder."""

    def __init__(self, kube: KubeServer, folder: Path) -> None:
        helm = helm_path()
        if helm is None:
            pytest.skip("not run: no helm")
        self._programs = {"helm": helm, "kubectl": program("kubectl")}
        self._environment = os.environ | {"KUBECONFIG": kube.kubeconfig, "HOME": str(folder)}

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        name, *arguments = shlex.split(line)
        return subprocess.run(
            [self._programs[name], *arguments],
            env=self._environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def output(self, line: str) -> str:
        done = self.run(line)
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_a_crd_that_kubectl_applied_is_refused_by_helm_until_the_cure_of_the_guide(
    own_kube: KubeServer, tmp_path: Path, earlier: Path
) -> None:
    guide = (ROOT / "docs" / "install.md").read_text()
    shell = Shell(own_kube, tmp_path)
    shell.output(f"kubectl apply --server-side --filename {earlier}")
    refused = shell.run(INSTALL)
    assert refused.returncode == 1
    for part in ("failed to install CRD crds/replicatedqueries.yaml: conflict", 'with "kubectl": .spec.versions'):
        assert part in refused.stderr.replace("\n", " ")
        assert part in guide
    shell.output("kubectl create --filename examples/flights.yaml")
    assert CURE in guide
    shell.output(CURE)
    shell.output(INSTALL)
    assert "flights" in shell.output("kubectl get replicatedqueries --output name")


def test_a_crd_that_helm_installed_is_upgraded_by_the_command_of_day_two(
    own_kube: KubeServer, tmp_path: Path, earlier: Path
) -> None:
    shell = Shell(own_kube, tmp_path)
    shell.output(f"kubectl apply --server-side --field-manager helm --filename {earlier}")
    (line,) = [
        line for line in (ROOT / "docs" / "day-two.md").read_text().splitlines() if "charts/lmerge/crds/" in line
    ]
    shell.output(line)
    newest = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["additionalPrinterColumns"][-1]["name"]
    path = "{.spec.versions[0].additionalPrinterColumns[-1:].name}"
    assert shell.output(f"kubectl get crd replicatedqueries.lmerge.dev --output jsonpath={path}") == newest
