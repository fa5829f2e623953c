"""Every command with standard streams that fail, with wrong paths and with wrong addresses.

Each gives one clear line, a documented exit code and no traceback.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_world import LMERGE, STREAM, Served, run

from lmerge.cli.command_table import PANELS

ELEMENTS = [line.replace('{"op"', '{"input":"a","op"') for line in STREAM]
SESSION = "\n".join(['{"op":"attach","input":"a"}', *ELEMENTS]) + "\n"
# What each command prints to standard output, without end or at once; SERVER and FOLDER are filled in.
PRINTING = {
    "help": ["--help"],
    "version": ["--version"],
    "info": ["info"],
    "test": ["test", "--trees", "1", "--strength", "1"],
    "verify": ["verify", "FOLDER/stream.jsonl"],
    "verify json": ["verify", "FOLDER/stream.jsonl", "--json"],
    "info json": ["info", "--json"],
    "status": ["status", "-s", "SERVER"],
    "status json": ["status", "--json", "-s", "SERVER"],
    "status of one": ["status", "m", "-s", "SERVER"],
    "top": ["top", "m", "--once", "--interval", "0.1", "-s", "SERVER"],
    "certify": ["certify", "m", "-s", "SERVER"],
    "certify json": ["certify", "m", "--json", "-s", "SERVER"],
    "subscribe": ["subscribe", "m", "-s", "SERVER"],
    "subscribe text": ["subscribe", "m", "--format", "text", "-s", "SERVER"],
    "subscribe final": ["subscribe", "m", "--envelope", "final", "-s", "SERVER"],
    "checkpoint": ["checkpoint", "m", "-s", "SERVER"],
    "replay": ["replay", "FOLDER/session.jsonl"],
    "tdb": ["tdb", "FOLDER/stream.jsonl"],
    "replica list": ["replica", "list"],
    "module list": ["module", "list"],
    "detach": ["detach", "m", "out", "--quarantine", "-s", "SERVER"],
    "reset": ["reset", "other", "-s", "SERVER"],
    "token make": ["token", "make", "x", "--file", "FOLDER/access.json", "--role", "status", "--merge", "*"],
    "token list": ["token", "list", "--file", "FOLDER/access.json"],
}
CLOSED = {"stdout": "1>&-", "stderr": "2>&-", "both": "1>&- 2>&-", "all": "0<&- 1>&- 2>&-"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    server = Served(folder, "--merge", "m", "--merge", "other")
    published = run("publish", "m", "-s", server.target, "-r", "a", "-p", "key", text="\n".join(STREAM[:3]))
    assert published.returncode == 0, published.stderr
    yield server
    server.process.kill()
    server.process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "session.jsonl").write_text(SESSION)
    (tmp_path / "stream.jsonl").write_text("\n".join(STREAM))
    made = run("token", "make", "y", "--file", str(tmp_path / "access.json"), "--role", "status", "--merge", "*")
    assert made.returncode == 0, made.stderr
    return tmp_path


def command_of(name: str, served: Served, folder: Path) -> list[str]:
    arguments = [text.replace("SERVER", served.target).replace("FOLDER", str(folder)) for text in PRINTING[name]]
    return [*LMERGE, *arguments]


def one_clear_line(text: str) -> None:
    assert "Traceback" not in text, text
    assert "Exception ignored" not in text, text
    lines = [line for line in text.splitlines() if line.startswith("lmerge: ")]
    assert len(lines) == 1, text


def test_every_command_is_tried_here_or_prints_nothing() -> None:
    printing = {arguments[0] for arguments in PRINTING.values()}
    silent = {
        "demo",
        "serve",
        "publish",
        "tail",
        "query",
        "sink",
        "cutover",
        "relay",
        "release",
        "jumpstart",
        "drain",
    }  # or tried below
    own = {name for table in PANELS.values() for name in table}
    assert own == (printing & own) | silent


def test_a_server_is_drained_though_the_disk_of_who_asks_is_full(tmp_path: Path) -> None:
    server = Served(tmp_path)
    try:
        with open("/dev/full", "w") as full:
            drain = [*LMERGE, "drain", "-s", server.target, "--wait", "0"]
            done = subprocess.run(drain, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        assert done.returncode == 1, done.stderr
        one_clear_line(done.stderr)
        server.process.communicate(timeout=60)
        assert server.process.returncode == 0
    finally:
        server.process.kill()
        server.process.communicate()


@pytest.mark.parametrize("name", PRINTING)
def test_a_full_disk_as_standard_output_is_one_line_and_exit_code_1(name: str, served: Served, folder: Path) -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            command_of(name, served, folder), stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    assert process.returncode == 1, process.stderr
    one_clear_line(process.stderr)
    assert "No space left on device" in process.stderr
    if name == "token make":  # the token was not delivered, so it must not be valid
        entries = json.loads((folder / "access.json").read_text())["entries"]
        assert [entry.get("enabled", True) for entry in entries] == [True, False]


def closings() -> Iterator[Any]:
    """Yield every command with every combination of closed streams.

    Standard output alone runs in the short tests, and so do all combinations of three commands: one that prints text,
    one that prints JSON as it reads, one that connects. The others only differ in how they print.
    """
    for name in PRINTING:
        for closed in CLOSED:
            is_short = closed == "stdout" or name in ("info", "replay", "status")
            yield pytest.param(name, closed, marks=() if is_short else pytest.mark.long)


@pytest.mark.parametrize(("name", "closed"), [*closings()])
def test_closed_streams_are_no_traceback(name: str, closed: str, served: Served, folder: Path) -> None:
    if name.startswith("subscribe") and closed == "stderr":
        pytest.skip("standard output is open, so it does not end")
    process = subprocess.run(
        ["sh", "-c", f'exec "$@" {CLOSED[closed]}', "sh", *command_of(name, served, folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == (0 if closed == "stderr" else 1), (process.stdout, process.stderr)
    if closed == "stdout":
        one_clear_line(process.stderr)


@pytest.mark.parametrize("name", [*(name for name in PRINTING if name.startswith("subscribe")), "top"])
def test_a_reader_that_goes_away_ends_a_quiet_stream(name: str, served: Served, folder: Path) -> None:
    command = command_of(name, served, folder)
    if name == "top":
        command.remove("--once")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline()
            process.stdout.close()  # nothing is ever published again
            code = process.wait(timeout=60)  # before its errors are read: those of a running process do not end
            assert (code, process.stderr.read()) == (0, "")
        finally:
            process.kill()


AWAY = """
import signal, sys, threading
from lmerge import terminal
kill, lost = signal.pthread_kill, []
def kill_but_not_the_first_time(thread, number):
    if lost:
        kill(thread, number)
    lost.append(number)
