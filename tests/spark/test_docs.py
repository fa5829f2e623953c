"""The pages about Spark are right: their snippets run, in order, against real servers; their tables are complete."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from client_world import threaded_world
from spark_world import ROOT, S, recorded, table

from lmerge.client import Security, list_merges
from lmerge.core.elements import Event, Stable
from lmerge.spark.arguments import Payload, Running
from lmerge.spark.options import CONNECTION, SINK, folded
from lmerge.spark.plan.lint_rules import CODES
from lmerge.spark.source import options
from lmerge.spark.source.envelope_rows import ENVELOPES
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

DEADLINE_S = 900.0  # of one block; above the 600 s of a cutover, which then ends with its own message
HOUR_S = 1_700_002_800
# The arguments of publish that group others.
GROUPS: dict[str, Any] = {"payload": Payload, "running": Running, "security": Security}


class Block(NamedTuple):
    """A fenced block. ``name``: of a file, from its first line; empty: the block is run directly."""

    language: str
    text: str
    name: str


def blocks(page: str) -> list[Block]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [
        Block(language, text, (re.findall(r"\A# (\w+\.py)\n", text) or [""])[0])
        for language, text in found
        if language != "mermaid"
    ]


def rows_of_tables(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the tables below a heading, up to the next heading."""
    text = (ROOT / page).read_text()
    below = text[text.index(f"\n{heading}\n") + len(heading) + 2 :]
    part = re.split(r"^#", below, maxsplit=1, flags=re.MULTILINE)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")]


def names_in(rows: list[list[str]]) -> set[str]:
    """Return the names in backticks in the first cells."""
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row[0])}


# The tables.


def test_every_argument_of_publish_has_its_row() -> None:
    from lmerge.spark.publishing import publish

    arguments = set(inspect.signature(publish).parameters) - {"df"}
    groups = {f"{name}.{field.name}" for name, group in GROUPS.items() for field in dataclasses.fields(group)}
    listed = names_in(rows_of_tables("docs/spark.md", "### Arguments of `publish`"))
    assert listed == arguments - set(GROUPS) | groups - {"security.token"}


def test_every_option_of_a_reader_has_its_row() -> None:
    listed = names_in(rows_of_tables("docs/spark.md", "## A merge as a DataFrame")) - set(ENVELOPES)
    accepted = options.COMMON | options.STREAM_ONLY | options.BATCH_ONLY
    assert {folded(name) for name in listed} == {folded(name) for name in accepted - CONNECTION | {"servers", "merge"}}


def test_the_table_of_findings_is_that_of_the_lint(request: pytest.FixtureRequest) -> None:
    """``pytest tests/spark/test_docs.py --rewrite`` rewrites the table."""
    rows = [f"| `{code}` | {' or '.join(found.severities)} | {found.finds} |" for code, found in CODES.items()]
    assert all(row.count("|") == 4 for row in rows), "a cell cannot hold a bar"
    table = "\n".join(["| code | | what it finds |", "|---|---|---|", *rows])
    page = ROOT / "docs" / "spark.md"
    text = page.read_text()
    (before, shown, after) = re.split(r"(^\| code \|.*?\|\n)(?=\n)", text, flags=re.MULTILINE | re.DOTALL)
    if request.config.getoption("--rewrite"):
        page.write_text(f"{before}{table}\n{after}")
        return
    assert shown == f"{table}\n"


def test_the_sink_has_every_option_of_publish() -> None:
    from lmerge.spark.publishing import publish

    arguments = set(inspect.signature(publish).parameters) - set(GROUPS)
    arguments |= {field.name for group in GROUPS.values() for field in dataclasses.fields(group)}
    only_here = {"df", "columns", "round_digits", "stable_lag", "output_mode", "partitions", "allow", "token"}
    assert arguments - only_here <= SINK


# The reference, in one session.


def feed(folder: Path) -> None:
    """Write the rows that the snippets of the reference read."""
    rows: dict[str, list[dict[str, Any]]] = {
        "flights": [{"ts": moment(at), "carrier": "AA"} for at in (0, 1, 100)],
        "sessions": [
            {"user": "u", "ts": moment(0), "began": moment(0)},
            {"user": "u", "ts": moment(9), "ended": moment(9)},
        ],
        "fares": [{"ts": moment(0), "carrier": "AA", "price": 21.355}],
        "elements": [{"kind": "insert", "payload": "x", "vs": 1, "ve": 5}, {"kind": "stable", "vs": 3}],
        "a": [{"kind": "insert", "payload": "x", "vs": 1, "ve": 5, "order": 1}],
        "b": [{"kind": "stable", "vs": 3, "order": 1}],
    }
    for name, lines in rows.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "0.json").write_text("".join(json.dumps(row) + "\n" for row in lines))


def moment(second: int) -> str:
    return f"2023-11-14T23:{second // 60:02}:{second % 60:02}Z"


