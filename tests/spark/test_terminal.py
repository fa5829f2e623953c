"""The output at a terminal, of programs run by the Python of an environment that is not activated."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from client_world import ThreadedWorld, threaded_world
from spark_world import ROOT, recorded

from lmerge.client.admin import detach_input
from lmerge.spark.terminal import own_message

ANSWER_S = 240.0

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import lmerge.spark

spark = (SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2)
         .config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC").getOrCreate())
rows = spark.readStream.schema("ts timestamp, k string, x double").json({folder!r}).withWatermark("ts", "2 seconds")


def run(mode, what=f.count("*").alias("n"), checkpoint={checkpoint!r}):
    counts = rows.groupBy(f.window("ts", "5 seconds"), "k").agg(what)
    writer = lmerge.spark.publish(
        counts, servers={servers!r}, merge={merge!r}, replica={replica!r} + mode, mode=mode, vs="window.start",
        ve="window.end")
    query = writer.option("checkpointLocation", checkpoint and checkpoint + mode).trigger({trigger}).start()
    query.awaitTermination()


{runs}
print("the program ends here")
"""

# Several errors in turn, handled as Python handles one that ends a program. The last one does end it.
MISTAKES = """
for mistake in (dict(mode="update", what=f.sum("x").alias("total")), dict(mode="updates"),
                dict(mode="update", checkpoint="")):
    try:
        run(**mistake)
    except Exception:
        sys.excepthook(*sys.exc_info())
run("update")
"""


@pytest.fixture(scope="module")
def world(spark_is_here: None) -> Iterator[ThreadedWorld]:
    with threaded_world(merges=("departures", "departures-append", "departures-update")) as world:
        yield world


def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment without activation: the first python3 of the PATH is another one, without lmerge.

    The program uses the lmerge of this tree, not an installed one. The other Python ignores PYTHONPATH.
    """
    empty = tmp_path / "bin"
    empty.mkdir(exist_ok=True)
    other = empty / "python3"
    if not other.exists():
        other.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
        other.chmod(0o755)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "SPARK", "VIRTUAL_ENV", "PYTHON", "LMERGE"))
    }
    return kept | {
        "PATH": f"{empty}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def program(tmp_path: Path, world: ThreadedWorld, **over: Any) -> list[str]:
    given = {
        "folder": str(tmp_path / "in"),
        "servers": world.target,
        "merge": "departures",
        "replica": "a-",
        "checkpoint": str(tmp_path / "checkpoint-"),
        "trigger": "availableNow=True",
        "runs": 'run("update")',
        **over,
    }
    path = tmp_path / "replica.py"
    path.write_text(PROGRAM.format(**given))
    (tmp_path / "in").mkdir(exist_ok=True)
    return [sys.executable, str(path)]


def feed(tmp_path: Path, name: str, *seconds: int) -> None:
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    unseen = folder / f".{name}"
    unseen.write_text("".join(f'{{"ts": "2024-05-01T12:00:{s:02}Z", "k": "AA", "x": 1.5}}\n' for s in seconds))
    unseen.rename(folder / name)


def run(command: list[str], tmp_path: Path, **over: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(tmp_path) | over,
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )


@pytest.mark.timeout(600)
def test_a_program_runs_by_a_python_whose_environment_is_not_activated(world: ThreadedWorld, tmp_path: Path) -> None:
    feed(tmp_path, "1.json", 1, 2, 30)
    done = run(program(tmp_path, world, runs='run("append")\nrun("update")'), tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("the program ends here\n")
    assert "ERROR" not in done.stderr
    assert "pandas" not in done.stderr


@pytest.mark.timeout(600)
def test_a_python_without_lmerge_is_named_before_there_is_a_query(world: ThreadedWorld, tmp_path: Path) -> None:
    command = program(tmp_path, world, replica="elsewhere-")
    bare = environment(tmp_path)["PATH"].split(os.pathsep)[0]
    done = run(command, tmp_path, PYSPARK_PYTHON=f"{bare}/python3")
    assert done.returncode == 1
    (sentence,) = re.findall(r"^lmerge: .*$", done.stderr, re.MULTILINE)
    assert f"has no lmerge: set PYSPARK_PYTHON={sys.executable}" in sentence
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def ended(world: ThreadedWorld, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return lmerge's lines and the starts of tracebacks in the output of a program with four errors.

    It makes three mistakes and then runs a query that the merge refuses. One start of Spark is enough for all.
    """
    tmp_path = tmp_path_factory.mktemp("ended")
    feed(tmp_path, "1.json", 1, 2)
    detach_input(world.target, "departures", "late-update", reason="it is to stay out", quarantine=True)
    done = run(program(tmp_path, world, replica="late-", runs=MISTAKES), tmp_path)
    assert done.returncode == 1, done.stderr[-3000:]
    assert "the program ends here" not in done.stdout
    return [line for line in done.stderr.splitlines() if line.startswith(("lmerge:", "  in ", "Traceback"))]


