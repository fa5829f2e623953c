"""`lmerge plan query.py`, and what `lmerge replica run` refuses of a query."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from cli_world import run
from replica_world import counts_by_window, flight_rows, write_csv, write_query

NO_SERVER = ("-s", "127.0.0.1:" + "1", "-m", "m")  # nothing is sent to it: what is wrong comes first
BROKEN = {
    "syntax": ("query = (", r"query.py cannot be imported: line 1: SyntaxError: '\(' was never closed"),
    "import": ("import no_such_package", "line 1: ModuleNotFoundError: No module named 'no_such_package'"),
    "raises": ("x = 1\nquery = 1 / 0", "line 2: ZeroDivisionError: division by zero"),
    "exits": ("import sys\nsys.exit(0)", "query.py cannot be imported: line 2: SystemExit: 0"),
    "missing": ("plans = {}", "has no `query = Query(plans, sources)`"),
    "other": ("query = {}", "declares no query: it has a line `query = Query(plans, sources)`, not {}"),
    "empty": ("from lmerge.replica import Query\nquery = Query({})", "line 2: a query has at least one plan"),
    "column": (
        """
        from lmerge.replica import Query
        from lmerge.temporal.expressions.surface import col
        from lmerge.temporal.plan.stream import source
        query = Query({"a": source("s", {"x": "int"}).where(col.y > 1)})
        """,
        "line 5: ",
    ),
    "results": (
        """
        from lmerge.replica import Query
        from lmerge.temporal.plan.stream import source
        s = source("s", {"x": "int", "y": "int"})
        query = Query({"a": s, "b": s.select("x")})
        """,
        "the plans of a query have one result: plan 'a' gives (x: int, y: int), and plan 'b' gives (x: int)",
    ),
    "module": (
        """
        from lmerge.replica import Query
        from lmerge.temporal.plan.stream import aggregate, source
        query = Query({"a": source("s", {"x": "int"}).tumbling(5).agg(n=aggregate("my_average"))})
        """,
        "there is no aggregate 'my_average'",
    ),
    "source": (
        """
        from lmerge.replica import CsvFile, Query
        from lmerge.temporal.plan.stream import source
        query = Query({"a": source("s", {"x": "int"})}, {"t": CsvFile(path="f.csv", time="x")})
        """,
        "no plan reads the source 't'; there are s",
    ),
    "undeclared": (
        """
        from lmerge.replica import Query
        from lmerge.temporal.plan.stream import source
        query = Query({"a": source("s", {"x": "int"})})
        """,
        "the plan reads 's', and the query does not declare where that is",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_query_that_does_not_fit_is_an_error_with_its_line(case: str, tmp_path: Path) -> None:
    text, message = BROKEN[case]
    ended = run("replica", "run", str(write_query(tmp_path, text)), *NO_SERVER)
    assert ended.returncode == 2
    assert message.replace("\\", "") in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_line_is_named_for_a_path_from_the_folder_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_query(tmp_path, BROKEN["raises"][0])
    monkeypatch.chdir(tmp_path)
    assert "query.py cannot be imported: line 2: ZeroDivisionError" in run("plan", "query.py").stderr


def test_a_plan_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_csv(tmp_path / "flights.csv", flight_rows(9))
    path = str(write_query(tmp_path))
    for arguments in (("replica", "run", path, "--plan", "x", *NO_SERVER), ("plan", path, "--plan", "x")):
        ended = run(*arguments)
        assert ended.returncode == 2
        assert "there is no plan 'x': there are final, settled, watermark, eager" in ended.stderr
    ended = run("replica", "run", path, *NO_SERVER)
    assert ended.returncode == 2
    assert "name one of its plans: there are final, settled, watermark, eager" in ended.stderr
    ended = run("replica", "run", str(tmp_path / "gone.py"), *NO_SERVER)
    assert ended.returncode == 2
    assert "there is no file" in ended.stderr


def test_a_source_can_be_elsewhere(tmp_path: Path) -> None:
    path = str(write_query(tmp_path))
    for place, message in (
        ("flights=gone.csv", "source 'flights' (gone.csv) cannot be read: No such file"),
        ("trains=x.csv", "there is no source 'trains'; there are flights"),
        ("flights", "--source is 'flights'; it is NAME=PLACE"),
    ):
        ended = run("replica", "run", path, "--plan", "final", "--source", place, *NO_SERVER)
        assert ended.returncode == 2
        assert message in ended.stderr


def test_plans_are_shown_in_every_form(tmp_path: Path) -> None:
    path = str(write_query(tmp_path))
    tree = run("plan", path)
    assert tree.returncode == 0, tree.stderr
    assert [line for line in tree.stdout.splitlines() if line and line[0] != " "] == [
        "final: r1",
        "settled: r1",
        "watermark: r3",
        "eager: r3",
    ]
    assert "└─ filter col.delay > 15" in tree.stdout
    assert run("plan", path, "--show", "list").stdout.splitlines() == [
        "final      r1  reads flights",
        "settled    r1  reads flights",
        "watermark  r3  reads flights",
        "eager      r3  reads flights",
    ]
    explained = run("plan", path, "--show", "explain", "--plan", "final")
    assert "promises deterministic-ties, insert-only, key, ordered" in explained.stdout
    assert "eager" not in explained.stdout
    assert run("plan", path, "--show", "mermaid").stdout.startswith("flowchart TD\n")
    assert run("plan", path, "--show", "svg").stdout.startswith("<svg ")
    document = json.loads(run("plan", path, "--json").stdout)
    assert document["outputs"].keys() == {"final", "settled", "watermark", "eager"}
    assert document["sources"] == {
        "flights": {"kind": "csv", "path": "flights.csv", "time": "at", "progress": {"delay": 20}}
    }


@pytest.mark.parametrize("plan", ["final", "settled", "watermark", "eager"])
def test_the_result_of_a_plan_is_printed_without_a_merge(plan: str, tmp_path: Path) -> None:
    rows = flight_rows(200)
    path = str(write_query(tmp_path))
    write_csv(tmp_path / "flights.csv", rows)
    ended = run("plan", path, "--show", "result", "--plan", plan, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {line["op"] for line in lines} == {"final"}
    found = Counter((line["row"]["origin"], line["row"]["n"], line["vs"], line["ve"]) for line in lines)
    assert found == counts_by_window(rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name one of its plans: there are final, settled, watermark, eager"),
        (("--plan", "final"), "source 'flights' (flights.csv) cannot be read: No such file"),
    ],
)
def test_a_result_that_cannot_be_computed_is_an_error(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    ended = run("plan", str(write_query(tmp_path)), "--show", "result", *arguments, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sources": []}, "the sources of a plan are objects by name, not []"),
        ({"sources": {"flights": {"kind": "tape"}}}, "source 'flights': there is no source of kind 'tape'"),
        ({"sources": {"flights": {"kind": "csv", "color": 1}}}, "source 'flights': a source of kind 'csv' cannot"),
        ({"outputs": {}}, "a plan has a list of nodes, and outputs by name"),
    ],
)
def test_a_plan_as_json_that_does_not_fit_is_named(change: dict[str, object], message: str, tmp_path: Path) -> None:
    document = json.loads(run("plan", str(write_query(tmp_path)), "--json").stdout)
    (tmp_path / "plan.json").write_text(json.dumps(document | change))
    ended = run("replica", "run", str(tmp_path / "plan.json"), "--plan", "final", *NO_SERVER)
    assert ended.returncode == 2
    assert f"plan.json: {message}" in ended.stderr


def test_text_that_is_no_plan_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    for text, message in ((b"{", "is no JSON"), (b"\xff", "is no UTF-8"), (b"{}", "this is no plan: {}")):
        path.write_bytes(text)
        ended = run("replica", "run", str(path), *NO_SERVER)
        assert ended.returncode == 2
        assert message in ended.stderr
