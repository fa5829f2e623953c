"""A virtual environment for each peer, under build/peers, so that lmerge's own does not change."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).parents[2] / "build" / "peers"
INSTALLED = "installed.txt"


@dataclass(frozen=True)
class Environment:
    """The dependencies of a peer's programs: packages of PyPI, and jars of Maven as group:artifact:version."""

    name: str
    packages: tuple[str, ...]
    jars: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return HOME / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("spark", ("pyspark==4.3.0",)),
        Environment(
            "flink",
            ("apache-flink==2.3.0",),
            (
                "org.apache.flink:flink-sql-parquet:2.3.0",
                "org.apache.hadoop:hadoop-client-api:3.4.1",
                "org.apache.hadoop:hadoop-client-runtime:3.4.1",
            ),
        ),
        Environment("bytewax", ("bytewax==0.21.1", "numpy==2.4.6", "pyarrow==26.0.1")),
        Environment("polars", ("polars==2.1.0", "pyarrow==26.0.1")),
        Environment("pathway", ("pathway==0.33.0", "pyarrow==25.0.1")),
    )
}


def install(environment: Environment) -> str:
    """Install the environment, once for these versions. Return ``""``, or why it does not install here."""
    required = "\n".join(environment.packages + environment.jars)
    note = environment.folder / INSTALLED
    if note.exists() and note.read_text() == required:
        return ""
    if environment.jars and not (shutil.which("mvn") and shutil.which("java")):
        return "it needs java and mvn"
    shutil.rmtree(environment.folder, ignore_errors=True)
    print(f"  {environment.name}: installing {', '.join(environment.packages)}", flush=True)
    steps = [
        [sys.executable, "-m", "venv", str(environment.folder)],
        [str(environment.python), "-m", "pip", "install", "--quiet", *environment.packages],
        *(
            [
                "mvn",
                "-q",
                "-B",
                "dependency:copy",
                f"-Dartifact={jar}",
                f"-DoutputDirectory={environment.folder / 'jars'}",
            ]
            for jar in environment.jars
        ),
    ]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = (done.stderr + done.stdout).strip().splitlines()
            return next((line for line in lines if "ERROR" in line), lines[-1] if lines else f"exit {done.returncode}")
    note.write_text(required)
    return ""
