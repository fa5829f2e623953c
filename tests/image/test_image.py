"""What the image is made of: locked packages, a user without rights, licences. Building it needs Docker."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "deploy" / "image"
LOCKED = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ]+).*?((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE
)


def locked(name: str) -> dict[str, str]:
    """Return name -> version of a lock file; each must have a hash."""
    text = (IMAGE / name).read_text()
    found = {match["name"]: match["version"] for match in LOCKED.finditer(text)}
    assert len(found) == len([line for line in text.splitlines() if "==" in line])
    return found


def stages() -> list[list[str]]:
    """Return the instructions of the Dockerfile by stage, each on one line, without comments."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [part.splitlines() for part in re.split(r"(?m)^(?=FROM )", joined) if part.strip()]


@pytest.mark.parametrize("lock", ["requirements", "build-requirements"])
def test_the_lock_satisfies_what_is_declared(lock: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = {
        "requirements": [
            *project["project"]["dependencies"],
            *project["project"]["optional-dependencies"]["kubernetes"],
        ],
        "build-requirements": project["build-system"]["requires"],
    }[lock]
    versions = locked(f"{lock}.txt")
    (python,) = set(re.findall(r"^FROM python:(\d+\.\d+)-", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    for requirement in map(Requirement, declared):
        if requirement.marker is not None and not requirement.marker.evaluate({"python_version": python}):
            continue  # of another Python than the image's
        assert requirement.specifier.contains(versions[requirement.name]), requirement


def test_nothing_is_installed_without_a_hash() -> None:
    installs = [
        command for stage in stages() for line in stage for command in line.split("&&") if " install " in command
    ]
    assert len(installs) == 3
    for command in installs:
        assert "--require-hashes" in command or ("--no-deps" in command and "/tmp/wheel/*.whl" in command), command


def test_the_image_runs_any_command_as_a_user_without_rights() -> None:
    last = stages()[-1]
    assert 'ENTRYPOINT ["lmerge"]' in last
    (user,) = [line for line in last if line.startswith("USER ")]
    assert re.fullmatch(r"USER [1-9]\d+:[1-9]\d+", user)  # by number: Kubernetes cannot judge a name
    after = last[last.index(user) :]
    assert not [line for line in after if line.startswith(("RUN", "COPY", "ADD"))]
    assert any("HEALTHCHECK" in line for line in after)


def test_every_package_of_lmerge_is_in_the_image() -> None:
    copied = {line.split()[1] for line in stages()[0] if line.startswith("COPY ") and "--from" not in line}
    assert {"lmerge", "lmerge_replicas", "lmerge_controller", "native"} <= copied


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the script runs in the image, on Python 3.12")
def test_licences_are_listed_for_every_package(tmp_path: Path) -> None:
    crates = tmp_path / "crates" / "index" / "ahash-0.8.12"
    crates.mkdir(parents=True)
    (crates / "Cargo.toml").write_text('[package]\nname = "ahash"\nlicense = "MIT OR Apache-2.0"\n')
    (crates / "LICENSE-MIT").write_text("MIT\n")
    lock = tmp_path / "Cargo.lock"
    entries = ("ahash", "0.8.12", "registry"), ("elsewhere", "1.0.0", "registry")
    lock.write_text("".join(f'[[package]]\nname="{n}"\nversion="{v}"\nsource="{s}"\n' for n, v, s in entries))
    site = Path(pytest.__file__).parent.parent
    out = tmp_path / "out"
    program = [sys.executable, str(IMAGE / "licences.py"), str(site), str(lock), str(tmp_path / "crates"), str(out)]
    subprocess.run(program, check=True, capture_output=True)
    index = (out / "INDEX.txt").read_text().splitlines()
    assert "crate ahash 0.8.12: MIT OR Apache-2.0" in index
    assert f"python grpcio {version('grpcio')}: Apache-2.0" in index
    assert not [line for line in index if "elsewhere" in line]
    assert (out / "crate" / "ahash-0.8.12" / "LICENSE-MIT").read_text() == "MIT\n"
    assert any((out / "python" / f"grpcio-{version('grpcio')}").iterdir())
