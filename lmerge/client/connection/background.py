"""The background thread that runs one asyncio loop for all clients of a process that have no loop of their own.

Called by the blocking clients, by workers that stage parts, and by the connector for Spark. It ends with the process,
and a child process after a fork starts its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from lmerge.errors import UsageError

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
# Loops of the processes that this one was forked from. They are kept: their end would act on the parents' connections.
_parent_loops: list[asyncio.AbstractEventLoop] = []

# How long the end of a process waits for the background thread, which only has to cancel its tasks.
EXIT_S: Final = 2.0


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this process's background thread, which is started if need be."""
    global _loop, _thread
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_run, args=(_loop,), name="lmerge client", daemon=True)
            _thread.start()
        return _loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run the background thread's loop until ``_stop``, then cancel all tasks, so that none complains at exit."""
    asyncio.set_event_loop(loop)
    loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())


def _stop() -> None:
    """End the background thread at exit, while the interpreter can still do so."""
    if _loop is not None and _thread is not None and _thread.is_alive():
        _loop.call_soon_threadsafe(_loop.stop)
        _thread.join(EXIT_S)


def _forget() -> None:
    """Leave the thread to the parent after a fork: it runs there only."""
    global _loop, _thread, _lock
    if _loop is not None:
        _parent_loops.append(_loop)
    _loop = _thread = None
    _lock = threading.Lock()


atexit.register(_stop)
os.register_at_fork(after_in_child=_forget)


def run_blocking(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Run the coroutine from a thread without a loop; return its result. Ctrl-C cancels it. UsageError after a fork."""
    future = None
    try:
        check_loop(loop)
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        return future.result()
    except BaseException:
        if future is None:
            coroutine.close()
        else:
            future.cancel()
        raise


def is_current(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether ``loop`` still runs: after a fork the loop of the parent does not."""
    return loop is _loop


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raise UsageError if ``loop`` belongs to the process that this one was forked from."""
    if loop is not _loop:
        raise UsageError("this publisher or subscriber was opened before this process forked: open another")
