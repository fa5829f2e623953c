"""What runs, as the files of a run have it: for a process that only looks, such as `lmerge plan`. Changes nothing.

A supervisor that runs has more recent facts, by some milliseconds. Where none runs, what it has left is looked up among
the processes of the machine.
"""

from __future__ import annotations

from typing import Any

from lmerge_controller.local.process_table import process_id
from lmerge_controller.local.state_folder import StateFolder
from lmerge_controller.model.query import ReplicatedQuery
from lmerge_controller.plan.observed import ObservedProcess, ProcessPhase, RunningParts
from lmerge_controller.plan.record import Record, record_of


def recorded_parts(query: ReplicatedQuery, state: StateFolder) -> RunningParts:
    """Return the processes, addresses and record of a query; empty where it has never run."""
    found = [_process(name, value) for name, value in sorted(state.read("processes").items())]
    parts = [part for part in found if part is not None]
    return RunningParts(
        addresses=_addresses(query, state),
        servers=tuple(process for is_server, process in parts if is_server),
        replicas=tuple(process for is_server, process in parts if not is_server),
        record=_record(state),
    )


def _process(name: str, value: Any) -> tuple[bool, ObservedProcess] | None:
    """Return whether it is a server, and the process; None for what another version of lmerge has written."""
    try:
        part, started = value["part"], str(value["started"])
        now = process_id(int(value["pid"]))
        process = ObservedProcess(
            name=name,
            uid=str(part["life"]),
            phase=ProcessPhase.RUNNING if now is not None and now.started == started else ProcessPhase.EXITED,
            version=str(part["version"]),
            index=int(part["index"]),
            fingerprint=str(part["fingerprint"]),
            role=str(part["role"]),
            started_at_s=float(part["started_at_s"]),
        )
        return bool(part["is_server"]), process
    except (KeyError, TypeError, ValueError):
        return None


def _addresses(query: ReplicatedQuery, state: StateFolder) -> tuple[str, ...]:
    if not query.servers.are_ours:
        return query.servers.addresses
    shown = state.read("status").get("addresses", ())
    known = [str(address) for address in shown] if isinstance(shown, list) else []
    return tuple(known[index] if index < len(known) else "" for index in range(query.servers.count))


def _record(state: StateFolder) -> Record | None:
    try:
        return record_of(state.read("record"))
    except (KeyError, TypeError, ValueError):
        return None
