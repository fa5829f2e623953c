"""Options of `lmerge replica run`: one that has no effect is refused, with its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_world import run
from replica_world import flight_rows, write_csv, write_query

NO_SERVER = ("-s", "127.0.0.1:" + "1", "-m", "m")  # nothing is sent to it: what is wrong comes first


@pytest.mark.parametrize(
    "options",
    [
        ("--plan", "zzz"),
        ("--source", "a=b"),
        ("--join-at", "3"),
        ("--checkpoint-every", "3"),
        ("--give-up-after", "3"),
        ("--raw",),
        ("--supervised",),
    ],
    ids=lambda options: str(options[0]),
)
def test_options_of_queries_are_refused_for_replicas_that_come_with_lmerge(options: tuple[str, ...]) -> None:
    ended = run("replica", "run", "temporal-final", *options, *NO_SERVER)
    assert ended.returncode == 2
    assert f"lmerge: {options[0]} has no effect here: it is for queries, and temporal-final comes" in ended.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--first", "2013-99-99"), "it is for the flights of 2013"),
        (("--last", "xx"), "it is for the flights of 2013"),
        (("--start", "0"), "a replay of a query has --speed"),
        (("--checkpoint-every", "3"), "there is no --checkpoint"),
    ],
    ids=["first", "last", "start", "checkpoint-every"],
)
def test_options_without_an_effect_on_a_query_are_refused(
    options: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    write_csv(tmp_path / "flights.csv", flight_rows(9))
    ended = run("replica", "run", str(write_query(tmp_path)), "--plan", "final", *options, *NO_SERVER)
    assert ended.returncode == 2
    assert f"lmerge: {options[0]} has no effect here: {reason}" in ended.stderr


def test_a_query_gives_up_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_csv(tmp_path / "flights.csv", flight_rows(9))
    write_query(tmp_path)
    monkeypatch.chdir(tmp_path)
    ended = run("replica", "run", "query.py", "--plan", "final", "--give-up-after", "0.05", *NO_SERVER)
    assert ended.returncode == 1
    assert NO_SERVER[1] in ended.stderr


def test_no_speed_is_refused(tmp_path: Path) -> None:
    ended = run("replica", "run", str(write_query(tmp_path)), "--plan", "final", "--speed", "0", *NO_SERVER)
    assert ended.returncode == 2
    assert "--speed" in ended.stderr
