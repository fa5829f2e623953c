"""Clusters for tests: a Spark of symbolic links, so that PySpark's folder is not written; its daemons; archives."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil
from driver_world import DEADLINE_S
from spark_world import HERE

import lmerge

BACKEND = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


def installed() -> Path:
    """Return the folder of PySpark."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def spark_home(scratch: Path) -> Path:
    """Make a SPARK_HOME whose ``work``, the folder of executors of ``local-cluster``, is in ``scratch``.

    Its Python is the installed one, not the zip beside it, where nothing is compiled: workers have 10 s to start.
    """
    home = scratch / "spark"
    (home / "python" / "lib").mkdir(parents=True)
    for part in installed().iterdir():
        if part.name != "python":
            (home / part.name).symlink_to(part)
    for packed in (installed() / "python" / "lib").iterdir():
        (home / "python" / "lib" / packed.name).symlink_to(installed().parent)
    return home


def environment_of(home: Path) -> dict[str, str]:
    """Return the environment of a driver or a daemon. It finds lmerge as installed for its Python."""
    return {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(HERE),
    }


def executor_of(worker: int) -> psutil.Process:
    """Return the executor to which a Python worker belongs."""
    return next(one for one in psutil.Process(worker).parents() if BACKEND in one.cmdline())


@contextmanager
def standalone(scratch: Path, home: Path, workers: int = 2) -> Iterator[str]:
    """Run a master and its workers as processes, and give the master's URL."""
    with ExitStack() as running:
        master = running.enter_context(_daemon(scratch, home, "master.Master"))
        url = _wait_for_line(master, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            arguments = ("--cores", "1", "--memory", "1g", "--work-dir", str(scratch / f"work-{number}"), url)
            worker = running.enter_context(_daemon(scratch, home, "worker.Worker", *arguments))
            _wait_for_line(worker, "Successfully registered with master")
        yield url


@contextmanager
def _daemon(scratch: Path, home: Path, name: str, *arguments: str) -> Iterator[Path]:
    """Run one of Spark's daemons, and give its log."""
    log = scratch / f"{name}-{len(list(scratch.glob(f'{name}-*')))}.log"
    listening = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *listening, *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment_of(home)},
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def _wait_for_line(log: Path, pattern: str) -> str:
    """Wait until a line of the log matches, and return the match."""
    pause = threading.Event()
    for _ in range(int(DEADLINE_S / 0.05)):
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[found.re.groups and 1]
        pause.wait(0.05)
    raise AssertionError(f"no line has {pattern}: {log.read_text()[-3000:]}")


def archive(scratch: Path) -> Path:
    """Make a Python environment as ``venv-pack`` does, with this lmerge in it. All else is linked to this machine's.

    It is also unpacked beside the archive: the driver runs a Python of the same relative name.
    """
    place = scratch / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    packages = next((place / "lib").glob("python*")) / "site-packages"
    shutil.copytree(Path(lmerge.__file__).parent, packages / "lmerge", ignore=shutil.ignore_patterns("__pycache__"))
    rest = dict.fromkeys([str(installed().parent), str(HERE)])
    (packages / "rest.pth").write_text("\n".join(rest) + "\n")
    packed = scratch / "environment.tar.gz"
    with tarfile.open(packed, "w:gz", compresslevel=1) as tar:
        tar.add(place, ".")
    return packed
