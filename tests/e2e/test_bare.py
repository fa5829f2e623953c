"""The environment of ``scripts/bare.sh``: only what the README requires, whatever this machine has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a folder of links to tools is as Linux has them")


def bare(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in that environment. ``folder`` holds the copy of the project."""
    return subprocess.run(
        [str(ROOT / "scripts" / "bare.sh"), *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "BARE_DIR": str(folder), "PYTHON": sys.executable, **environment},
    )


def test_there_is_neither_rust_nor_java_nor_a_variable_for_them(tmp_path: Path) -> None:
    look = "type -P cargo rustc rustup java javac; env"
    done = bare(
        tmp_path, "bash", "-c", look, JAVA_HOME="/opt/java", LMERGE_REQUIRE_NATIVE="1", CI="true", PIP_INDEX_URL="here"
    )
    variables = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert variables["PATH"] == str(tmp_path / "bin")
    assert not {"JAVA_HOME", "CARGO_HOME", "LMERGE_REQUIRE_NATIVE", "CI", "VIRTUAL_ENV"} & variables.keys()
    assert variables["PIP_INDEX_URL"] == "here"


def test_the_command_runs_in_a_repository_of_the_files_as_they_are(tmp_path: Path) -> None:
    done = bare(tmp_path, "bash", "-c", "git status --short && git ls-files && python3 --version && make -n help")
    assert done.returncode == 0, done.stderr
    assert {"Makefile", "lmerge/__init__.py", "scripts/bare.sh"} <= set(done.stdout.splitlines())
    assert " M " not in done.stdout
    assert not list((tmp_path / "lmerge" / "lmerge").glob("_native*.so"))


def test_a_second_call_keeps_what_the_first_has_made_but_no_file_that_is_gone(tmp_path: Path) -> None:
    bare(tmp_path, "bash", "-c", "mkdir .venv && touch .venv/made && echo gone > lmerge/gone.py && git add --all")
    done = bare(tmp_path, "bash", "-c", "ls .venv && test ! -e lmerge/gone.py")
    assert done.returncode == 0
    assert done.stdout == "made\n"


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_the_commands(tmp_path: Path, code: int) -> None:
    assert bare(tmp_path, "bash", "-c", f"exit {code}").returncode == code


def test_without_a_command_it_prints_its_purpose(tmp_path: Path) -> None:
    done = bare(tmp_path)
    assert done.returncode == 2
    assert "runs COMMAND in the environment that README requires" in done.stderr


SET_UP = """
SHELL := /bin/bash
include {makefile}
good:
	@$(call quietly,bash -c 'echo chatter; echo warning >&2') && echo went on
bad:
	@$(call quietly,bash -c 'echo chatter; echo the reason >&2; exit 3') && echo went on
"""


def test_what_a_set_up_prints_is_shown_where_it_fails_and_only_there(tmp_path: Path) -> None:
    (tmp_path / "m.mk").write_text(SET_UP.format(makefile=ROOT / "Makefile"))
    make = ["make", "--no-print-directory", "-C", str(ROOT), "-f", str(tmp_path / "m.mk")]
    good = subprocess.run([*make, "good"], capture_output=True, text=True, check=False)
    assert (good.returncode, good.stdout, good.stderr) == (0, "went on\n", "")
    bad = subprocess.run([*make, "bad"], capture_output=True, text=True, check=False)
    assert bad.returncode != 0
    assert "went on" not in bad.stdout
    assert "chatter" in bad.stderr
    assert "the reason" in bad.stderr
