"""`lmerge plan` shows what would be done and why, by what runs, and changes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from cli_world import run

from lmerge_controller.local.process_table import process_id
from lmerge_controller.model.reading import read_query

TEXT = """\
apiVersion: lmerge.dev/v1alpha1
kind: ReplicatedQuery
metadata: {name: prices}
spec:
  servers: {count: 2}
  versions: [{name: v1, run: {command: [prices]}}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(TEXT)
    return path


def shown(file: Path, *options: str) -> tuple[int, str]:
    """Return the exit code of `lmerge plan`, and what it prints."""
    ended = run("plan", str(file), "--state", str(file.parent / ".lmerge"), *options)
    return ended.returncode, ended.stdout + ended.stderr


def recorded(folder: Path, file: Path) -> None:
    """Record this process as a server, and as a replica that has another start time: it has ended."""
    query, own = read_query(file), process_id(os.getpid())
    assert own is not None
    part = {"version": "", "index": 0, "role": "active", "started_at_s": 1.0, "life": "1"}
    server = {**part, "is_server": True, "fingerprint": query.servers_fingerprint}
    replica = {**part, "is_server": False, "version": "v1", "fingerprint": query.versions[0].fingerprint}
    state = folder / ".lmerge" / "prices"
    state.mkdir(parents=True)
    table = {
        "server-0": {"pid": own.pid, "started": own.started, "part": server},
        "prices-v1-0": {"pid": own.pid, "started": "another", "part": replica},
        "newer": {"of": "another version"},
    }
    (state / "processes.json").write_text(json.dumps(table))


def test_a_query_that_does_not_run_is_started(file: Path) -> None:
    code, text = shown(file)
    assert code == 0, text
    assert text.startswith("prices: 2 to do\n")
    assert "StartServer" in text
    assert "2 servers are kept; it is not there" in text
    assert not (file.parent / ".lmerge").exists(), "it changes nothing"


def test_what_runs_is_left_and_the_exit_code_reports_changes(file: Path) -> None:
    recorded(file.parent, file)
    code, text = shown(file, "--check", "--json")
    made: dict[str, Any] = json.loads(text)
    assert code == 3
    assert [(found["action"], found["index"]) for found in made["actions"]] == [("StartServer", 1)]
    assert {found["type"] for found in made["conditions"]} >= {"Available", "Degraded"}
    assert made["record"]["serving"] == "v1"


def test_a_wrong_file_is_a_usage_error(file: Path) -> None:
    file.write_text(TEXT.replace("count: 2", "count: 0"))
    assert shown(file)[0] == 2