@pytest.mark.timeout(600)
def test_every_snippet_of_the_reference_runs(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feed(tmp_path / "data")
    for name in "cd":
        (tmp_path / "data" / "files" / name).mkdir(parents=True)
    namespace: dict[str, Any] = {"spark": spark}
    try:
        with threaded_world() as first, threaded_world() as second:
            for block in blocks("docs/spark.md"):
                assert block.language in ("python", "text")
                if block.language == "python":
                    text = block.text.replace("h1:7171,h2:7171", f"{first.target},{second.target}")
                    exec(compile(text.replace("/data/", f"{tmp_path}/data/"), "docs/spark.md", "exec"), namespace)
                    for query in spark.streams.active:
                        query.processAllAvailable()
            assert {one.merge for one in list_merges(second.target)} == {"flights", "sessions", "elements", "skipping"}
            assert [row.carrier for row in namespace["now"].collect()] == ["AA"]
            assert namespace["frozen"].isStreaming
            assert namespace["beating"].isStreaming
            assert namespace["merged"].isStreaming
            assert namespace["both"].isStreaming
    finally:
        for query in spark.streams.active:
            query.stop()
    assert "Published in mode update, this query promises: key" in capsys.readouterr().out


# The whole way of a new user.


class Shell:
    """A user's shell. Its blocks run in one folder, with free ports; processes that they start keep running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: dict[str, str] = {}
        self._groups: list[int] = []
        folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join(folders),
            "PIP_NO_INDEX": "1",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": "",
        }

    def here(self, text: str) -> str:
        """Return the text with free ports of this machine."""
        for port in set(re.findall(r"\b7[127][0-9]{2}\b", text)) - set(self.ports):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.ports[port] = str(free.getsockname()[1])
        return re.sub(r"\b7[127][0-9]{2}\b", lambda found: self.ports[found[0]], text)

    def run(self, text: str) -> str:
        """Run a block and return its output. It must end without an error."""
        log = self.folder / f"block-{len(self._groups)}.txt"
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", self.here(text)],
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self._environment,
                start_new_session=True,
            )
        self._groups.append(process.pid)
        assert process.wait(DEADLINE_S) == 0, f"{text}\n{log.read_text()[-3000:]}\n{self.logs()}"
        return log.read_text()

    def logs(self) -> str:
        """Return the last output of the processes in the background."""
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        for group in reversed(self._groups):
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


@contextmanager
def shell(folder: Path) -> Iterator[Shell]:
    opened = Shell(folder)
    try:
        yield opened
    finally:
        opened.close()


def counted(departures: Path) -> list[Event]:
    """Return the events of the page's query: departures by carrier and five seconds."""
    codec = RowCodec(parse_schema({"carrier": "string?", "count": "int"}))
    rows = [json.loads(line) for path in departures.glob("[0-9]*.json") for line in path.read_text().splitlines()]
    counts = Counter((int(row["ts"] * S) // (5 * S) * 5 * S, row["carrier"]) for row in rows)
    return sorted(
        Event(start, codec.encode({"carrier": carrier, "count": count}), start + 5 * S)
        for (start, carrier), count in counts.items()
    )


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("spark_is_here")
@pytest.mark.skipif(sys.platform != "linux", reason="processes are killed in groups")
def test_a_user_who_follows_the_page_has_a_query_that_never_stops(tmp_path: Path) -> None:
    page = blocks("docs/never-stop.md")
    assert {block.language for block in page} == {"sh", "python"}
    output: list[str] = []
    with ExitStack() as running, shell(tmp_path) as user:
        servers = user.here(re.findall(r'servers="([^"]+)"', "".join(block.text for block in page))[0])
        recorder = running.enter_context(recorded(servers, "departures"))
        for block in page:
            if block.name:
                (tmp_path / block.name).write_text(user.here(block.text))
            else:
                output.append(user.run(block.text))
        elements = list(recorder.elements)
        assert "+---" in output[-1]
    stable = max(element.vc for element in elements if isinstance(element, Stable))
    expected = [event for event in counted(tmp_path / "departures") if event.ve < stable]
    assert [event for event in table(elements) if event.ve < stable] == expected
    assert len(expected) >= 6
    assert (tmp_path / "watched.txt").read_text().count("stable") > 1


# The manifests.


def unknown(spark: Any, text: str) -> list[str]:
    """Return the fields of a manifest that are unknown to Spark's own client for Kubernetes."""
    understood = spark._jvm.io.fabric8.kubernetes.client.utils.Serialization.unmarshal(text)
    return re.findall(r"additionalProperties=\{([^}=]+)=", str(understood.toString()))


def test_sparks_own_client_can_read_the_manifests_for_kubernetes(spark: Any) -> None:
    folder = ROOT / "deploy" / "spark"
    files = ("cluster-mode.yaml", "kubernetes.yaml")
    documents = [text for name in files for text in (folder / name).read_text().split("\n---\n")]
    kinds = [(re.findall(r"^kind: (\w+)$", text, re.MULTILINE) or [""])[0] for text in documents]
    account, shared = ["ServiceAccount", "Role", "RoleBinding"], ["PersistentVolumeClaim", "ConfigMap", "Service"]
    assert kinds == ["Deployment", *account, *shared, "StatefulSet"]
    for text in documents:
        assert unknown(spark, text) == []
    assert unknown(spark, documents[-1].replace("volumeMounts:", "volumeMount:")) == ["volumeMount"]
