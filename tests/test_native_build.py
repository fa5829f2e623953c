"""The native core is built where Rust is, left out where it is not, and the package records which of the two happened.

Builds run in a copy of the sources, through the hooks that pip calls.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lmerge import __version__

ROOT = Path(__file__).resolve().parent.parent
HOOK = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
RECORD = "lmerge/_native_build.json"
LIBRARY = "lmerge/_native.abi3.so"

needs_rust = pytest.mark.skipif(shutil.which("cargo") is None, reason="no cargo on the PATH")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Copy what a build reads, without anything that was built."""
    copy = tmp_path / "source"
    built = shutil.ignore_patterns("__pycache__", "target", "*.so", "*.pyd", "_native_build.json")
    for folder in ("lmerge", "lmerge_replicas", "native"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=built)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for compiled crates, which all builds of this process share."""
    return tmp_path_factory.mktemp("target")


def without_rust(folder: Path) -> dict[str, str]:
    """Return an environment in which no program can be found but Python."""
    folder.mkdir(exist_ok=True)
    return {"PATH": str(folder)}


def build(what: str, source: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Build ``what``: wheel, sdist or editable. The result goes into ``dist`` beside the sources."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("LMERGE_REQUIRE_NATIVE", "CARGO")}
    dist = source.parent / "dist"
    dist.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", HOOK, f"build_{what}", str(dist)],
        cwd=source,
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def built_wheel(source: Path, environment: dict[str, str]) -> Path:
    result = build("wheel", source, environment)
    assert result.returncode == 0, result.stderr
    (wheel,) = (source.parent / "dist").glob("*.whl")
    return wheel


def recorded(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as files:
        return json.loads(files.read(RECORD))


def info(folder: Path) -> Any:
    """Return what ``lmerge info`` reports of the lmerge in ``folder``; ``-S`` hides the one that runs this test."""
    path = os.pathsep.join([str(folder), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    result = subprocess.run(
        [sys.executable, "-S", "-m", "lmerge", "info", "--json"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(result.stdout)


def unpacked(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as files:
        files.extractall(folder)
    return folder


def test_without_cargo_the_wheel_is_pure_python_and_records_why(source: Path, tmp_path: Path) -> None:
    wheel = built_wheel(source, without_rust(tmp_path / "bin"))
    assert wheel.name == f"lmerge-{__version__}-py3-none-any.whl"
    assert recorded(wheel) == {"problem": "no cargo on the PATH: the native core needs Rust 1.88 or newer"}
    facts = info(unpacked(wheel, tmp_path / "site"))
    assert facts["engine"] == "python"
    assert facts["native"]["problem"] == "not built; no cargo on the PATH: the native core needs Rust 1.88 or newer"


def test_where_the_native_core_is_required_an_installation_without_it_fails(source: Path, tmp_path: Path) -> None:
    result = build("wheel", source, without_rust(tmp_path / "bin") | {"LMERGE_REQUIRE_NATIVE": "1"})
    assert result.returncode != 0
    assert "no cargo on the PATH" in result.stderr


@needs_rust
def test_a_failing_build_leaves_a_wheel_of_pure_python_that_records_why(source: Path, tmp_path: Path) -> None:
    offline = {"CARGO_HOME": str(tmp_path / "cargo"), "CARGO_NET_OFFLINE": "true"}
    wheel = built_wheel(source, offline)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert recorded(wheel)["problem"].startswith("error: ")


def test_an_editable_installation_that_cannot_build_removes_the_library_of_earlier_sources(
    source: Path, tmp_path: Path
) -> None:
    (source / LIBRARY).write_bytes(b"of earlier sources")
    result = build("editable", source, without_rust(tmp_path / "bin"))
    assert result.returncode == 0, result.stderr
    assert not (source / LIBRARY).exists()
    assert "no cargo" in json.loads((source / RECORD).read_text())["problem"]


def test_the_sdist_holds_the_rust_sources_their_lock_and_the_licence(source: Path) -> None:
    result = build("sdist", source, {})
    assert result.returncode == 0, result.stderr
    (sdist,) = (source.parent / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    rust = [*(source / "native").rglob("*.rs"), *(source / "native").rglob("Cargo.toml")]
    of_crates = {
        str(path.relative_to(source)) for path in rust if path.relative_to(source).parts[1] in ("core", "python")
    }
    assert of_crates
    assert of_crates <= names
    assert {"native/Cargo.toml", "native/Cargo.lock", "LICENSE", "setup.py", "lmerge/_native.pyi"} <= names


def test_versions_agree_wherever_they_are_written() -> None:
    cargo = (ROOT / "native" / "Cargo.toml").read_text()
    assert re.findall(r'^version = "(.*)"', cargo, re.MULTILINE) == [__version__]
    (rust,) = re.findall(r'^rust-version = "(.*)"', cargo, re.MULTILINE)
    assert f'RUST_MIN = "{rust}"' in (ROOT / "setup.py").read_text()
    makefile = (ROOT / "Makefile").read_text()
    assert f"Rust >= {rust};" in makefile
    assert f"v[2] >= {rust.partition('.')[2]})" in makefile
    lock = (ROOT / "native" / "Cargo.lock").read_text()
    assert f'name = "lmerge-core"\nversion = "{__version__}"' in lock


@pytest.mark.parametrize(("stamp", "command"), [(".native", "setup.py --quiet build_ext"), (".demo", "pip install")])
def test_make_builds_again_when_rust_sources_have_changed_and_only_then(
    stamp: str, command: str, tmp_path: Path
) -> None:
    for name in ("bin/python", ".dev", ".native", ".demo"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    not_required = ["HAS_RUST=", "CI=", "LMERGE_REQUIRE_NATIVE="]  # a missing core is then no reason to build either
    make = ["make", "--no-print-directory", "--dry-run", *not_required, f"VENV={tmp_path}", str(tmp_path / stamp)]

    def planned(*options: str) -> str:
        return subprocess.run([*make, *options], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert command not in planned()
    for changed in ("native/core/src/lib.rs", "native/python/Cargo.toml", "native/Cargo.lock", "setup.py"):
        assert command in planned(f"--what-if={changed}")


@needs_rust
@pytest.mark.long
def test_with_cargo_the_wheel_of_the_sdist_serves_every_python_and_runs(
    source: Path, target: Path, tmp_path: Path
) -> None:
    assert build("sdist", source, {}).returncode == 0
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as files:
        files.extractall(tmp_path / "unpacked", filter="data")
    (folder,) = (tmp_path / "unpacked").iterdir()
    moved = folder.rename(tmp_path / "from-sdist")
    wheel = built_wheel(moved, {"CARGO_TARGET_DIR": str(target)})
    assert "-cp310-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as files:
        assert LIBRARY in files.namelist()
    assert set(recorded(wheel)) == {"rust", "crates"}
    facts = info(unpacked(wheel, tmp_path / "site"))
    assert facts["engine"] == "native"
    assert facts["native"]["version"] == __version__
    assert "pyo3" in facts["native"]["crates"]


@needs_rust
@pytest.mark.long
def test_an_editable_installation_builds_in_release_mode_in_place(source: Path, target: Path) -> None:
    result = build("editable", source, {"CARGO_TARGET_DIR": str(target)})
    assert result.returncode == 0, result.stderr
    assert (source / LIBRARY).exists()
    assert (target / "release").is_dir()
    assert not (target / "debug").exists()
    assert info(source)["engine"] == "native"


@needs_rust
@pytest.mark.long
def test_sources_that_do_not_compile_end_no_installation_and_the_reason_is_the_compilers(
    source: Path, target: Path
) -> None:
    (source / "native" / "core" / "src" / "lib.rs").write_text('compile_error!("seeded");\n')
    wheel = built_wheel(source, {"CARGO_TARGET_DIR": str(target)})
    assert wheel.name.endswith("-py3-none-any.whl")
    assert recorded(wheel) == {"problem": "error: seeded"}
