"""Finding a Java for Spark where the machine has none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lmerge.errors import UsageError
from lmerge.spark import java


def program(folder: Path, version_text: str) -> str:
    """Write a program that prints a version like Java, and its arguments."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'{version_text}\' >&2; else echo "$@"; fi\n')
    path.chmod(0o755)
    return str(path)


def test_the_java_of_java_home_is_taken_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = program(tmp_path, 'openjdk version "21.0.1" 2023-10-17')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.use_java() == found


@pytest.mark.parametrize(
    ("version_text", "why"),
    [('openjdk version "11.0.2"', "is Java 11"), ("Segmentation fault", "prints no version number")],
)
def test_without_a_usable_java_the_error_names_what_to_do(
    version_text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, version_text)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(java, "packaged_java", lambda: None)
    with pytest.raises(UsageError, match=rf"needs Java 17 or newer: .*{why}.*pip install 'lmerge\[java\]'"):
        java.use_java()


def test_the_packaged_java_is_started_without_the_argument_that_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = program(tmp_path / "it's here", 'openjdk version "25"')
    (tmp_path / "it's here" / "lib").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "packaged_java", lambda: real)
    found = java.use_java()
    assert java.use_java() == found
    assert Path(os.environ["JAVA_HOME"], "lib").samefile(tmp_path / "it's here" / "lib")
    done = subprocess.run(
        [found, "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "-Xmx1g a b\n"
    assert java.unusable(found) is None
