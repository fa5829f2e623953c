"""`lmerge module`, and plans in a process that has not imported what they call: packages in a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_world import run
from package_world import write_package
from replica_world import write_query

CODE = """
    from lmerge.temporal.expressions.functions import scalar_function
    from lmerge.temporal.modules.functions import aggregate_function

    @scalar_function(["int"], "int", version=2)
    def threshold(sensor):
        "The limit of a sensor."
        return 5

    @aggregate_function()
    def spread(values: list[float]) -> float:
        "The largest less the smallest."
        return max(values) - min(values)

    NOTHING = 1
"""
QUERY = """
    import lmerge.temporal as lt
    from lmerge.replica import Query
    from lmerge.temporal.expressions.functions import call

    s = lt.source("s", {"sensor": "int", "value": "float"})
    high = s.where(lt.col.sensor < call("threshold", lt.col.sensor, version=2))
    query = Query({"a": high.tumbling(5).agg(m=lt.aggregate("spread", lt.col.value))})
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "packages"
    write_package(folder, "sensors", CODE, threshold="sensors:threshold", spread="sensors:spread")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


def test_modules_and_functions_are_listed_and_described(packages: Path) -> None:
    listed = run("module", "list")
    assert listed.returncode == 0, listed.stderr
    assert [line.split(maxsplit=2) for line in listed.stdout.splitlines()] == [
        ["spread", "aggregate", "The largest less the smallest."],
        ["threshold", "function", "The limit of a sensor."],
    ]
    as_json = [json.loads(line) for line in run("module", "list", "--json").stdout.splitlines()]
    assert [(one["name"], one["version"], one["kind"]) for one in as_json] == [
        ("spread", 1, "aggregate"),
        ("threshold", 2, "function"),
    ]
    described = run("module", "describe", "threshold")
    assert described.stdout.splitlines()[0] == "threshold, version 2: function"
    assert "comes from  sensors:threshold of sensors 1.0" in described.stdout
    unknown = run("module", "describe", "no_such_module")
    assert unknown.returncode == 2
    assert "there is no module 'no_such_module'; there are spread, threshold" in unknown.stderr


def test_what_cannot_be_listed_hides_nothing_else(packages: Path) -> None:
    write_package(packages, "gone", gone="no_such_package_here:X", nothing="sensors:NOTHING")
    write_package(packages, "twin", spread="twin:spread", other="sensors:threshold")
    write_package(packages, "leaver", "raise SystemExit(0)", leaver="leaver:X")
    listed = run("module", "list")
    assert listed.returncode == 2
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["threshold"]
    assert listed.stderr.splitlines() == [
        (
            "lmerge: module 'gone' cannot be imported from no_such_package_here:X: ModuleNotFoundError: "
            "No module named 'no_such_package_here'"
        ),
        "lmerge: module 'leaver' cannot be imported from leaver:X: SystemExit: 0",
        "lmerge: the entry point nothing of lmerge.modules is no module: sensors:NOTHING of gone 1.0",
        (
            "lmerge: the entry point other of lmerge.modules is called 'threshold' by its own name: "
            "sensors:threshold of twin 1.0"
        ),
        "lmerge: the name of module 'spread' is not unique: sensors:spread of sensors 1.0, twin:spread of twin 1.0",
    ]
    as_json = run("module", "list", "--json")
    assert as_json.returncode == 2
    assert [json.loads(line)["name"] for line in as_json.stdout.splitlines()] == ["threshold"]


def test_a_plan_as_json_is_read_where_its_functions_are_installed(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = run("plan", str(write_query(tmp_path, QUERY)), "--json")
    assert written.returncode == 0, written.stderr
    plan = tmp_path / "plan.json"
    plan.write_text(written.stdout)
    assert '"function": "threshold", "version": 2' in written.stdout
    read = run("plan", str(plan), "--json")
    assert read.returncode == 0, read.stderr
    assert read.stdout == written.stdout
    monkeypatch.delenv("PYTHONPATH")
    elsewhere = run("plan", str(plan))
    assert elsewhere.returncode == 2
    assert "the plan needs function 'threshold' version 2, which is not installed" in elsewhere.stderr
    document = json.loads(written.stdout)
    filtered = next(node for node in document["nodes"] if "predicate" in node)
    filtered["predicate"] = {"literal": True, "type": "bool"}
    plan.write_text(json.dumps(document))
    elsewhere = run("plan", str(plan))
    assert elsewhere.returncode == 2
    assert "the plan needs module 'spread' version 1, which is not installed" in elsewhere.stderr
