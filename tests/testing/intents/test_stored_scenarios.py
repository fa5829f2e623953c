"""Scenarios and cases that releases have stored mean the same now (TESTING 1, T8, and 8, U6).

The pytest plugin runs the files of ``tests/testing/stored`` as tests, a folder for each release.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lmerge.testing.evidence.cases import SavedCase, load, save_case
from lmerge.testing.intents.fluent import IntentScenario
from lmerge.testing.intents.json_format import scenario_to_json

STORED = sorted((Path(__file__).parents[1] / "stored").rglob("*.scenario.json"))


def test_there_are_files_of_the_first_release() -> None:
    assert {path.parent.name for path in STORED} >= {"0.1"}


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_stored_file_is_read_and_written_as_it_was(path: Path, tmp_path: Path) -> None:
    """T8, U6 (abstract, 7): scenarios of a release run on the next."""
    loaded = load(path)
    if isinstance(loaded, IntentScenario):
        assert scenario_to_json(loaded) == json.loads(path.read_text())
        return
    assert isinstance(loaded, SavedCase)
    name = path.name.removesuffix(".scenario.json")
    written = save_case(tmp_path, name, loaded)
    assert written.read_bytes() == path.read_bytes()
    session = f"{name}.session.jsonl"
    assert (tmp_path / session).read_bytes() == (path.parent / session).read_bytes()
