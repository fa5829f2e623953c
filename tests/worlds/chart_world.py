"""Helpers of the chart's tests: helm, rendered objects, values merged as helm merges them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "lmerge"
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
# Everything that the chart can make, also what needs the CRDs of others.
EVERYTHING: tuple[str, ...] = (
    "controller.enabled=true",
    "priorityClass.create=true",
    "monitoring.podMonitor.enabled=true",
    "monitoring.serviceMonitor.enabled=true",
    "monitoring.prometheusRule.enabled=true",
    "monitoring.dashboards.enabled=true",
    "tls.mode=certManager",
)


def helm_path() -> str | None:
    return os.environ.get("LMERGE_HELM") or shutil.which("helm")


needs_helm = pytest.mark.skipif(
    helm_path() is None and not os.environ.get("LMERGE_REQUIRE_HELM"),
    reason="there is no helm: install it, or set LMERGE_HELM",
)


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = helm_path()
    assert program is not None, "there is no helm, and LMERGE_REQUIRE_HELM is set"
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=60)


def templated(*settings: str, files: tuple[Path, ...] = (), options: tuple[str, ...] = ()) -> Any:
    """Run `helm template` for a release lm in the namespace streams."""
    values = [option for file in files for option in ("--values", str(file))]
    given = [option for setting in settings for option in ("--set", setting)]
    return helm("template", "lm", str(CHART), "--namespace", "streams", *values, *given, *options)


@cache
def rendered(*settings: str, files: tuple[Path, ...] = ()) -> list[dict[str, Any]]:
    """Return the objects of the release. Callers do not change them."""
    result = templated(*settings, files=files)
    assert result.returncode == 0, result.stderr
    return [found for found in yaml.safe_load_all(result.stdout) if found]


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [found for found in objects if found["kind"] == kind]


def one(objects: list[dict[str, Any]], kind: str, suffix: str) -> dict[str, Any]:
    """Return the object of ``kind`` whose name ends with ``suffix``."""
    (found,) = [found for found in of_kind(objects, kind) if found["metadata"]["name"].endswith(suffix)]
    return found


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over the kind and name of each object that makes pods, with the spec of the pod."""
    for found in objects:
        spec = found.get("spec", {})
        if found["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if found["kind"] in ("StatefulSet", "Deployment", "CronJob"):
            spec = spec["template"]["spec"]
        if "containers" in spec:
            yield f"{found['kind']} {found['metadata']['name']}", spec


def merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` with ``over`` on top, as helm merges values files."""
    result = dict(values)
    for name, value in over.items():
        before = result.get(name)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        result[name] = merged(before, value) if both else value  # type: ignore[arg-type]  # both are mappings
    return result
