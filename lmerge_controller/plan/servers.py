"""Which servers are started and ended, where lmerge runs them. Pure.

A server that is not there is started at once. One that runs is ended only while every other server answers and has a
good replica, and one at a time. A single server is replaced when its description changes: there is no other way.
"""

from __future__ import annotations

from lmerge_controller.model.query import ReplicatedQuery
from lmerge_controller.plan.actions import StartServer, StopServer
from lmerge_controller.plan.assessment import QueryView, since
from lmerge_controller.plan.drafting import PlanDraft
from lmerge_controller.plan.observed import ObservedProcess, ProcessPhase
from lmerge_controller.plan.record import NotedKind, Record


def plan_servers(query: ReplicatedQuery, view: QueryView, record: Record, draft: PlanDraft) -> None:
    """Write what is done about servers into the draft."""
    if not query.servers.are_ours:
        return
    processes = {process.index: process for process in view.observed.parts.servers}
    for index in range(query.servers.count):
        _start(query, view, draft, index, processes.get(index))
    for process in sorted(processes.values(), key=lambda process: -process.index):
        reason = _fault(query, view, record, draft, process)
        if reason and _may_end(query, view, record, draft, process):
            draft.propose(StopServer(process.index, process.uid, reason))


def _start(
    query: ReplicatedQuery, view: QueryView, draft: PlanDraft, index: int, process: ObservedProcess | None
) -> None:
    after, reason = "", f"{query.servers.count} servers are kept; it is not there"
    if process is not None:
        if process.phase is not ProcessPhase.EXITED:
            return
        ended_s = process.started_at_s if process.exited_at_s is None else process.exited_at_s
        delay_s = query.restart.delay_s(process.exits)
        left_s = min(ended_s + delay_s - view.now_s, delay_s)
        if left_s > 0:
            draft.check_after(left_s)
            return
        code = "" if process.exit_code is None else f" with exit code {process.exit_code}"
        after, reason = process.uid, f"it has ended{code}"
    draft.propose(StartServer(index, query.servers_fingerprint, reason, after))


def _fault(query: ReplicatedQuery, view: QueryView, record: Record, draft: PlanDraft, process: ObservedProcess) -> str:
    """Return why a server that runs is ended; empty: it is not."""
    if process.phase is not ProcessPhase.RUNNING:
        return ""
    if process.index >= query.servers.count:
        return f"{query.servers.count} servers are kept"
    if process.fingerprint != query.servers_fingerprint:
        return "its description has changed"
    if any((note.kind, note.name) == (NotedKind.UNREACHABLE, process.name) for note in record.noted):
        silent_s = view.now_s - since(record, NotedKind.UNREACHABLE, process.name, process.uid, view.now_s)
        if silent_s > query.health.join_within_s:
            return f"it has not answered for {silent_s:.0f} s"
        draft.check_after(query.health.join_within_s - silent_s)
    return ""


def _may_end(
    query: ReplicatedQuery, view: QueryView, record: Record, draft: PlanDraft, process: ObservedProcess
) -> bool:
    servers = view.observed.servers
    others = [server for index, server in enumerate(servers) if index != process.index]
    ended = {action.index for action in draft.actions if isinstance(action, StopServer)}
    if ended or any(acted.fact.startswith("server ") for acted in record.acted):
        return False  # another one has just been ended, or started
    if len(view.observed.parts.servers) == 1:
        return True
    if others and all(server.is_reachable for server in others) and view.good(record.serving):
        return True
    draft.note("LastGood", f"{process.name} is not ended: the other servers do not all carry the stream")
    return False
