"""What the processes of all replicas of this package share: their options.

Called by the ``__main__`` of each replica. With ``--supervised`` a parent drives the process, as
``lmerge.replica.driven`` describes. With ``--clock`` that file exists by the start, and counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

from lmerge.addresses import DEFAULT_SERVER
from lmerge.core.inputs import InputRole
from lmerge_replicas.flights.source import FIRST_DAY, LAST_DAY

DAYS_PER_SECOND = 5.0  # the year in 73 seconds
SECURITY_FILES = {
    "ca": "encrypt, and check the server by these CAs",
    "cert": "the certificate to show",
    "key": "the key that belongs to it",
    "token-file": "the token to show",
}
SECURITY_FLAGS = {
    "tls": "encrypt, and check the server by the system's CAs",
    "insecure": "send a token unencrypted to another machine",
}


def options_parser(prog: str, description: str, kind: str, kinds: Iterable[str]) -> argparse.ArgumentParser:
    """Return a parser with the options that all replicas have. The first argument, ``kind``, is one of ``kinds``."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument(kind, choices=list(kinds))
    parser.add_argument("--server", default=DEFAULT_SERVER, help="merge servers, HOST:PORT,...")
    parser.add_argument("--merge", default="flights", help="name of the merge")
    parser.add_argument("--replica", help=f"name of the replica; default: its {kind}")
    roles = [role.value for role in InputRole]
    parser.add_argument("--role", default=roles[0], choices=roles, help="observe: compared, until it is promoted")
    parser.add_argument("--first", type=date.fromisoformat, default=FIRST_DAY, help="first day of departure, in 2013")
    parser.add_argument("--last", type=date.fromisoformat, default=LAST_DAY, help="last day of departure, in 2013")
    parser.add_argument("--speed", type=float, default=DAYS_PER_SECOND, help="days a second")
    parser.add_argument("--start", type=float, help="when the replay began, in seconds since the epoch; default: now")
    parser.add_argument("--clock", type=Path, metavar="FILE", help="follow the clock in this file instead")
    parser.add_argument("--supervised", action="store_true", help="driven by a parent: see the module's documentation")
    shown = parser.add_argument_group("security", "what is not given here comes from LMERGE_TOKEN and the like")
    for name, help_text in SECURITY_FILES.items():
        shown.add_argument(f"--{name}", metavar="FILE", help=help_text)
    for name, help_text in SECURITY_FLAGS.items():
        shown.add_argument(f"--{name}", action="store_true", help=help_text)
    return parser


def security_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the security options that were given, as fields of ``lmerge.Security``."""
    names = [name.replace("-", "_") for name in (*SECURITY_FILES, *SECURITY_FLAGS)]
    return {name: getattr(options, name) for name in names if getattr(options, name)}
