"""The commands of docs/install.md and of docs/day-two.md, as they stand there, on a real cluster."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chart_world import ROOT
from kubernetes_world import IMAGE, RELEASE, TestNamespace, blocks, objects, run

NAMESPACE = "streams"  # of the documents
INSTALL = blocks(ROOT / "docs" / "install.md")
DAY_TWO = blocks(ROOT / "docs" / "day-two.md")
# From `helm install` to the verdict of the first drill.
VERDICT_S_MAX = 300.0


class GuideReader:
    """Somebody who follows a document: in a folder with the chart, in a namespace of the test's own.

    ``took_s``: the seconds of each block of commands that was run.
    """

    def __init__(self, namespace: TestNamespace) -> None:
        self.namespace = namespace
        self.took_s: dict[str, float] = {}
        self.folder = namespace.folder / "reader"
        self.folder.mkdir()
        shutil.copytree(ROOT / "charts", self.folder / "charts")
        shutil.copytree(ROOT / "deploy", self.folder / "deploy")
        client = self.folder / "deploy" / "kubernetes" / "client.yaml"
        client.write_text(self.own(client.read_text()).replace("docker.io/local/lmerge:0.1.0", IMAGE))
        (self.folder / "my-values.yaml").write_text("servers:\n  podAnnotations: {day: two}\n")
        # What differs between clusters, the image and the volumes, comes in beside the commands.
        helm = self.folder / "bin" / "helm"
        helm.parent.mkdir()
        helm.write_text(
            "#!/bin/bash\n"
            f"values=(--values {namespace.values})\n"
            "[[ $1 == install || $1 == upgrade ]] || values=()\n"
            f'exec {shutil.which("helm")} "$@" "${{values[@]}}"\n'
        )
        helm.chmod(0o755)

    def own(self, text: str) -> str:
        return text.replace(f"{NAMESPACE}.svc", f"{self.namespace.name}.svc").replace(
            f"namespace: {NAMESPACE}", f"namespace: {self.namespace.name}"
        )

    def follow(self, block: str) -> str:
        """Run a block of commands; return what it prints."""
        commands = block.replace(f"--namespace {NAMESPACE}", f"--namespace {self.namespace.name}")
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        script = f"set -euo pipefail\nexport PATH={path!r}\n{commands}"
        began_s = time.monotonic()
        printed = run("bash", "-c", script, cwd=self.folder)
        self.took_s[block] = time.monotonic() - began_s
        return printed


@pytest.fixture(scope="module")
def reader(namespace: TestNamespace) -> Iterator[GuideReader]:
    yield GuideReader(namespace)
    if f"{RELEASE}-server" in {found["metadata"]["name"] for found in objects("statefulset", "-n", namespace.name)}:
        namespace.helm("uninstall", RELEASE, "--wait")


def block_with(document: list[str], text: str) -> str:
    (block,) = [block for block in document if text in block]
    return block


def test_install_and_check(reader: GuideReader) -> None:
    printed = reader.follow(block_with(INSTALL, "helm install"))
    assert "passed: 200 events, each once, while one of two replicas was killed" in printed
    assert "PASSED   kill-winner" in printed
    assert reader.took_s[block_with(INSTALL, "helm install")] <= VERDICT_S_MAX
    nodes = {
        found["spec"]["nodeName"]
        for found in objects("pod", "-n", reader.namespace.name, "-l", "app.kubernetes.io/component=server")
    }
    assert len(nodes) == 2


def test_the_first_drill(reader: GuideReader) -> None:
    printed = reader.follow(block_with(INSTALL, "create job first-drill"))
    assert "PASSED   kill-winner" in printed
    assert "0 lost, 0 duplicated, 0 contradictions" in printed
    assert "FAILED" not in printed


def test_look_at_it(reader: GuideReader) -> None:
    printed = reader.follow(block_with(INSTALL, "lmerge status helm-test"))
    assert f"{RELEASE}-server-1" in printed
    assert "helm-test" in printed


def test_publish_and_read(reader: GuideReader) -> None:
    reader.follow(block_with(INSTALL, "kubectl apply"))
    reader.follow(block_with(INSTALL, "lmerge publish"))
    read = reader.follow(block_with(INSTALL, "lmerge subscribe")).splitlines()
    assert len([line for line in read if "insert" in line]) == 2
    assert '"stable"' in read[2]
    assert '"vc":5' in read[2].replace(" ", "")


def test_break_it(reader: GuideReader) -> None:
    reader.follow(block_with(INSTALL, "delete pod lmerge-server-0"))


def test_upgrade_and_roll_back(reader: GuideReader) -> None:
    reader.follow(block_with(DAY_TWO, "helm upgrade"))
    reader.namespace.ready()
    server = reader.namespace.pod(f"{RELEASE}-server-0")
    assert server["metadata"]["annotations"]["day"] == "two"
    reader.follow(block_with(DAY_TWO, "helm rollback"))
    reader.namespace.ready()


def test_a_server_without_its_volume_comes_back_empty_and_takes_part(reader: GuideReader) -> None:
    if "storageClassName" in reader.namespace.values.read_text():
        pytest.skip("the volumes were made by hand, so nothing makes a new one")
    reader.follow(block_with(DAY_TWO, "delete pvc store-lmerge-server-1"))
    reader.namespace.helm("test", RELEASE)


def test_remove_it(reader: GuideReader) -> None:
    reader.follow(block_with(INSTALL, "helm uninstall"))
    left = objects(
        "pod,configmap,secret,pvc", "-n", reader.namespace.name, "-l", f"app.kubernetes.io/instance={RELEASE}"
    )
    assert [found["metadata"]["name"] for found in left if "deletionTimestamp" not in found["metadata"]] == []


def test_every_command_of_the_installation_is_run() -> None:
    followed = (
        "helm install",
        "create job first-drill",
        "lmerge status helm-test",
        "kubectl apply",
        "lmerge publish",
        "lmerge subscribe",
    )
    tested = (*followed, "delete pod lmerge-server-0", "helm uninstall")
    assert [block for block in INSTALL if not any(text in block for text in tested)] == []
    assert Path(ROOT / "deploy" / "kubernetes" / "client.yaml").read_text().count(NAMESPACE) >= 3
