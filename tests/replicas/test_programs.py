"""What ``lmerge replica`` finds: the programs that this project declares, and those of other packages."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from lmerge import replica_programs
from lmerge.errors import UsageError
from lmerge.replica_programs import GROUP, ReplicaProgram, replica_names, replica_program

ROOT = Path(__file__).parents[2]


def declared() -> dict[str, str]:
    """Return the entry points of pyproject.toml: name -> value."""
    text = (ROOT / "pyproject.toml").read_text()
    section = text.split(f'[project.entry-points."{GROUP}"]\n')[1].split("\n[")[0]
    return dict(re.findall(r'^([\w-]+) = "(.+)"$', section, re.MULTILINE))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Give the entry points that are installed; a test may change them."""
    points = declared()

    def found(group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == GROUP
        return [EntryPoint(one, value, group) for one, value in points.items() if name in (None, one)]

    monkeypatch.setattr(replica_programs, "entry_points", found)
    return points


def test_every_declared_replica_is_a_program_that_can_be_run(installed: dict[str, str]) -> None:
    spark, temporal = ["spark-append", "spark-update"], ["temporal-by-airport", "temporal-final", "temporal-revising"]
    assert replica_names() == ["aggressive", "conservative", "open-ended", *spark, *temporal]
    for name in replica_names():
        program = replica_program(name)
        assert callable(import_module(program.module).main)
        assert program.has_checkpoint == name.startswith("spark-")


def test_a_program_of_another_package_is_found(installed: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    board = ReplicaProgram("the board of an airport", "board.program")
    monkeypatch.setattr(replica_programs, "BOARD", board, raising=False)
    installed["board"] = "lmerge.replica_programs:BOARD"
    assert replica_program("board") == board


def test_what_is_no_program_is_named(installed: dict[str, str]) -> None:
    installed["wrong"] = "lmerge.replica_programs:GROUP"
    with pytest.raises(UsageError, match=r"wrong of lmerge\.replicas is no ReplicaProgram: .*:GROUP"):
        replica_program("wrong")
    with pytest.raises(UsageError, match="there is no replica 'x'; there are aggressive, conservative, "):
        replica_program("x")
    installed.clear()
    with pytest.raises(UsageError, match="there are none: no installed package declares one"):
        replica_program("x")
