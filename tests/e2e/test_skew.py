"""Servers, publishers and subscribers of two versions work together while one after another is upgraded, and back.

The other versions are commits that pyproject.toml lists as ``works-with``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from skew_world import (
    ROOT,
    InstalledVersion,
    Skewed,
    SkewedReader,
    SkewedReplica,
    SkewedServer,
    skewed,
    this_version,
    version_of,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

COMMITS: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["lmerge"]["works-with"]


@pytest.fixture(scope="module", params=COMMITS)
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> InstalledVersion:
    return version_of(request.param, tmp_path_factory.mktemp("version"))


def test_the_two_versions_are_two(other: InstalledVersion) -> None:
    assert Path(other.path("lmerge")).is_relative_to(other.folder)
    assert Path(this_version().path("lmerge")).is_relative_to(ROOT / "lmerge")


def test_a_version_has_no_module_of_the_other(other: InstalledVersion) -> None:
    assert other.path("lmerge._native") == "None"


@pytest.mark.parametrize("first", ["servers", "clients"])
@pytest.mark.parametrize("direction", ["upgrade", "downgrade"])
def test_one_after_another_is_replaced_and_the_stream_goes_on(
    direction: str, first: str, other: InstalledVersion, tmp_path: Path
) -> None:
    before, after = (other, this_version()) if direction == "upgrade" else (this_version(), other)
    with skewed(before, tmp_path) as world:
        world.step()
        for part in order(world, first):
            part.run(after)
            world.step()
        world.end()
        assert world.reader.events == world.expected


def order(world: Skewed, first: str) -> list[SkewedServer | SkewedReplica | SkewedReader]:
    return [*world.servers, *world.clients] if first == "servers" else [*world.clients, *world.servers]
