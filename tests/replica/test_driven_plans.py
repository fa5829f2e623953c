"""The process of a plan: driven by a parent, with metrics, and stopped in the middle of a step."""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_world import Served
from replica_world import Reading, counts_by_window, flight_rows, replica_process, write_csv, write_query

from lmerge.client import Publisher
from lmerge.replica import PythonItems, Query, ReplicaOptions, ReplicaRun, in_order
from lmerge.replica.slow_steps import StepWatch
from lmerge.temporal.expressions.functions import FunctionRegistry
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.stream import Stream, source

ROWS = flight_rows(300)
SECONDS = """
    from lmerge.replica import PythonItems, Query, in_order
    from lmerge.temporal.plan.stream import source

    flights = source("flights", {"origin": "string"})
    rows = [{"at": 1_600_000_000 + at, "origin": "JFK"} for at in (0, 1)]
    query = Query({"p": flights}, {"flights": PythonItems(items=rows, time="at", progress=in_order())})
"""
TAKEN = re.compile(r'^lmerge_plan_source_elements_total\{merge="m",replica="a",source="flights"\} ', re.MULTILINE)
PUBLISHED = re.compile(r'^lmerge_publisher_elements_total\{merge="m",replica="a"', re.MULTILINE)
LATE = SECONDS.replace("in_order()", "after(0)").replace("in_order", "after").replace("(0, 1)", "(5, 1, 6, 2)")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    folder = tmp_path / "served"
    folder.mkdir()
    server = Served(folder, "--merge", "m")
    try:
        yield server
    finally:
        server.stop()


def started(folder: Path, served: Served, *options: str, **pipes: Any) -> subprocess.Popen[str]:
    return replica_process(folder, "query.py", "-s", served.target, "-m", "m", "-r", "a", *options, **pipes)


