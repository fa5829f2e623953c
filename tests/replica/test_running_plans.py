"""A plan of one's own as the replica of a merge: real processes, a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_world import Served, run
from replica_world import Reading, counts_by_window, flight_rows, replica_process, write_csv, write_query

from lmerge.client import describe_merge


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    merges = ("final", "settled", "watermark", "eager", "two", "json")
    server = Served(tmp_path_factory.mktemp("served"), *(text for name in merges for text in ("--merge", name)))
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("form", ["final", "settled", "watermark", "eager"])
def test_a_plan_of_each_form_gives_the_table(form: str, served: Served, tmp_path: Path) -> None:
    rows = flight_rows(600)
    write_csv(tmp_path / "flights.csv", rows)
    write_query(tmp_path)
    with Reading(served.target, form) as reading:
        process = replica_process(tmp_path, "query.py", "--plan", form, "-s", served.target, "-m", form, "-r", "a")
        errors = process.communicate(timeout=60)[1]
        assert process.returncode == 0, errors
        assert errors.splitlines()[-1] == f"a: everything was published: plan {form}, 601 items of its sources"
        assert reading.table() == counts_by_window(rows)


def test_plans_of_one_query_are_merged(served: Served, tmp_path: Path) -> None:
    rows = flight_rows(600, seed=1)
    write_csv(tmp_path / "flights.csv", rows)
    write_query(tmp_path)
    options = ("-s", served.target, "-m", "two", "--speed", "0.001")
    with Reading(served.target, "two") as reading:
        processes = [
            replica_process(tmp_path, "query.py", "--plan", form, "-r", form, *options) for form in ("final", "eager")
        ]
        assert reading.table() == counts_by_window(rows)
        for process in processes:
            errors = process.communicate(timeout=60)[1]
            assert process.returncode == 0, errors


def test_what_a_plan_promises_decides_the_algorithm(served: Served, tmp_path: Path) -> None:
    write_csv(tmp_path / "flights.csv", flight_rows(100))
    write_query(tmp_path)
    for form, algorithm in (("final", "r1"), ("eager", "r3")):
        merge = f"promised-{form}"
        process = replica_process(tmp_path, "query.py", "--plan", form, "-s", served.target, "-m", merge)
        process.communicate(timeout=60)
        assert describe_merge(served.target, merge).summary.algorithm.lower() == algorithm


def test_a_plan_as_json_runs_as_the_module_does(served: Served, tmp_path: Path) -> None:
    rows = flight_rows(300, seed=2)
    write_csv(tmp_path / "moved.csv", rows)
    document = run("plan", str(write_query(tmp_path)), "--show", "json", "--plan", "eager")
    assert document.returncode == 0, document.stderr
    (tmp_path / "plan.json").write_text(document.stdout)
    assert json.loads(document.stdout)["outputs"].keys() == {"eager"}
    again = run("plan", str(tmp_path / "plan.json"), "--json")
    assert again.stdout == document.stdout
    with Reading(served.target, "json") as reading:
        options = ("-s", served.target, "-m", "json", "-r", "a")
        process = replica_process(tmp_path, "plan.json", "--source", "flights=moved.csv", *options)
        errors = process.communicate(timeout=60)[1]
        assert process.returncode == 0, errors
        assert reading.table() == counts_by_window(rows)
