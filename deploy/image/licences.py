"""Collects the licences of everything that the image adds to its base. The Dockerfile runs it in the build stage.

    python licences.py SITE_PACKAGES CARGO_LOCK CRATES OUT

For each distribution in SITE_PACKAGES and each crate of CARGO_LOCK that was fetched to CRATES, OUT gets a folder with
the licence files of the package, and OUT/INDEX.txt a line: kind, name, version, licence as its author declares it.
A package without a licence file keeps its line, so that the index is complete.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

import tomllib

NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS", "UNLICENSE")


class Package(NamedTuple):
    kind: str
    name: str
    version: str
    licence: str
    files: tuple[Path, ...]


def is_licence(path: Path) -> bool:
    return path.is_file() and path.name.upper().startswith(NAMES)


def declared(distribution: Distribution) -> str:
    """Return the licence of a distribution: its expression, else its short text, else its classifiers."""
    metadata = distribution.metadata
    expression = metadata.get("License-Expression") or metadata.get("License") or ""
    if expression and "\n" not in expression:
        return expression
    found = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", []) if line.startswith("License")]
    return " OR ".join(found) or "see the files"


def python_packages(site: Path) -> Iterator[Package]:
    for distribution in distributions(path=[str(site)]):
        listed = (Path(str(file.locate())) for file in distribution.files or ())
        files = tuple(sorted({path for path in listed if is_licence(path)}))
        yield Package("python", distribution.name, distribution.version, declared(distribution), files)


def crates(lock: Path, fetched: Path) -> Iterator[Package]:
    for crate in tomllib.loads(lock.read_text())["package"]:
        folders = list(fetched.glob(f"*/{crate['name']}-{crate['version']}"))
        if "source" not in crate or not folders:  # a crate of this project, or one for another system
            continue
        manifest = tomllib.loads((folders[0] / "Cargo.toml").read_text())["package"]
        files = tuple(sorted(path for path in folders[0].iterdir() if is_licence(path)))
        licence = manifest.get("license") or manifest.get("license-file") or "see the files"
        yield Package("crate", crate["name"], crate["version"], licence, files)


def main(site: Path, lock: Path, fetched: Path, out: Path) -> None:
    packages = sorted({*python_packages(site), *crates(lock, fetched)})
    for package in packages:
        folder = out / package.kind / f"{package.name}-{package.version}"
        folder.mkdir(parents=True, exist_ok=True)
        for file in package.files:
            shutil.copyfile(file, folder / file.name)
    lines = (f"{package.kind} {package.name} {package.version}: {package.licence}\n" for package in packages)
    (out / "INDEX.txt").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
