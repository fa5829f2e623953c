"""Writes a bill of materials (CycloneDX 1.6, JSON): what an environment has installed, and the crates of the core.

    python scripts/sbom.py PYTHON OUTPUT [--without-crates]

PYTHON: the interpreter of the environment, which lmerge is installed in. Packages and their licences are those of the
environment; crates are those of native/Cargo.lock that the native core is built from, without those of its tests. Two
runs on one environment write the same bytes. Run by scripts/dist.py and by the build of the image.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
BINDING = "lmerge-python"  # the crate that is built into lmerge._native


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("python", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--without-crates", action="store_true", help="for a package without the native core")
    options = parser.parse_args()
    bill = environment(options.python)
    if not options.without_crates:
        bill["components"] += crates(tomllib.loads((ROOT / "native/Cargo.lock").read_text()), BINDING)
    bill["components"].sort(key=lambda component: component.get("purl", component["name"]))
    options.output.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")
    print(f"{options.output}: {len(bill['components'])} components")
    return 0


def environment(python: Path) -> dict[str, Any]:
    """Return the bill of the packages that are installed for ``python``."""
    command = [
        sys.executable,
        "-m",
        "cyclonedx_py",
        "environment",
        "--output-reproducible",
        "--of",
        "JSON",
        str(python),
    ]
    bill: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    # Where the environment was is no property of what it contains.
    for component in bill["components"]:
        for reference in component.get("externalReferences", []):
            if reference["url"].startswith("file:"):
                component["externalReferences"].remove(reference)
    return bill


def crates(lock: dict[str, Any], root: str) -> list[dict[str, Any]]:
    """Return the components that ``root`` is built from, with those that it only needs to build.

    ``lock``: Cargo.lock as a table. It does not tell kinds of dependencies apart, so the crates of tests are found
    below ``root`` only if a library needs them too.
    """
    packages: dict[str, dict[str, Any]] = {}
    for package in lock["package"]:
        packages[package["name"]] = package
        packages[f"{package['name']} {package['version']}"] = package
    found: dict[str, dict[str, Any]] = {}
    waiting = [root]
    while waiting:
        package = packages[waiting.pop()]
        key = f"{package['name']} {package['version']}"
        if key not in found:
            found[key] = package
            waiting += [name.partition(" (")[0] for name in package.get("dependencies", [])]
    return [_component(package) for _, package in sorted(found.items()) if "source" in package]


def _component(package: dict[str, Any]) -> dict[str, Any]:
    purl = f"pkg:cargo/{package['name']}@{package['version']}"
    digest = {"hashes": [{"alg": "SHA-256", "content": package["checksum"]}]} if "checksum" in package else {}
    named = {"name": package["name"], "version": package["version"], "purl": purl, "bom-ref": purl}
    return {"type": "library", "scope": "required"} | named | digest


if __name__ == "__main__":
    sys.exit(main())
