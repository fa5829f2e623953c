"""Undoes what a drill has done, from the entries of its journal.

Called by the runner at the end of a drill, however it ends, and by ``lmerge drill undo`` and the next drill for those
that were killed. Every action can be repeated: what is undone already stays as it is.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from lmerge.errors import LmergeError, Unavailable
from lmerge_controller.drill.journal import UndoEntry, UndoJournal
from lmerge_controller.drill.process_marks import is_alive, send_signal

# Folders that a drill makes have this prefix. No other folder is removed, whatever a journal contains.
FOLDER_PREFIX: Final = "lmerge-drill-"
# Of what a command has printed, in an error.
PRINTED_LINES_MAX: Final = 5


def continue_process(pid: int, mark: str) -> None:
    """Let a process that was stopped go on."""
    send_signal(pid, mark, signal.SIGCONT)


def continue_group(pid: int, mark: str) -> None:
    """Let a process that was stopped with all of its group go on."""
    if is_alive(pid, mark):
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGCONT)


def end_process(pid: int, mark: str) -> None:
    """End a process that the drill has started."""
    send_signal(pid, mark, signal.SIGKILL)


def restore_file_limit(pid: int, mark: str, soft: int) -> None:
    """Let a process write files of its former size again."""
    import resource

    if is_alive(pid, mark):
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def remove_folder(path: str) -> None:
    """Remove a folder that the drill has made."""
    folder = Path(path)
    if folder.name.startswith(FOLDER_PREFIX) and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)


def run_command(argv: list[str], timeout_s: float) -> None:
    """Run a command of a described target. Raises Unavailable, with the end of what it printed, if it fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False)
    except OSError as problem:
        raise Unavailable(f"cannot run {shlex.join(argv)}: {problem.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{shlex.join(argv)} has not ended within {timeout_s:g} s") from None
    if done.returncode:
        printed = " / ".join((done.stderr or done.stdout).strip().splitlines()[-PRINTED_LINES_MAX:])
        raise Unavailable(f"{shlex.join(argv)} ended with exit code {done.returncode}: {printed}")


def uncordon_node(node: str, place: dict[str, Any]) -> None:
    """Let pods be scheduled on a node of Kubernetes again. Raises Unavailable."""
    from lmerge_controller.drill.kube_calls import uncordon
    from lmerge_controller.drill.kube_place import KubePlace

    uncordon(KubePlace(**place), node)


ACTIONS: Final[dict[str, Callable[..., None]]] = {
    "continue-process": continue_process,
    "continue-group": continue_group,
    "end-process": end_process,
    "restore-file-limit": restore_file_limit,
    "remove-folder": remove_folder,
    "run-command": run_command,
    "uncordon-node": uncordon_node,
}


def undo_entry(entry: UndoEntry) -> None:
    """Undo one thing. Raises Unavailable if it cannot be undone now."""
    action = ACTIONS.get(entry.action)
    if action is None:
        raise Unavailable(f"the journal names an action {entry.action!r} that this version does not have")
    try:
        action(**entry.values)
    except (OSError, TypeError, ValueError) as problem:
        raise Unavailable(f"cannot undo {entry.action} {shown(entry.values)}: {problem}") from None


def undo_all(journal: UndoJournal, report: Callable[[str], None]) -> list[LmergeError]:
    """Undo what is pending, the newest first; go on after a failure. Return the failures, which stay in the journal."""
    failures: list[LmergeError] = []
    for entry in journal.pending:
        try:
            undo_entry(entry)
        except LmergeError as error:
            failures.append(error)
            continue
        journal.done(entry.number)
        report(f"{entry.action} {shown(entry.values)}")
    return failures


def shown(values: dict[str, Any]) -> str:
    """Return the arguments of an action for people."""
    return " ".join(f"{name}={value}" for name, value in values.items() if name != "mark")
