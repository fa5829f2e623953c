"""``lmerge up``, ``down``, ``ps`` and ``logs``: a merged query as processes of this machine."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lmerge import terminal
from lmerge.errors import UsageError

if TYPE_CHECKING:
    from lmerge_controller.local.state_folder import StateFolder
    from lmerge_controller.local.status_file import LocalStatus

StateOption = Annotated[
    Path, typer.Option("--state", metavar="DIR", help="Where runs keep their files, a folder for each query.")
]
QueryName = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="Name of the query; without it, the only one that there is.")
]
DEFAULT_STATE: Final = Path(".lmerge")
LOG_LOOK_S: Final = 0.2


def up(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The description, a ReplicatedQuery in YAML.")],
    background: Annotated[
        bool, typer.Option("--background", "-b", help="Return when the stream is merged; the run goes on.")
    ] = False,
    state: StateOption = DEFAULT_STATE,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="With --background: how long to wait for the stream.")
    ] = 60.0,
    detached: Annotated[bool, typer.Option("--detached", hidden=True)] = False,
) -> None:
    """Run a merged query on this machine: its servers and its replicas, kept running. Ctrl-C ends all of it.

    Example: lmerge up examples/flights.yaml

    If the query is up already, the running one takes the description, and applies what differs.
    """
    from lmerge_controller.local.other_runs import hand_over, start_in_background
    from lmerge_controller.local.part_commands import check_commands
    from lmerge_controller.local.state_folder import QueryIsUp, StateFolder
    from lmerge_controller.model.reading import read_query

    query = read_query(file)
    folder = StateFolder(state / query.name)
    folder.make()
    check_commands(query, folder)
    if folder.holder() is not None:
        hand_over(file, folder, terminal.line_at_once, wait)
    elif background:
        start_in_background(file, folder, terminal.line_at_once, wait)
    else:
        try:
            _run(query, folder, is_detached=detached)
        except QueryIsUp:  # another one has begun at the same moment
            hand_over(file, folder, terminal.line_at_once, wait)


def _run(query: Any, folder: StateFolder, *, is_detached: bool) -> None:
    from lmerge_controller.local.progress import progress
    from lmerge_controller.local.run import run_query
    from lmerge_controller.local.status_file import LocalStatus

    shown = LocalStatus(query.name)

    def show(status: LocalStatus) -> None:
        nonlocal shown
        before, shown = shown, status
        if not is_detached:
            for line in progress(before, status):
                terminal.line_at_once(line)

    with folder.locked():
        asyncio.run(run_query(query, folder, bound=not is_detached, on_status=show))
    if not is_detached:
        terminal.line(f"{query.name} has ended; logs are in {folder.path / 'logs'}")


def down(
    name: QueryName = None,
    state: StateOption = DEFAULT_STATE,
    everything: Annotated[bool, typer.Option("--all", help="All queries of the state folder.")] = False,
) -> None:
    """End a run and all of its processes, also those that a killed `lmerge up` has left.

    Example: lmerge down flights

    Logs stay, and what servers have stored.
    """
    from lmerge_controller.local.other_runs import end_run
    from lmerge_controller.local.state_folder import state_folders

    ended = 0
    for folder in state_folders(state) if everything else [_only(name, state)]:
        was_up, left = end_run(folder)
        ended += was_up or bool(left)
        if left:
            numbers = ", ".join(map(str, left))
            terminal.line_at_once(f"{folder.name}: ended what was left behind: processes {numbers}")
        elif was_up:
            terminal.line_at_once(f"{folder.name} has ended")
        elif not everything:
            terminal.line_at_once(f"{folder.name} was not up")
    if everything and not ended:
        terminal.line_at_once("no query was up")


def ps(
    state: StateOption = DEFAULT_STATE,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object for each query.")] = False,
) -> None:
    """Show the runs on this machine: state, servers, replicas, and what was decided last.

    Example: lmerge ps
    """
    from lmerge_controller.local.other_runs import status_in
    from lmerge_controller.local.state_folder import state_folders
    from lmerge_controller.local.view import run_view

    folders = [folder for folder in state_folders(state) if folder.read("run")]
    if as_json:
        for folder in folders:
            holder = folder.holder()
            supervisor = None if holder is None else holder.pid
            terminal.json_lines(json.dumps({"supervisor": supervisor, **status_in(folder).as_json()}) + "\n")
        return
    console = terminal.console()
    if not folders:
        terminal.line(f"no query is up in {str(state)!r}")
    for folder in folders:
        terminal.table(console, run_view(status_in(folder), folder.holder(), time.time()))


def logs(
    process: Annotated[
        str, typer.Argument(metavar="PROCESS", help="A process in `lmerge ps`; up: the supervisor's decisions.")
    ],
    name: Annotated[str | None, typer.Option("--query", "-q", metavar="NAME", help="Name of the query.")] = None,
    state: StateOption = DEFAULT_STATE,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The last lines to show.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")] = False,
) -> None:
    """Show the log of a process that `lmerge up` runs, or has run.

    Example: lmerge logs flights-v1-0 -f
    """
    folder = _only(name, state)
    log = folder.log(process)
    if not log.path.is_file():
        there = ", ".join(sorted(path.stem for path in log.path.parent.glob("*.log"))) or "none"
        raise UsageError(f"{folder.name} has no log of {process!r:.60}; there are {there}")
    for line in log.last_lines(lines):
        terminal.line(line)
    if follow:
        with terminal.until_closed():
            _follow(log.path)


def _follow(path: Path) -> None:
    """Print what is appended to a log, until Ctrl-C. A log that became shorter was emptied, and begins anew."""
    position = path.stat().st_size
    while True:
        size = path.stat().st_size if path.exists() else 0
        if size < position:
            position = 0
        if size > position:
            with path.open("rb") as file:
                file.seek(position)
                data = file.read(size - position)
            whole = data[: data.rfind(b"\n") + 1]
            terminal.lines(whole.decode("utf-8", "replace"))
            terminal.flush()
            position += len(whole)
        time.sleep(LOG_LOOK_S)


def _only(name: str | None, base: Path) -> StateFolder:
    """Return the folder of a query, or of the only one. Raises UsageError."""
    from lmerge_controller.local.state_folder import state_folders

    folders = {folder.name: folder for folder in state_folders(base)}
    names = ", ".join(folders) or "none"
    if name is None and len(folders) != 1:
        raise UsageError(f"name a query of {str(base)!r}; there are {names}")
    found = folders.get(name) if name is not None else next(iter(folders.values()))
    if found is None:
        raise UsageError(f"there is no query {name!r:.60} in {str(base)!r}; there are {names}")
    return found
