"""``lmerge token`` and the security options of ``lmerge serve``, as a user types them."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lmerge import clock
from lmerge.cli.main import app
from lmerge.cli.token import expiry_us
from lmerge.errors import Unauthenticated, UsageError

MAKE = ["--role", "publish", "--merge", "flights"]


def run(*arguments: str | Path, **options: Any) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def make(file: Path, name: str, *options: str | Path) -> str:
    result = run("token", "make", name, "--file", file, *MAKE, *options)
    assert result.exception is None, result.output
    return result.stdout.strip()


def test_a_token_is_shown_once_and_can_be_inspected_and_revoked(tmp_path: Path) -> None:
    file = tmp_path / "access.json"
    token = make(file, "a", "--expires", "30d")
    listed = run("token", "list", "--file", file).stdout
    assert token[4:12] in listed
    assert token[13:] not in listed
    inspected = run("token", "inspect", "--file", file, input=f"{token}\n").stdout
    assert inspected == f"token 'a' ({token[4:12]}) is valid\nmay publish in flights as a\n"
    assert run("token", "inspect", "--file", file, env={"LMERGE_TOKEN": token}).stdout == inspected
    assert "is revoked" in run("token", "revoke", token[4:12], "--file", file).stderr
    assert isinstance(run("token", "inspect", "--file", file, input=token).exception, Unauthenticated)
    assert "revoked" in run("token", "list", "--file", file).stdout


def test_a_token_goes_into_a_file_of_its_own_and_over_no_other(tmp_path: Path) -> None:
    file, out = tmp_path / "access.json", tmp_path / "a.token"
    assert make(file, "a", "--out", out) == ""
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    token, before = out.read_text(), file.read_bytes()
    assert run("token", "inspect", "--file", file, "--token-file", out).exception is None
    again = run("token", "make", "b", "--file", file, *MAKE, "--out", out)
    assert isinstance(again.exception, UsageError)
    assert (out.read_text(), file.read_bytes()) == (token, before)
    wrong = run("token", "make", "b", "--file", tmp_path / "nowhere/access.json", *MAKE, "--out", tmp_path / "b.token")
    assert isinstance(wrong.exception, UsageError)
    assert not (tmp_path / "b.token").exists()


def test_a_certificate_gets_rights_without_a_token(tmp_path: Path) -> None:
    file = tmp_path / "access.json"
    assert make(file, "board", "--certificate", "dns:board.example", "--replica", "x*") == ""
    entry = json.loads(file.read_text())["entries"][0]
    assert (entry["certificate"], entry["replicas"]) == ("dns:board.example", ["x*"])


@pytest.mark.parametrize(
    "options",
    [["--expires", "soon"], ["--expires", "0d"], ["--certificate", "board"], ["--expires", "2027-01-01T00:00:00"]],
)
def test_impossible_options_are_refused_and_nothing_is_made(options: list[str], tmp_path: Path) -> None:
    file = tmp_path / "access.json"
    assert isinstance(run("token", "make", "a", "--file", file, *MAKE, *options).exception, UsageError)
    assert not file.exists()


def test_an_expiry_is_a_time_or_a_while_from_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "wall_us", lambda: 1_000_000)
    assert [expiry_us(text) for text in ("1m", "2h", "30d")] == [61_000_000, 7_201_000_000, 2_592_001_000_000]
    assert expiry_us("1970-01-01T00:00:05Z") == 5_000_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "cannot listen on 0.0.0.0"),
        (["--tls-cert", "x"], "tls_cert and tls_key go together"),
        (["--tokens", "/no/such/file"], "access file '/no/such/file' cannot be read"),
        (["--tls-client-ca", "x"], "tls_client_ca needs tls_cert"),
    ],
)
def test_a_server_that_would_leave_a_door_open_does_not_start(options: list[str], message: str) -> None:
    result = run("serve", "--port", "0", "--http-port", "0", *options)
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)


@pytest.mark.parametrize(
    "command", ["publish", "subscribe", "tail", "status", "top", "certify", "cutover", "detach", "release"]
)
def test_every_command_that_connects_to_a_server_takes_security(command: str) -> None:
    text = run(command, "--help", env={"COLUMNS": "200"}).output
    assert all(option in text for option in ("--tls", "--ca", "--cert", "--key", "--token-file", "--insecure"))
    assert "--token " not in text  # command lines are seen by others
