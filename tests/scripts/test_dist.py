"""What is shipped depends on its sources alone, not on when, where and by whom it is built."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import dist
import pytest


def pack(folder: Path, name: str, *, mtime: int, user: str) -> Path:
    """Pack a source distribution as setuptools does: with the times and the owner of the build."""
    made = folder / name
    with tarfile.open(made, "w:gz") as archive:
        for path, text in (("lmerge/b.py", "b"), ("lmerge/a.py", "a")):
            (folder / "file").write_text(text)
            member = archive.gettarinfo(folder / "file", path)
            member.mtime, member.uname = mtime, user
            with (folder / "file").open("rb") as file:
                archive.addfile(member, file)
    return made


def test_a_source_distribution_has_no_time_and_no_owner_of_its_build(tmp_path: Path) -> None:
    first = dist.repacked(pack(tmp_path, "first.tar.gz", mtime=1_700_000_000, user="a"), 1_600_000_000)
    second = dist.repacked(pack(tmp_path, "second.tar.gz", mtime=1_800_000_000, user="b"), 1_600_000_000)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        assert [(member.name, member.mtime, member.uname) for member in archive] == [
            ("lmerge/a.py", 1_600_000_000, ""),
            ("lmerge/b.py", 1_600_000_000, ""),
        ]
        file = archive.extractfile("lmerge/b.py")
        assert file is not None
        assert file.read() == b"b"


@pytest.mark.parametrize("is_equal", [True, False])
def test_two_builds_that_differ_are_a_failure(tmp_path: Path, is_equal: bool) -> None:
    def make(place: dist.Place) -> Path:
        place.output.mkdir(parents=True, exist_ok=True)
        made = place.output / "made"
        made.write_text("" if is_equal else str(place.work))
        return made

    place = dist.Place(tmp_path / "output", tmp_path / "work", 0, is_twice=True)
    if is_equal:
        assert place.made(make) == tmp_path / "output" / "made"
    else:
        with pytest.raises(dist.Failed, match="two builds of made differ"):
            place.made(make)


def test_only_what_git_tracks_is_built(tmp_path: Path) -> None:
    source = dist.Place(tmp_path, tmp_path, 1_600_000_000).source()
    assert (source / "pyproject.toml").stat().st_mtime == 1_600_000_000
    assert not list(source.rglob("__pycache__"))
    shutil.rmtree(source)