if sys.argv[1] == "lost":
    signal.pthread_kill = kill_but_not_the_first_time
if sys.argv[1] == "ignored":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
with terminal.until_closed():
    print("a line", flush=True)
    threading.Event().wait()
"""


@pytest.mark.parametrize("signals", ["arrive", "lost", "ignored"])
def test_a_reader_that_goes_away_is_noticed_whatever_becomes_of_a_signal(signals: str) -> None:
    """A signal just before a wait begins does not end the wait; background jobs of a shell ignore Ctrl-C."""
    command = [sys.executable, "-c", AWAY, signals]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline() == "a line\n"
            process.stdout.close()
            assert (process.wait(timeout=60), process.stderr.read()) == (0, "")
        finally:
            process.kill()


BAD_PATHS = {
    "ready file": ["serve", "--port", "0", "--http-port", "-1", "--ready-file", "FOLDER/none/ready.json"],
    "record": ["serve", "--port", "0", "--http-port", "-1", "--record", "FOLDER/none/session.jsonl"],
    "store": ["serve", "--port", "0", "--http-port", "-1", "--store", "FOLDER/session.jsonl/store"],
    "tokens": ["serve", "--port", "0", "--http-port", "-1", "--tokens", "FOLDER/none.json"],
    "certificate": ["serve", "--port", "0", "--tls-cert", "FOLDER/none", "--tls-key", "FOLDER/none"],
    "publish": ["publish", "m", "FOLDER/none"],
    "publish a folder": ["publish", "m", "FOLDER"],
    "checkpoint": ["checkpoint", "m", "-s", "SERVER", "-o", "FOLDER/none/x"],
    "checkpoint, full": ["checkpoint", "m", "-s", "SERVER", "-o", "/dev/full"],
    "jumpstart": ["jumpstart", "m", "-c", "FOLDER/none", "-s", "SERVER"],
    "replay": ["replay", "FOLDER/none"],
    "tdb": ["tdb", "FOLDER/none"],
    "sink": ["sink", "parquet", "m", "FOLDER/session.jsonl/x", "-s", "SERVER"],
    "token list": ["token", "list", "--file", "FOLDER/none.json"],
    "token make": ["token", "make", "x", "--file", "FOLDER/none/a.json", "--role", "status", "--merge", "*"],
    "token out": [
        "token",
        "make",
        "x",
        "--file",
        "FOLDER/access.json",
        "--role",
        "status",
        "--merge",
        "*",
        "--out",
        "FOLDER/none/t",
    ],
    "token inspect": ["token", "inspect", "--file", "FOLDER/access.json", "--token-file", "FOLDER/none"],
    "ca": ["status", "-s", "SERVER", "--ca", "FOLDER/none"],
    "token file": ["status", "-s", "SERVER", "--token-file", "FOLDER/none"],
}


@pytest.mark.parametrize("name", BAD_PATHS)
def test_a_wrong_path_is_one_line_that_names_it(name: str, served: Served, folder: Path) -> None:
    result = run(*[text.replace("SERVER", served.target).replace("FOLDER", str(folder)) for text in BAD_PATHS[name]])
    assert result.returncode in (1, 2), result.stderr
    one_clear_line(result.stderr)
    assert str(folder) in result.stderr or "/dev/full" in result.stderr


ADDRESSES = [
    "127.0.0.1:99999",
    "127.0.0.1:65536",
    "127.0.0.1",
    "127.0.0.1:",
    ":7171",
    "127.0.0.1:x",
    "h h:1",
    "::1:7",
    "[::1]",
    "[::1]:70000",
    "http://merge.invalid:7171",
    "a\x1b[31m:1",
    "a@b:1",
    "127.0.0.1:-1",
    "dns:///h:99999",
]
DIALLING = {
    "publish": ["publish", "m", "-s"],
    "subscribe": ["subscribe", "m", "-s"],
    "status": ["status", "-s"],
    "top": ["top", "m", "-s"],
    "certify": ["certify", "m", "-s"],
    "detach": ["detach", "m", "a", "-s"],
    "release": ["release", "m", "a", "-s"],
    "reset": ["reset", "m", "-s"],
    "cutover": ["cutover", "m", "--from", "a", "--to", "b", "-s"],
    "checkpoint": ["checkpoint", "m", "-s"],
    "jumpstart": ["jumpstart", "m", "FOLDER/stream.jsonl", "-c", "FOLDER/checkpoint.jsonl", "-s"],
    "relay from": ["relay", "--merge", "m", "--to", "merge.invalid:7171", "--as", "a", "--from"],
    "relay to": ["relay", "--merge", "m", "--from", "merge.invalid:7171", "--as", "a", "--to"],
    "replica": ["replica", "run", "conservative", "-s"],
    "sink": ["sink", "parquet", "m", "FOLDER/out", "-s"],
}


# In one process, as most of the time is the start of Python.
DIAL_ALL = """
import contextlib, io, json, os, sys
from lmerge.cli.main import main
for address in sys.argv[2:]:
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        try:
            main([*sys.argv[1].split("|"), address])
        except SystemExit as ended:
            code = ended.code
    os.write(OUT, (json.dumps([address, code, err.getvalue()]) + "\\n").encode())