@pytest.mark.timeout(600)
def test_a_mistake_is_one_sentence_and_the_line_that_it_is_about(ended: list[str]) -> None:
    for sentence, place, beginning in zip(
        ended[0:6:2],
        ended[1:6:2],
        (
            "lmerge: this query would not come out the same on every replica",
            "lmerge: cannot publish: mode is 'updates'",
            "lmerge: publishing to lmerge: option checkpoint_location is missing",
        ),
        strict=True,
    ):
        assert sentence.startswith(beginning), ended
        assert re.fullmatch(r"  in .*replica\.py, line \d+: .*", place)


@pytest.mark.timeout(600)
def test_what_ends_a_query_later_begins_with_its_sentence(ended: list[str]) -> None:
    sentence = ended[6]  # after those of the mistakes
    assert sentence.startswith("lmerge: cannot commit batch 0 of replica 'late-update'"), ended
    assert "it is to stay out" in sentence


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_cutover_ends_the_program_without_an_error(world: ThreadedWorld, tmp_path: Path, mode: str) -> None:
    replica, successor, merge = f"v1-{mode}", f"v2-{mode}", f"departures-{mode}"
    feed(tmp_path, "1.json", 1, 2, 20)
    log = tmp_path / "v1.txt"
    with log.open("wb") as file:
        old = subprocess.Popen(
            program(
                tmp_path,
                world,
                merge=merge,
                replica="v1-",
                runs=f"run({mode!r})",
                trigger='processingTime="200 milliseconds"',
            ),
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        with recorded(world.target, merge) as recorder:
            recorder.until(len)
            # As a cutover ends it, with this message.
            detach_input(world.target, merge, replica, reason=f"{successor} has taken its place at 5", quarantine=True)
            for number in range(2, 6):
                feed(tmp_path, f"{number}.json", 20 + number * 6)
            assert old.wait(ANSWER_S) == 0, log.read_text()[-3000:]
    finally:
        old.kill()
        old.wait()
    output = log.read_text()
    assert f"{successor} has taken its place" in output
    assert "the program ends here\n" in output
    assert "ERROR" not in output
    assert "Traceback" not in output


def test_the_message_of_lmerge_is_found_in_an_error_of_spark() -> None:
    wrapped = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted\nTraceback (most recent call "
        'last):\n  File "x.py", line 1\nlmerge.errors.UsageError: the spool is another\'s\n'
    )
    assert own_message(wrapped) == "the spool is another's"
    assert own_message("java.lang.OutOfMemoryError: heap") == ""


def test_the_pandas_that_is_installed_is_what_pyspark_recommends() -> None:
    (extra,) = re.findall(r"^spark = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert '"pandas>=2.2,<3"' in extra
    source = Path(pytest.importorskip("pyspark.sql.pandas.utils").__file__).read_text()
    (not_yet,) = re.findall(r'__version__\) >= LooseVersion\("(\d+)', source)
    assert 2 <= int(version("pandas").split(".")[0]) < int(not_yet)
