"""The process on the driver that is connected to the servers, and how Spark's own processes reach it.

Spark gives a sink no process of its own. ``commit`` runs in a Python worker from a pool that all sinks of the session
share. With two queries the next commit comes to another worker, and workers that were idle for a minute are ended. A
publisher's connection must outlive that. So each query has an *agent*, a process that owns the publisher. The start of
a query starts it (``starts``), or the first commit where the start is not seen. Every commit is handed to it:

    driver's Python ────────────────────── attach ────────┐
    driver JVM ── pyspark.daemon ── worker: commit(N)   ──┐
                              └──── worker: commit(N+1) ──┤  a socket in a folder of the user's own
                  agent (a session of its own) ───────────┘  ── connections to the merge's servers

The agent ends when the query does (``leave``, see ``query_ends``). It also ends with its owner, even if that is killed:
the JVM, or, if the start is not seen, the parent process of Spark's workers, which ends when the JVM does. Before it
ends it publishes what was committed. An agent that dies loses nothing: the next commit starts another, which begins
with the live events of the spool.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import select
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Final

from lmerge import errors
from lmerge.client.connection.faults import error_of_kind
from lmerge.errors import LmergeError, ServerGone, UsageError
from lmerge.spark.sink.committer import BatchCommitter, Commit, Committed, RunStart, write_log

# A path of a socket may have about 100 bytes.
_PATH_BYTES_MAX: Final = 90
# How often the agent checks its owner on systems that cannot report the end of a process, and how often who waits for
# an attach checks whether its query goes on.
_LOOK_S: Final = 0.5
# A new agent has to load the client and to bind its socket: seconds on a machine that is busy starting Spark.
_START_S: Final = 60.0
# An agent that dies in the middle of a commit is replaced this often. After that something kills every one of them.
_ATTEMPTS: Final = 3


# Functions for Spark's processes.


def commit(query: str, owner: int, request: Commit) -> Committed:
    """Have the query's agent commit a batch. Raises the agent's LmergeError.

    The agent is started if there is none. It ends with the process ``owner``.
    """
    path = socket_path(query, owner)
    for _ in range(_ATTEMPTS):
        try:
            with _connected(path, owner) as agent:
                agent.send(("commit", request))
                reply = agent.recv()
        except (EOFError, OSError):
            continue  # it died or was about to end: another agent continues from the spool
        return _checked(reply, query, request)
    raise _no_reply(f"cannot commit batch {request.batch} of {request.options}")


def attach(query: str, owner: int, request: RunStart, is_running: Callable[[], bool]) -> Committed | None:
    """Have the query's agent attach to the merge, and wait for it. Raises the agent's LmergeError.

    The agent is started as by ``commit``. Returns None as soon as the query does not run any more. The agent may then
    have been started: see ``leave``.
    """
    path = socket_path(query, owner)
    for _ in range(_ATTEMPTS):
        try:
            with _connected(path, owner) as agent:
                if not is_running():  # the start has taken a while, and another run may use the agent by now
                    return None
                agent.send(("attach", request))
                while not agent.poll(_LOOK_S):
                    if not is_running():
                        return None
                reply = agent.recv()
        except (EOFError, OSError):
            continue
        return _checked(reply, query, request)
    raise _no_reply(f"cannot attach {request.options}")


def leave(query: str, run: str) -> int:
    """Have the query's agents publish what was committed, and end. Return how many agents were reached.

    Call this when the run of the query has ended. Agents of another run ignore it. Does not wait.
    """
    reached = 0
    for path in runtime_folder().glob(f"{_folded(query)}-*"):
        with contextlib.suppress(OSError, EOFError), Client(str(path), family="AF_UNIX") as agent:
            agent.send(("leave", run))
            reached += 1
    return reached


def end_of(query: str, run: str) -> str:
    """Return why this run of the query should end although nothing has failed; "": it should not."""
    try:
        ended = json.loads(_end_path(query).read_text())
    except (OSError, ValueError):
        return ""
    return str(ended["words"]) if ended["run"] in (None, run) else ""


def forget_end(query: str) -> None:
    """Remove the record of why the query should end, because it has ended."""
    _end_path(query).unlink(missing_ok=True)


def _checked(reply: object, query: str, request: Commit | RunStart) -> Committed:
    """Return the reply, after noting that the query should end if it has that. Raises the reply's error."""
    if not isinstance(reply, Committed):
        raise _error_of(reply)
    if reply.ended:
        _write_end(query, request, reply.ended)
    return reply


def _no_reply(what: str) -> ServerGone:
    return ServerGone(
        f"{what}: the process that is connected to the servers ended {_ATTEMPTS} times without a reply; the driver's "
        "log has its last messages"
    )


def _write_end(query: str, request: Commit | RunStart, reason: str) -> None:
    path = _end_path(query)
    unseen = path.with_suffix(f".{os.getpid()}")
    unseen.write_text(json.dumps({"run": request.run, "words": f"{request.options}: {reason}"}))
    unseen.replace(path)


