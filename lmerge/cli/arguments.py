"""Ports, choices, arguments and options that several commands share, each defined once.

The options of groups, such as those of security, are added to a command by ``connection`` and ``serve_options``.
Imports no gRPC, so that ``replay`` and ``tdb`` start fast.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final

import typer

from lmerge.core.policy import POLICY_HELP

DEFAULT_HTTP_PORT: Final = 7172


class AlgorithmChoice(str, Enum):
    """Values of ``--algorithm``: ``auto`` or an algorithm of the paper."""

    AUTO = "auto"
    R0 = "r0"
    R1 = "r1"
    R2 = "r2"
    R3 = "r3"
    R4 = "r4"


class EngineChoice(str, Enum):
    """Values of ``--engine``: which implementation of the core runs."""

    AUTO = "auto"
    PYTHON = "python"
    NATIVE = "native"


class RoleChoice(str, Enum):
    """Values of ``--role``: whether a replica counts, or is only compared until it is promoted."""

    ACTIVE = "active"
    OBSERVE = "observe"


class IfTooOld(str, Enum):
    """Values of ``--if-too-old``: what a reader does when no server retains the output that follows its token."""

    ERROR = "error"
    SNAPSHOT = "snapshot"


# Of commands that connect to a server.
Merge = Annotated[str, typer.Argument(help="Name of the merge.")]
Server = Annotated[str, typer.Option("--server", "-s", metavar="HOST:PORT", help="The merge server.")]
Servers = Annotated[str, typer.Option("--server", "-s", metavar="HOST:PORT,...", help="The merge server, or several.")]
RoleOption = Annotated[
    RoleChoice,
    typer.Option(help="observe: compared with the others, and not merged until it is promoted.", envvar="LMERGE_ROLE"),
]
ReplicaName = Annotated[str, typer.Option("--replica", "-r", help="Name of this replica.")]
Promises = Annotated[
    list[str] | None,
    typer.Option(
        "--property", "-p", help="A promise: insert-only, ordered, strictly-ordered, deterministic-ties or key."
    ),
]
SubscriberName = Annotated[str, typer.Option(help="Name of this subscriber, as status shows it.")]
GiveUp = Annotated[
    float, typer.Option(metavar="SECONDS", help="Seconds without a server after which to give up.", min=0.0)
]
GiveUpOrWait = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Seconds without a server after which to give up; without it, never.", min=0.0
    ),
]

# Of commands that run a merge: ``serve`` and ``replay``.
AlgorithmOption = Annotated[
    AlgorithmChoice, typer.Option(help="auto: chosen from the properties that the inputs promise.")
]
PolicyOption = Annotated[str, typer.Option(help=POLICY_HELP)]
ClosingOption = Annotated[
    str, typer.Option(help="Inputs that must send stable(inf) for the output to end: all, any or quorum:K.")
]
EngineOption = Annotated[EngineChoice, typer.Option(help="Implementation of the core; auto: native where it is built.")]
AllowDowngradeOption = Annotated[
    bool,
    typer.Option(
        "--allow-downgrade", help="Keep an input that breaks a property, without the property; change the algorithm."
    ),
]
