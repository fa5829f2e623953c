"""Finds the programs that ``lmerge replica`` can run. Called by ``cli.replica``; ``lmerge_replicas`` declares its own.

A package declares a program as an entry point of the group ``lmerge.replicas``. Its value is a ``ReplicaProgram``::

    [project.entry-points."lmerge.replicas"]
    board = "my_package.programs:BOARD"

So the command line imports no replica, and runs those of any package that is installed beside it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Final, NoReturn

from lmerge.errors import UsageError

GROUP: Final = "lmerge.replicas"


@dataclass(frozen=True)
class ReplicaProgram:
    """A program that publishes a stream as a replica.

    ``summary``: one line for ``lmerge replica list``. ``module``: its ``main`` takes a list of arguments and returns
    the exit code: ``arguments``, and then the options of ``lmerge replica run`` except NAME. It is imported when the
    program runs. ``has_checkpoint``: whether it takes ``--checkpoint``.
    """

    summary: str
    module: str
    arguments: tuple[str, ...] = ()
    has_checkpoint: bool = False


def replica_names() -> list[str]:
    """Return the names of the programs that are installed, in order."""
    return sorted(found.name for found in entry_points(group=GROUP))


def replica_program(name: str) -> ReplicaProgram:
    """Return the program ``name``. Raises UsageError if there is none, or if what is declared is no program."""
    for found in entry_points(group=GROUP, name=name):
        program = found.load()
        if isinstance(program, ReplicaProgram):
            return program
        raise UsageError(f"the entry point {name} of {GROUP} is no ReplicaProgram: {found.value}")
    names = ", ".join(replica_names()) or "none: no installed package declares one"
    raise UsageError(f"there is no replica {name!r:.40}; there are {names}")


def leave(code: int) -> NoReturn:
    """End the process at once: a stream that the server no longer reads must not delay it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
