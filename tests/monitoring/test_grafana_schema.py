"""The TypeScript compiler checks the dashboards against Grafana's own types, and finds what is wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitoring.artifacts import DASHBOARDS, ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

PACKAGES = ("@grafana/schema@11.6.0", "typescript@5.9.3")
TYPES = Path(__file__).with_name("grafana_types.ts")
CONFIG = {
    "compilerOptions": {
        "strict": True,
        "noEmit": True,
        "skipLibCheck": True,
        "module": "esnext",
        "moduleResolution": "node10",  # the types of panels are no exports of the package
        "target": "es2022",
        "types": [],
    },
    "include": ["*.ts"],
}
FAULTS: dict[str, Callable[[Any], object]] = {
    "a mode of thresholds that does not exist": lambda panel: panel["fieldConfig"]["defaults"]["thresholds"].update(
        mode="relative"
    ),
    "an option of another panel": lambda panel: panel["options"].update(colorMode="background"),
    "a width that is a text": lambda panel: panel["gridPos"].update(w="12"),
    "a style that does not exist": lambda panel: panel["fieldConfig"]["defaults"]["custom"].update(drawStyle="dots"),
    "a link without a known type": lambda panel: panel.update(links=[{"title": "Runbook", "type": "runbook"}]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with Grafana's types and the compiler. The tests are not run where npm or its registry is not."""
    folder = tmp_path_factory.mktemp("grafana")
    problem = None if shutil.which("npm") else "there is no npm"
    if problem is None:
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", ".", *PACKAGES]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
        problem = done.stderr[-500:] if done.returncode else None
    if problem is not None:
        if os.environ.get("CI"):
            pytest.fail(f"Grafana's types are required here: {problem}")
        pytest.skip(f"no types of Grafana: {problem}")
    (folder / "tsconfig.json").write_text(json.dumps(CONFIG))
    shutil.copy(TYPES, folder)
    return folder


def compiled(folder: Path, dashboards: dict[str, Any]) -> str:
    """Return what the compiler reports about dashboards, by name; nothing if it accepts them."""
    for file in folder.glob("lmerge-*.ts"):
        file.unlink()
    for name, dashboard in dashboards.items():
        text = json.dumps(dashboard, indent=1)
        (folder / f"{name}.ts").write_text(
            f"import type {{ Checked }} from './{TYPES.stem}';\nexport const dashboard: Checked = {text};\n"
        )
    compiler = folder / "node_modules" / ".bin" / "tsc"
    done = subprocess.run([compiler, "-p", "."], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (done.stdout == "")
    return done.stdout


def loaded() -> dict[str, Any]:
    return {file.stem: json.loads(file.read_text()) for file in sorted((ROOT / DASHBOARDS).glob("*.json"))}


def test_every_dashboard_is_of_grafanas_types(folder: Path) -> None:
    assert compiled(folder, loaded()) == ""


@pytest.mark.parametrize("fault", FAULTS)
def test_the_compiler_finds(fault: str, folder: Path) -> None:
    name, dashboard = next(iter(loaded().items()))
    FAULTS[fault](next(panel for panel in dashboard["panels"] if panel["type"] == "timeseries"))
    assert f"{name}.ts" in compiled(folder, {name: dashboard})
