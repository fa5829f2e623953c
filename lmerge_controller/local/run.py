"""The run of a query: the supervisor's process, from its first process to its last. Called by `lmerge up`.

    SIGINT, SIGTERM, SIGHUP    end the run: replicas leave, servers drain, nothing is left
    a second one               kill everything at once
    SIGUSR1                    take the description that ``request.json`` names

A description that cannot be read or run is refused; the run goes on with what it had.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from lmerge.errors import LmergeError, UsageError
from lmerge_controller.local.backend import LocalBackend
from lmerge_controller.local.part_commands import check_commands, check_ports
from lmerge_controller.local.process_table import end_all
from lmerge_controller.local.spawn import LocalSpawner
from lmerge_controller.local.state_folder import StateFolder
from lmerge_controller.local.status_file import LocalStatus
from lmerge_controller.loop import QueryLoop
from lmerge_controller.model.query import ReplicatedQuery
from lmerge_controller.model.reading import read_query
from lmerge_controller.observe.server_calls import ServerCalls

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_query(
    query: ReplicatedQuery, state: StateFolder, *, bound: bool, on_status: Callable[[LocalStatus], None]
) -> None:
    """Keep a query running until a signal ends it. The caller holds the lock of ``state``.

    ``bound``: its processes end if this one is killed. Raises UsageError, before anything is started, if something
    that the query runs is not there.
    """
    check_commands(query, state)
    mark = state.run_mark()
    try:
        async with LocalBackend(query, state, LocalSpawner(mark, bound), on_status) as backend:
            adopted = await backend.adopt(mark)
            check_ports(query, state, frozenset(adopted))
            async with ServerCalls() as servers:
                await _until_ended(backend, servers, state, mark)
    finally:
        end_all(mark, state.recorded())
        state.forget_run()


async def _until_ended(backend: LocalBackend, servers: ServerCalls, state: StateFolder, mark: str) -> None:
    """Run the loop until a signal comes, or a part of the run fails, which is raised."""
    ending = asyncio.Event()

    def on_ending() -> None:
        if ending.is_set():
            end_all(mark, state.recorded())
            os._exit(130)
        ending.set()

    loop = asyncio.get_running_loop()
    for number in ENDING:
        loop.add_signal_handler(number, on_ending)
    loop.add_signal_handler(signal.SIGUSR1, lambda: take_request(backend, state))
    parts: tuple[Coroutine[Any, Any, Any], ...] = (
        QueryLoop(lambda: backend.query, backend, servers).run(),
        backend.supervisor.failed(),
        ending.wait(),
    )
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


def take_request(backend: LocalBackend, state: StateFolder) -> None:
    """Take the description that another `lmerge up` has asked for, or refuse it with a reason."""
    request = state.read("request")
    refusal = ""
    try:
        query = read_query(Path(str(request.get("file", ""))))
        if query.name != state.name:
            raise UsageError(f"it describes {query.name}, and not {state.name}")
        check_commands(query, state)
        check_ports(query, state, backend.running_names)
        backend.query = query
    except LmergeError as problem:
        refusal = str(problem)
    backend.answer(str(request.get("id", "")), refusal)
