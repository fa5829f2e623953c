"""What is installed is whole: the wheel's contents, the entry points, the arrows between packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def printed(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_the_arrows_between_packages_hold() -> None:
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("module", ["lmerge", "lmerge.core.merge", "lmerge.core.session", "lmerge.cli.main"])
def test_the_core_and_the_command_line_load_no_network(module: str) -> None:
    program = f"import sys, {module}; print({{'grpc', 'google.protobuf', 'aiohttp'}} & sys.modules.keys())"
    assert printed(program) == "set()"


def test_the_public_names_are_there() -> None:
    assert printed("import lmerge; print([getattr(lmerge, n) is not None for n in lmerge.__all__].count(False))") == "0"


def test_python_m_lmerge_is_the_command_line() -> None:
    result = subprocess.run([sys.executable, "-m", "lmerge", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("lmerge ")


def test_ci_runs_the_readmes_test_command() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text()
    targets = (ROOT / "Makefile").read_text()
    assert "\ndemo:" in targets
    assert "\ntest:" in targets


def test_the_wheel_holds_everything_that_runs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for folder in ("lmerge", "replicas"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source / name)
    result = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir",
         str(tmp_path), str(source)],
        capture_output=True, text=True, check=False,
    )
    assert result.returncode == 0, result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {
        str(path.relative_to(ROOT)) for folder in ("lmerge", "replicas") for path in (ROOT / folder).rglob("*.py")
    }
    assert modules <= names
    assert {"lmerge/py.typed", "lmerge/wire/generated/lmerge_pb2.pyi"} <= names
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]