"""


@pytest.mark.parametrize("name", DIALLING)
def test_no_command_dials_an_address_that_is_none(name: str, folder: Path) -> None:
    (folder / "checkpoint.jsonl").write_text('{"op":"stable","vc":1}\n')
    arguments = [text.replace("FOLDER", str(folder)) for text in DIALLING[name]]
    read, write = os.pipe()  # after an error main closes standard output, so the code writes to a pipe
    code = DIAL_ALL.replace("OUT", str(write))
    process = subprocess.run(
        [sys.executable, "-c", code, "|".join(arguments), *ADDRESSES],
        pass_fds=(write,),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    os.close(write)
    assert process.returncode == 0, process.stderr
    with os.fdopen(read) as answers:
        results = [json.loads(line) for line in answers]
    assert [address for address, _, _ in results] == ADDRESSES
    for address, exit_code, error in results:
        assert exit_code == 2, (address, error)
        one_clear_line(error)
        assert "no address of a server" in error or "HOST:PORT" in error, (address, error)


def test_a_poll_without_events_reports_a_closed_reader_only() -> None:
    """So the thread that watches standard output polls it for no event."""
    read, write = os.pipe()
    poll = select.poll()
    poll.register(write, 0)
    assert poll.poll(0) == []
    os.close(read)
    assert poll.poll(0)[0][1] & (select.POLLERR | select.POLLHUP)
    os.close(write)
