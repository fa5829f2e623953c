"""The bill of materials: the crates that the native core is built from, and no others."""

from __future__ import annotations

import sys

from sbom import BINDING, ROOT, crates

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOCK = {
    "package": [
        {"name": "core", "version": "1.0.0", "dependencies": ["hash 2.0.0", "tree"]},
        {"name": "hash", "version": "1.0.0", "source": "registry", "checksum": "aa"},
        {"name": "hash", "version": "2.0.0", "source": "registry", "checksum": "bb"},
        {"name": "tree", "version": "3.0.0", "source": "registry", "dependencies": ["core"]},
        {"name": "fuzzer", "version": "4.0.0", "source": "registry"},
    ]
}


def test_it_lists_what_is_reached_from_the_binding_in_its_version() -> None:
    found = crates(LOCK, "core")
    assert [component["purl"] for component in found] == ["pkg:cargo/hash@2.0.0", "pkg:cargo/tree@3.0.0"]
    assert found[0]["hashes"] == [{"alg": "SHA-256", "content": "bb"}]


def test_the_crates_of_the_core_are_in_it_and_its_own_are_not() -> None:
    names = {
        component["name"] for component in crates(tomllib.loads((ROOT / "native/Cargo.lock").read_text()), BINDING)
    }
    assert {"pyo3", "hashbrown", "prost"} <= names
    assert not [name for name in names if name.startswith("lmerge")]
