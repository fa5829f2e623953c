"""The other commands, as real processes against a real server."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import typer
from cli_world import LMERGE, READY_S_MAX, STREAM, Served, run
from typer.testing import CliRunner

from lmerge.cli.command_table import commands, panels
from lmerge.cli.main import app
from lmerge.cli.publish import BATCH_ROWS_MAX
from lmerge.client import list_merges


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    server = Served(tmp_path, "--merge", "m", "--record", str(tmp_path / "session.jsonl"))
    yield server
    if server.process.poll() is None:
        server.process.kill()
        server.process.communicate()


@pytest.mark.parametrize(
    "command",
    ["", "demo", "serve", "publish", "subscribe", "tail", "status", "top", "replica", "replay", "tdb", "info"],
)
def test_every_command_has_help(command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.returncode == 0
    assert "Usage" in result.stdout


def every_command() -> Iterator[tuple[str, ...]]:
    """All that ``--help`` can follow: commands, groups and their commands."""
    yield ()
    for name, (module, function) in commands().items():
        yield (name,)
        command = getattr(import_module(module), function)
        if isinstance(command, typer.Typer):
            group = typer.main.get_command(command)
            yield from ((name, one) for one in getattr(group, "commands", {}))


@pytest.mark.parametrize("command", list(every_command()), ids=lambda command: " ".join(command) or "lmerge")
def test_help_cuts_nothing_at_80_columns(command: tuple[str, ...]) -> None:
    narrow, wide = (
        CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": columns}).output for columns in ("80", "300")
    )
    assert max(map(len, narrow.splitlines())) <= 80
    assert "\N{HORIZONTAL ELLIPSIS}" not in narrow
    options = set(re.findall(r"^│[ *]+(--[a-z][a-z0-9-]+)", wide, re.MULTILINE))
    assert options
    assert options <= set(re.findall(r"--[a-z][a-z0-9-]+", narrow))


def test_a_package_adds_a_command_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wave.py").write_text('def wave() -> None:\n    """Wave once."""\n    print("waved")\n')
    metadata = tmp_path / "wave-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: wave\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[lmerge.commands]\nwave = wave:wave\nserve = wave:wave\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert panels()["operate"]["wave"] == ("wave", "wave")
    assert commands()["serve"] == ("lmerge.cli.serve", "serve")  # a package cannot replace a command of lmerge
    assert "Wave once." in CliRunner().invoke(app, ["--help"]).output
    assert CliRunner().invoke(app, ["wave"]).output == "waved\n"
    assert CliRunner().invoke(app, ["serve", "--help"]).output.count("waved") == 0


def test_the_help_shows_each_command_with_a_summary_in_its_panel() -> None:
    shown: dict[str, dict[str, str]] = {}
    panel = ""
    for line in CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300"}).output.splitlines():
        if title := re.match(r"╭─ (\w+) ─", line):
            panel = title[1]
        elif (row := re.match(r"│ (\S+) +(\S.*?) *│$", line)) and panel in panels():
            shown.setdefault(panel, {})[row[1]] = row[2]
    assert {name: list(rows) for name, rows in shown.items()} == {name: list(found) for name, found in panels().items()}
    assert [*panels()] == ["serve", "data", "operate", "develop"]
    assert shown["data"]["sink"] == "Write the merged stream to files or to a table, exactly once."


@pytest.mark.parametrize("command", list(every_command()), ids=lambda command: " ".join(command) or "lmerge")
def test_no_command_offers_shell_completion(command: tuple[str, ...]) -> None:
    assert "completion" not in CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "300"}).output


def test_version_and_info() -> None:
    assert run("--version").stdout.startswith("lmerge 0.")
    facts = json.loads(run("info", "--json").stdout)
    assert facts["engine"] in ("python", "native")
    assert facts["libraries"]["grpcio"]
    assert "grpcio" in run("info").stdout


def test_a_stream_goes_through_a_server_and_its_record_replays_to_the_same(served: Served, tmp_path: Path) -> None:
    reader = subprocess.Popen([*LMERGE, "subscribe", "m", "--server", served.target], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + READY_S_MAX
    while list_merges(served.target)[0].subscribers == 0:  # its snapshot lacks what is frozen before it subscribes
        assert time.monotonic() < deadline
    published = run("publish", "m", "-s", served.target, "-r", "a", "-p", "key", text="\n".join(STREAM))
    assert published.returncode == 0, published.stderr
    assert "published 4 elements to m; it runs r3" in published.stderr
    output = reader.communicate(timeout=60)[0]
    assert output.splitlines()[-1] == '{"op":"stable","vc":"inf"}'
    table = run("tdb", "-", text=output).stdout
    assert table == '{"payload":"A","vs":6,"ve":12}\n'

    assert "m" in run("status", "-s", served.target).stdout
    everything = json.loads(run("status", "--json", "-s", served.target).stdout)
    assert everything["merges"][0]["merge"] == "m"
    described = json.loads(run("status", "m", "--json", "-s", served.target).stdout)
    assert described["summary"]["algorithm"] == "r3"
    assert "survives" in run("status", "m", "-s", served.target).stdout or described["survives_losses"] == 0
    top = run("top", "--once", "--interval", "0.1", "-s", served.target)
    assert top.returncode == 0, top.stderr
    assert "redundancy" in top.stdout

    code, log = served.stop()
    assert code == 0, log
    assert "server stopped" in log
    replayed = run("replay", str(tmp_path / "session.jsonl"))
    assert replayed.returncode == 0, replayed.stderr
    assert replayed.stdout.splitlines()[-1] == '{"op":"stable","vc":"inf"}'
    assert run("tdb", "-", text=replayed.stdout).stdout == table


def test_publishing_stops_at_a_malformed_line_and_merges_what_came_before(served: Served) -> None:
    result = run("publish", "m", "-s", served.target, text="\n".join([STREAM[0], "nonsense"]))
    assert result.returncode == 2
    assert "line 2: not JSON" in result.stderr
    described = json.loads(run("status", "m", "--json", "-s", served.target).stdout)
    assert described["emitted"]["inserts"] == "1"


def test_an_error_for_an_illegal_element_names_its_line(served: Served) -> None:
    below = '{"op":"insert","payload":"B","vs":1,"ve":9}'
    result = run("publish", "m", "-s", served.target, text="\n".join([STREAM[0], STREAM[2], below]))
    assert result.returncode == 2
    assert "line 3" in result.stderr
    assert "insert-below-stable" in result.stderr


def test_publishing_a_file_names_the_line_whatever_is_blank_before_it(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    below = '{"op":"insert","payload":"B","vs":1,"ve":9}'
    path.write_text("\n".join(["", STREAM[0], "", "", STREAM[2], "  ", below, STREAM[3], ""]))
    result = run("publish", "m", str(path), "-s", served.target)
    assert result.returncode == 2
    assert result.stderr.startswith("lmerge: line 7: ")
    assert "insert-below-stable" in result.stderr


def test_publishing_names_the_line_in_any_batch_of_a_file(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    rows = [f'{{"op":"insert","payload":"{at}","vs":{at},"ve":{at + 9}}}' for at in range(BATCH_ROWS_MAX + 3)]
    wrong = '{"op":"insert","payload":"B","vs":9,"ve":1}'
    for line in (5, BATCH_ROWS_MAX, BATCH_ROWS_MAX + 1, BATCH_ROWS_MAX + 3):
        path.write_text("\n".join([*rows[: line - 1], wrong, *rows[line:]]))
        result = run("publish", "m", str(path), "-s", served.target, "-r", f"r{line}")
        assert result.returncode == 2
        assert result.stderr.startswith(f"lmerge: line {line}: "), result.stderr


def test_an_offender_before_a_malformed_line_is_the_one_that_is_named(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_text("\n".join([STREAM[0], "", '{"op":"insert","payload":"B","vs":9,"ve":1}', "nonsense"]))
    result = run("publish", "m", str(path), "-s", served.target)
    assert result.returncode == 2
    assert result.stderr.startswith("lmerge: line 3: ")


def test_an_error_for_a_broken_promise_is_that_of_the_server(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_text("\n".join(['{"op":"insert","payload":"twice","vs":5,"ve":9}'] * 2))
    result = run("publish", "m", str(path), "-s", served.target, "-p", "key")
    assert result.returncode == 2, result.stderr
    assert "twice" in result.stderr
    assert "key" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_text_and_count(served: Served) -> None:
    run("publish", "m", "-s", served.target, text="\n".join(STREAM[:1]))
    run("publish", "m", "-s", served.target, "-r", "b", text="\n".join(STREAM[:3]))
    result = run("tail", "m", "-s", served.target, "--format", "text", "--count", "1")
    assert result.returncode == 0
    assert result.stdout.startswith("insert(A, 6, ")


def test_a_merge_that_is_not_there_is_one_line(served: Served) -> None:
    for arguments in (("status", "none"), ("top", "none"), ("subscribe", "none", "--no-wait")):
        result = run(*arguments, "-s", served.target)
        assert result.returncode == 2, arguments
        assert "none" in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_a_port_in_use_is_one_line_and_exit_code_1(served: Served) -> None:
    result = run("serve", "--port", str(served.ports["port"]), "--http-port", "-1")
    assert result.returncode == 1
    assert str(served.ports["port"]) in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_a_server_that_is_gone_is_one_line_and_exit_code_1() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: no other process gets the port, and none answers
        target = f"127.0.0.1:{taken.getsockname()[1]}"
        for arguments in (
            ("status",),
            ("publish", "m", "--give-up-after", "0.2"),
            ("subscribe", "m", "--give-up-after", "0.2"),
        ):
            result = run(*arguments, "-s", target, text=STREAM[0])
            assert result.returncode == 1, (arguments, result.stderr)
            assert target in result.stderr
            assert "Traceback" not in result.stderr