def _end_path(query: str) -> Path:
    return runtime_folder() / f"{_folded(query)}.ended"


def runtime_folder() -> Path:
    """Return the folder of the sockets, which only this user can enter. Raises UsageError if another user made it."""
    base = tempfile.gettempdir()
    folder = Path(base if len(base) < _PATH_BYTES_MAX - 50 else "/tmp", f"lmerge-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise UsageError(f"cannot use {folder}: it must be a folder that only this user can enter")
    return folder


def socket_path(query: str, owner: int) -> Path:
    """Return the socket of the agent of ``query`` that ends with the process ``owner``."""
    return runtime_folder() / f"{_folded(query)}-{owner}"


def _folded(query: str) -> str:
    return hashlib.sha256(query.encode()).hexdigest()[:24]


@contextlib.contextmanager
def _connected(path: Path, owner: int) -> Iterator[Connection]:
    """Connect to the agent, and start one if none answers. Raises OSError."""
    try:
        connection = Client(str(path), family="AF_UNIX")
    except OSError:
        connection = _started(path, owner)
    with connection:
        yield connection


def _started(path: Path, owner: int) -> Connection:
    """Start an agent, unless another process has just done so, and connect to it. Raises OSError."""
    # The start of the query and its first commit may come at once. An agent whose socket is replaced would never end.
    with path.with_name(f"{path.name.partition('-')[0]}.starting").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):
            return Client(str(path), family="AF_UNIX")
        _start(path, owner)
        return Client(str(path), family="AF_UNIX")


def _start(path: Path, owner: int) -> None:
    """Start an agent that ends with ``owner``. Raises OSError if it does not start."""
    path.unlink(missing_ok=True)
    # A session of its own: when Spark's daemon ends, it signals its whole group, and the agent still has to publish.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-m", "lmerge.spark.sink.agent", str(path), str(owner)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=environment,
    )
    threading.Thread(target=process.wait, daemon=True).start()  # its end leaves no zombie
    assert process.stdout is not None
    with process.stdout:
        ready, _, _ = select.select([process.stdout], [], [], _START_S)
        if not ready or process.stdout.read(1) != b"+":
            process.kill()
            raise ServerGone("the process that connects to the servers did not start; the driver's log has the reason")


def _error_of(reply: object) -> LmergeError:
    """Return the agent's error as an error of this process."""
    kind, message = reply if isinstance(reply, tuple) else ("LmergeError", repr(reply))
    found: type[LmergeError] = getattr(errors, kind, LmergeError)
    return error_of_kind(found, message)


# The agent itself.


class Agent:
    """Serves one query until the query or the owner ends."""

    def __init__(self, path: str) -> None:
        self._committer = BatchCommitter()
        self._listener = Listener(path, family="AF_UNIX", backlog=8)
        self._ended = threading.Event()
        self._is_gone = threading.Event()  # the socket is

    def run(self, owner: int) -> None:
        """Serve until the query or the owner ends. Then publish what was committed, and leave."""
        for work in (self._accept, lambda: self._watch(owner)):
            threading.Thread(target=work, daemon=True).start()
        self._ended.wait()
        # First the socket: a later commit then starts another agent, which fences this one's publisher.
        with contextlib.suppress(OSError):
            self._listener.close()
        self._is_gone.set()
        try:
            self._committer.close()
        except LmergeError as error:
            write_log(f"could not leave: {error}")

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                if self._ended.is_set():
                    return
                continue  # the caller has gone
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with connection, contextlib.suppress(EOFError, OSError):
            request, content = connection.recv()
            if request == "leave":
                if self._committer.run in (None, content):
                    self._committer.interrupt()
                    self._ended.set()
                return
            reply = None if self._ended.is_set() else self._answered(request, content)
            # The end of one run may meet the attach of the next one, which then has to reach another agent.
            if reply is None or (request == "attach" and self._ended.is_set()):
                self._is_gone.wait()
            else:
                connection.send(reply)

    def _answered(self, request: str, content: Any) -> Committed | tuple[str, str]:
        """Return the result of the request, or the class and message of its error."""
        try:
            return self._committer.attach(content) if request == "attach" else self._committer.commit(content)
        except LmergeError as error:
            return type(error).__name__, str(error)
        except Exception as error:
            batch = f"batch {content.batch} of " if isinstance(content, Commit) else ""
            return "LmergeError", f"cannot {request} {batch}{content.options}: {error!r}"

    def _watch(self, owner: int) -> None:
        wait_for_end(owner)
        self._committer.interrupt()
        self._ended.set()


def wait_for_end(pid: int) -> None:
    """Return when the process has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not Linux, or an old one
        pause = threading.Event()
        while _is_there(pid):
            pause.wait(_LOOK_S)
        return
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.poll()


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def main(path: str, owner: str) -> None:
    """Run the process ``python -m lmerge.spark.sink.agent SOCKET OWNER``."""
    agent = Agent(path)
    sys.stdout.write("+")
    sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a reader of the driver's output must not wait for the agent
    agent.run(int(owner))


if __name__ == "__main__":
    main(*sys.argv[1:])
