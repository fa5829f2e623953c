"""Every command of docs/operate-local.md runs as it stands there, in order."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from up_world import Up

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "operate-local.md"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is left is found in /proc")


def commands() -> list[list[str]]:
    """Return the commands of the page, without their first name."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]


@pytest.mark.timeout(280)
def test_every_command_of_the_page_runs_in_order(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shown = {}
    with Up(tmp_path, "flights") as up:
        for command in commands():
            done = up.command(*command)
            assert done.returncode == 0, (command, done.stdout, done.stderr, up.logs())
            shown[" ".join(command)] = done.stdout
        assert up.left() == []
    assert "flights is up: it survives the loss of 2 inputs" in shown["up examples/flights.yaml --background"]
    assert "merged stream flights at 127.0.0.1:" in shown["ps"]
    assert shown["down flights"] == "flights has ended\n"
    assert len(shown) == 7