def test_a_parent_drives_a_plan(served: Served, tmp_path: Path) -> None:
    write_csv(tmp_path / "flights.csv", ROWS)
    write_query(tmp_path)
    with Reading(served.target, "m") as reading:
        process = started(
            tmp_path, served, "--plan", "eager", "--supervised", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        messages = (json.loads(line) for line in process.stdout)
        assert next(messages) == {"event": "loaded"}
        process.stdin.write('{"start": 0}\n')
        process.stdin.flush()
        assert next(messages) == {"event": "joined", "join_at": None}
        assert next(messages) == {"event": "done"}
        assert reading.table() == counts_by_window(ROWS)
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == 0


def test_a_parent_learns_where_a_plan_has_joined(served: Served, tmp_path: Path) -> None:
    write_csv(tmp_path / "flights.csv", ROWS)
    write_query(tmp_path)
    schema = {"origin": "string", "n": "int"}
    with Publisher(served.target, "m", "other", properties=["key"], schema=schema) as other:
        other.stable(100)
        other.flush()
        process = started(
            tmp_path, served, "--plan", "eager", "--supervised", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write('{"start": 0}\n')
        process.stdin.flush()
        messages = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.communicate(timeout=60)
    assert messages == [{"event": "loaded"}, {"event": "joined", "join_at": 100}]


def test_a_plan_exports_metrics(served: Served, tmp_path: Path) -> None:
    write_csv(tmp_path / "flights.csv", ROWS)
    write_query(tmp_path)
    # Stopped only by the test: a thousandth of the speed of its times.
    process = started(tmp_path, served, "--plan", "eager", "--metrics-port", "0", "--speed", "1e-5")
    try:
        assert process.stderr is not None
        url = next(found[0] for line in process.stderr if (found := re.findall(r"http://\S+/metrics", line)))
        text = ""
        while not (TAKEN.search(text) and PUBLISHED.search(text)):  # the address is reported before the plan is loaded
            with urllib.request.urlopen(url, timeout=60) as answer:
                text = answer.read().decode()
    finally:
        process.kill()
        process.communicate()


def test_a_stream_in_seconds_is_replayed_as_it_was(served: Served, tmp_path: Path) -> None:
    """Two events lie one unit apart, and a millionth of a million units a second is one a second."""
    write_query(tmp_path, SECONDS)
    process = started(tmp_path, served, "--speed", "0.000001", "--start", "0")
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 0, errors
    assert errors == "a: everything was published: plan p, 3 items of its sources\n"


def test_the_last_line_counts_late_events(served: Served, tmp_path: Path) -> None:
    write_query(tmp_path, LATE)
    errors = started(tmp_path, served).communicate(timeout=60)[1]
    assert errors.endswith("a: everything was published: plan p, 5 items of its sources, 2 late events dropped\n")


def test_a_plan_publishes_raw_payloads(served: Served, tmp_path: Path) -> None:
    write_query(tmp_path, SECONDS)
    with Reading(served.target, "m") as reading:
        process = started(tmp_path, served, "--raw")
        assert process.communicate(timeout=60)[1].startswith("a: everything was published")
        assert {event.payload for event in reading.complete().events()} == {b"JFK"}


class Hanging:
    """A function of a user that does not return until the test lets it."""

    def __init__(self) -> None:
        self.is_called, self.goes_on = threading.Event(), threading.Event()
        registry = FunctionRegistry()

        @registry.scalar(["int"], "bool", name="hangs")
        def hangs(x: int) -> bool:
            self.is_called.set()
            self.goes_on.wait(60)
            return True

        self.stream = source("numbers", {"x": "int"}).where(hangs(col.x)).named("slow")

    def items(self) -> Iterator[Any]:
        self.is_called.set()
        self.goes_on.wait(60)
        yield {"x": 1, "at": 1}


def doing_of(served: Served, hanging: Hanging, stream: Stream, items: Any) -> tuple[str, str]:
    """Return what a run does while its user's code hangs, and behind its end."""
    query = Query({"p": stream}, {"numbers": PythonItems(items=items, time="at", progress=in_order())})
    options = ReplicaOptions()
    with ReplicaRun(query, None, servers=served.target, merge="m", replica="a", options=options) as run:
        thread = threading.Thread(target=run.run)
        thread.start()
        assert hanging.is_called.wait(60)
        found = run.doing()
        hanging.goes_on.set()
        thread.join(60)
    return found, run.doing()


def test_a_run_that_hangs_names_the_operator(served: Served) -> None:
    hanging = Hanging()
    found, behind = doing_of(served, hanging, hanging.stream, [{"x": 1, "at": 1}])
    assert found == "in the middle of a step of a: plan 'p', operator 'slow' at source 'numbers'"
    assert behind == ""


def test_a_run_that_hangs_in_its_source_names_it(served: Served) -> None:
    hanging = Hanging()
    found, _ = doing_of(served, hanging, source("numbers", {"x": "int"}), hanging.items)
    assert found == "in the middle of a step of a: plan 'p', source 'numbers'"


class Noted(logging.Handler):
    """Lets a user's code go on when it was reported twice, as a step that is slow and as one that is slower."""

    def __init__(self, hanging: Hanging) -> None:
        super().__init__()
        self._hanging = hanging
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        if len(self.texts) == 2:
            self._hanging.goes_on.set()


def test_a_step_that_does_not_end_is_logged_with_its_operator(served: Served) -> None:
    hanging, log = Hanging(), logging.getLogger("lmerge.replica.slow_steps")
    query = Query({"p": hanging.stream}, {"numbers": PythonItems(items=[{"x": 1, "at": 1}], time="at")})
    noted = Noted(hanging)
    log.addHandler(noted)
    try:
        with ReplicaRun(query, None, servers=served.target, merge="m", replica="a", options=ReplicaOptions()) as run:
            run.steps = StepWatch(run.doing, 0.01)
            assert run.steps.seconds() == 0
            assert run.run()
            assert run.steps.seconds() == 0
    finally:
        log.removeHandler(noted)
    doing = r"in the middle of a step of a: plan 'p', operator 'slow' at source 'numbers'"
    first, second = noted.texts[:2]
    assert re.fullmatch(rf"for \d+ s {doing}", first)
    assert re.fullmatch(rf"for \d+ s {doing}", second)


def test_a_run_that_waits_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    looked = threading.Semaphore(0)

    def doing() -> str:
        looked.release()
        return ""

    with StepWatch(doing, 0.001):
        assert looked.acquire(timeout=60)
        assert looked.acquire(timeout=60)
    assert caplog.records == []


DRIVEN = """
import os, signal, threading
from lmerge.replica.driven import stop_on_signals
stop_on_signals(limit_s=0.001, doing=lambda: {doing!r})
os.kill(os.getpid(), signal.{signal})
threading.Event().wait()
"""


@pytest.mark.parametrize(
    ("doing", "message"),
    [("in the operator 'slow'", "in the operator 'slow'"), ("", "before a server had merged everything")],
)
def test_a_process_that_does_not_stop_ends_with_what_it_does(doing: str, message: str) -> None:
    text = DRIVEN.format(doing=doing, signal=signal.SIGTERM.name)
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (130, f"stopped {message}\n")
