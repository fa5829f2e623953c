"""The page on temporal plans, walked: its query and its data in files, both plans as replicas of one merge."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli_world import LMERGE, Served, run
from replica_world import Reading, replica_process

from lmerge.client.describe import describe_merge

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "temporal.md").read_text()
HOUR = 3_600_000_000
FIRST = 1_357_016_400_000_000  # 2013-01-01T05:00:00Z


def block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_pair_of_plans_of_the_page_gives_one_table(tmp_path: Path) -> None:
    (tmp_path / "query.py").write_text(block("python"))
    (tmp_path / "flights.csv").write_text(block("csv"))
    server = Served(tmp_path, "--merge", "late")
    try:
        with Reading(server.target, "late") as reading, subscribed(server.target) as subscriber:
            commands = re.findall(r"^lmerge (replica run .*?) &$", block("sh"), re.MULTILINE)
            processes = [replica_process(tmp_path, *command.split()[2:], "-s", server.target) for command in commands]
            assert len(processes) == 2
            for process in processes:
                errors = process.communicate(timeout=60)[1]
                assert process.returncode == 0, errors
            assert subscriber.communicate(timeout=60)[0] == block("json")
            assert sorted(reading.table()) == [
                ("EWR", 1, 45, FIRST, FIRST + HOUR),
                ("JFK", 1, 16, FIRST + 2 * HOUR, FIRST + 3 * HOUR),
                ("JFK", 2, 31, FIRST, FIRST + HOUR),
            ]
    finally:
        server.stop()


@contextmanager
def subscribed(target: str) -> Iterator[subprocess.Popen[str]]:
    """Start the page's reader; return it when the server knows it."""
    (command,) = re.findall(r"^lmerge (subscribe .*?) &$", block("sh"), re.MULTILINE)
    process = subprocess.Popen([*LMERGE, *command.split(), "-s", target], stdout=subprocess.PIPE, text=True)
    try:
        while "cli" not in {reader.subscriber for reader in describe_merge(target, "late").subscribers}:
            assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.communicate()


def plan_command(form: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the page's command that shows the plans in this form."""
    (folder / "query.py").write_text(block("python"))
    (command,) = re.findall(rf"`lmerge (plan query.py --show {form}.*?)`", PAGE)
    return run(*command.split(), cwd=folder)


def test_the_command_that_runs_a_plan_prints_what_a_reader_gets(tmp_path: Path) -> None:
    (tmp_path / "flights.csv").write_text(block("csv"))
    printed = plan_command("result", tmp_path)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.splitlines() == block("json").splitlines()[:-1]  # without the token of a merge


def test_the_command_that_explains_the_plans_explains_them(tmp_path: Path) -> None:
    explained = plan_command("explain", tmp_path)
    assert explained.returncode == 0, explained.stderr
    assert "final" in explained.stdout
    assert "algorithm r3" in explained.stdout
