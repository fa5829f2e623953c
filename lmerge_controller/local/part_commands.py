"""The processes of a query as commands of this machine: its servers and its replicas. Called by the backend.

Servers listen on loopback alone. Ports that the description leaves open are chosen once and stay the same, so that
publishers and subscribers find a server again that was started again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from lmerge.errors import UsageError
from lmerge_controller.local.restarts import RestartRule
from lmerge_controller.local.spawn import ProcessCommand, check_runs
from lmerge_controller.local.state_folder import HOST, StateFolder, is_free
from lmerge_controller.model.invocation import ReplicaWork, invocation
from lmerge_controller.model.query import JumpStartSource, ReplicatedQuery
from lmerge_controller.plan.actions import ReplaceReplica, StartReplica

_LMERGE: Final = (sys.executable, "-m", "lmerge")
# A server waits up to 10 s for its clients (`lmerge serve`), and then has to close its store.
SERVER_GRACE_S: Final = 15.0


def server_name(index: int) -> str:
    """Return the name of a server's process."""
    return f"server-{index}"


def addresses(query: ReplicatedQuery, state: StateFolder) -> tuple[str, ...]:
    """Return the addresses of all servers of a query, in order of index."""
    servers = query.servers
    if not servers.are_ours:
        return servers.addresses
    return tuple(f"{HOST}:{_port(query, state, index)}" for index in range(servers.count))


def server_command(query: ReplicatedQuery, index: int, state: StateFolder) -> ProcessCommand:
    """Return the command of server ``index``."""
    servers, merge, name = query.servers, query.merge, server_name(index)
    options = {
        "--host": HOST,
        "--port": _port(query, state, index),
        "--http-port": _http_port(query, state, index),
        "--merge": merge.name,
        "--algorithm": merge.algorithm,
        "--policy": merge.policy,
        "--closing": merge.closing,
        "--on-divergence": merge.divergence,
        "--certify-interval": merge.certify_interval,
        "--feedback": merge.feedback,
        "--retain-bytes": merge.retention.bytes,
        "--retain-time": merge.retention.time,
        "--store": None if servers.store is None else str(_folder(query) / servers.store / name),
    }
    given = [text for option, value in options.items() if value is not None for text in (option, str(value))]
    return ProcessCommand(
        name,
        (*(servers.command or (*_LMERGE, "serve")), *given, *servers.args),
        state.log(name),
        folder=_folder(query),
        grace_s=SERVER_GRACE_S,
    )


def replica_command(
    query: ReplicatedQuery, action: StartReplica | ReplaceReplica, started_s: float, state: StateFolder
) -> ProcessCommand:
    """Return the command of a replica. Raises UsageError if its version is not described, or its program not there."""
    version = query.version(action.version)
    if version is None:
        raise UsageError(f"there is no version {action.version!r} in {query.name}")
    servers = addresses(query, state)
    from_checkpoint = action.jump_start is JumpStartSource.CHECKPOINT
    checkpoint = str((state.path / "checkpoints" / f"{action.replica}.jsonl").resolve()) if from_checkpoint else ""
    work = ReplicaWork(
        servers,
        query.merge.name,
        action.replica,
        action.role,
        started_s,
        checkpoint,
        query.jump_start.table if action.jump_start is JumpStartSource.TABLE else "",
    )
    called = invocation(query, version, action.index, work, python=(sys.executable,), lmerge=_LMERGE)
    checkpointed = (*_LMERGE, "checkpoint", work.merge, "--server", ",".join(servers), "--output", checkpoint)
    command = ProcessCommand(
        action.replica,
        called.command,
        state.log(action.replica),
        environment=dict(called.env),
        folder=_folder(query),
        runs_once=True,
        prepare=checkpointed if from_checkpoint else (),
    )
    check_runs(command.argv, command.folder, command.environment)
    return command


def check_commands(query: ReplicatedQuery, state: StateFolder) -> None:
    """Raise UsageError if a program of the query is not there, before anything is started."""
    if query.servers.are_ours:
        check_runs(server_command(query, 0, state).argv, _folder(query), {})
    for version in query.versions:
        runs = (version.run, *version.alternatives)
        for index, run in enumerate(runs):
            start = StartReplica(query.replica_name(version.name, index), version.name, index, "active", "", "check")
            try:
                replica_command(query, start, 0.0, state)
            except UsageError as problem:
                raise UsageError(f"version {version.name}: {problem}") from None
            if run.program and not (_folder(query) / run.program).is_file():
                raise UsageError(f"version {version.name}: there is no program {str(_folder(query) / run.program)!r}")


def check_ports(query: ReplicatedQuery, state: StateFolder, running: frozenset[str]) -> None:
    """Choose other ports for those that something else has taken since they were chosen.

    ``running``: names of servers that run and have theirs. Raises UsageError for a port that the description asks for.
    """
    for index in range(query.servers.count):
        if server_name(index) in running:
            continue
        for use, asked in ((_GRPC, query.servers.port), (_HTTP, query.servers.http_port)):
            port = _chosen(use, asked, index, state)
            if port != _NO_PORT and not is_free(port):
                if asked:
                    raise UsageError(f"{HOST}:{port}, on which {server_name(index)} is to listen, is taken")
                state.give_up_port(use.format(index))


def rule_of(query: ReplicatedQuery) -> RestartRule:
    """Return how soon processes of a query are started again."""
    restart = query.restart
    return RestartRule(restart.backoff_s, restart.backoff_max_s, restart.backoff_max_s, restart.per_minute_max)


_GRPC: Final = "server-{}"
_HTTP: Final = "server-{}-http"
_NO_PORT: Final = -1


def _port(query: ReplicatedQuery, state: StateFolder, index: int) -> int:
    return _chosen(_GRPC, query.servers.port, index, state)


def _http_port(query: ReplicatedQuery, state: StateFolder, index: int) -> int:
    return _chosen(_HTTP, query.servers.http_port, index, state)


def _chosen(use: str, asked: int, index: int, state: StateFolder) -> int:
    if asked == _NO_PORT:
        return _NO_PORT
    return state.port(use.format(index), asked=asked + index if asked else 0)


def _folder(query: ReplicatedQuery) -> Path:
    return Path(query.folder) if query.folder else Path.cwd()
