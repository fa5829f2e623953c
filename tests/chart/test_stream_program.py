"""The program of `helm test`, on two real servers: it passes there, and its judge finds what is planted."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from chart_world import CHART
from cli_world import Served

PROGRAM = CHART / "files" / "test" / "stream_test.py"
BEGAN_US = 1_000_000


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stream_test", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_passes_on_two_servers(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    servers = []
    try:
        for folder in folders:
            folder.mkdir()
            servers.append(Served(folder))
        for _ in range(2):  # again, in a merge that has a past
            result = subprocess.run(
                [sys.executable, str(PROGRAM), "helm-test"],
                env=os.environ | {"LMERGE_SERVERS": ",".join(server.target for server in servers)},
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            assert result.returncode == 0, result.stdout + result.stderr
            assert "replica a is killed" in result.stdout
            assert "passed: 200 events" in result.stdout
    finally:
        for server in servers:
            server.process.kill()
            server.process.communicate()


def test_the_judge_passes_the_truth_and_finds_what_is_planted(program: ModuleType) -> None:
    truth = Counter(program.truth(BEGAN_US))
    assert program.verdict(truth, BEGAN_US) is None
    first = next(iter(truth))
    assert "1 events are lost and 0 are too many" in program.verdict(truth - Counter([first]), BEGAN_US)
    assert "0 events are lost and 1 are too many" in program.verdict(truth + Counter([first]), BEGAN_US)
    other = (first[0], first[1], first[2] + 1)
    contradicted = truth - Counter([first]) + Counter([other])
    assert "1 events are lost and 1 are too many" in program.verdict(contradicted, BEGAN_US)
