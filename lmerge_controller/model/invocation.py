"""The command and the environment of one replica's process: the same locally and on Kubernetes. Pure.

A process gets its work in two ways, and its program uses one of them:

- by its environment: LMERGE_SERVERS (``HOST:PORT,...``), LMERGE_MERGE, LMERGE_REPLICA, LMERGE_ROLE (``active`` or
  ``observe``), LMERGE_STARTED (when the query was first started, in seconds since 1970: a clock that its replicas
  share), and LMERGE_CHECKPOINT or LMERGE_TABLE if it is jump-started;
- by its command, in which ``{servers}``, ``{merge}``, ``{replica}``, ``{role}``, ``{started}``, ``{checkpoint}`` and
  ``{table}`` are replaced. Other braces stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lmerge_controller.model.query import ReplicatedQuery, VersionSpec

_PLACEHOLDER: Final = re.compile(r"\{(servers|merge|replica|role|started|checkpoint|table)\}")


@dataclass(frozen=True)
class ReplicaWork:
    """What one process works on.

    ``servers``: addresses. ``role``: active or observe. ``started_s``: ``Record.started_s``. ``checkpoint``, ``table``:
    the path that it is jump-started from; empty: it is not.
    """

    servers: tuple[str, ...]
    merge: str
    replica: str
    role: str
    started_s: float
    checkpoint: str = ""
    table: str = ""

    @property
    def values(self) -> dict[str, str]:
        """The texts that replace placeholders, by their names."""
        return {
            "servers": ",".join(self.servers),
            "merge": self.merge,
            "replica": self.replica,
            "role": self.role,
            "started": f"{self.started_s:.3f}",
            "checkpoint": self.checkpoint,
            "table": self.table,
        }


@dataclass(frozen=True)
class Invocation:
    """A process to start: its command (empty: that of its image, on Kubernetes), and what its environment adds."""

    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


def invocation(
    query: ReplicatedQuery,
    version: VersionSpec,
    index: int,
    work: ReplicaWork,
    *,
    python: Sequence[str] = ("python",),
    lmerge: Sequence[str] = ("lmerge",),
) -> Invocation:
    """Return how replica ``index`` of a version is started.

    ``python`` and ``lmerge``: the commands that run a Python file and lmerge's command line where the process will run.
    A relative program is relative to the folder of the query's file.
    """
    run, values = version.run_of(index), work.values
    if run.replica:
        options = ("--server", values["servers"], "--merge", work.merge, "--replica", work.replica, "--role", work.role)
        command = (*lmerge, "replica", "run", run.replica, *options)
    elif run.program:
        command = (*python, _below(query.folder, run.program))
    else:
        command = tuple(filled(text, values) for text in run.command)
    env = {name: filled(text, values) for name, text in version.env}
    env.update(environment(work))
    return Invocation((*command, *(filled(text, values) for text in run.args)), tuple(sorted(env.items())))


def environment(work: ReplicaWork) -> dict[str, str]:
    """Return the variables that describe the work, without those that are empty."""
    return {f"LMERGE_{name.upper()}": text for name, text in work.values.items() if text}


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return ``text`` with its placeholders replaced."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def _below(folder: str, path: str) -> str:
    return path if path.startswith("/") or not folder else f"{folder.rstrip('/')}/{path}"
