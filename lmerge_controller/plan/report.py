"""The conditions of a merged query, from what was observed and what is planned. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lmerge_controller.model.query import ReplicatedQuery
from lmerge_controller.plan.assessment import QueryView
from lmerge_controller.plan.conditions import Condition, ConditionStatus, ConditionType, PlanNote
from lmerge_controller.plan.cutover import refusal
from lmerge_controller.plan.drafting import PlanDraft
from lmerge_controller.plan.observed import ProcessPhase
from lmerge_controller.plan.record import Record

TRUE, FALSE, UNKNOWN = ConditionStatus
# A message is read in a table; the log has everything.
_PROBLEMS_SHOWN = 5


def conditions_of(
    query: ReplicatedQuery, view: QueryView, record: Record, draft: PlanDraft, notes: Iterable[PlanNote]
) -> tuple[Condition, ...]:
    """Return the five conditions."""
    return (
        _available(query, view, record),
        _redundant(view, record),
        _certified(query, view, record),
        _progressing(query, view, record, draft),
        _degraded(query, view, record, notes),
    )


def _available(query: ReplicatedQuery, view: QueryView, record: Record) -> Condition:
    kind = ConditionType.AVAILABLE
    if not view.observed.reachable:
        return Condition(kind, UNKNOWN, "NoServerAnswers", "no server answers; the stream may go on all the same")
    if view.is_complete:
        return Condition(kind, TRUE, "Complete", "the stream has come to its end")
    joined = sum(replica.is_joined for replica in view.of(record.serving))
    servers = f"{len(view.observed.reachable)} of {len(view.observed.servers)} servers"
    text = f"{joined} of {query.replicas} replicas of {record.serving} are joined at {servers}"
    if any(found.is_joined for replica in view.replicas for _, found in replica.inputs):
        return Condition(kind, TRUE, "Joined", text)
    return Condition(kind, FALSE, "NothingJoined", text)


def _redundant(view: QueryView, record: Record) -> Condition:
    kind, servers = ConditionType.REDUNDANT, view.observed.servers
    reachable = view.observed.reachable
    if not reachable:
        return Condition(kind, UNKNOWN, "NoServerAnswers", "no server answers")
    good = len(view.good(record.serving))
    losses = view.observed.survives_losses
    if good < 2 or losses < 1:
        return Condition(kind, FALSE, "NoSpareReplica", f"{good} good replicas; {losses} losses would be survived")
    if len(servers) > 1 and len(reachable) < 2:
        return Condition(kind, FALSE, "NoSpareServer", f"1 of {len(servers)} servers answers")
    text = f"{good} good replicas at {len(reachable)} of {len(servers)} servers; {losses} losses would be survived"
    return Condition(kind, TRUE, "SurvivesLoss", text)


def _certified(query: ReplicatedQuery, view: QueryView, record: Record) -> Condition:
    kind = ConditionType.CERTIFIED
    if not query.merge.compares:
        return Condition(kind, FALSE, "NotCompared", "the merge compares nothing (divergence: none)")
    inputs = [(replica, server, found) for replica in view.of(record.serving) for server, found in replica.inputs]
    for replica, server, found in inputs:
        if found.unequal_intervals:
            text = f"{replica.name} differed in {found.unequal_intervals} intervals, as {server.address} found"
            return Condition(kind, FALSE, "Differs", text)
    equal = min((found.equal_intervals for _, _, found in inputs), default=0)
    if equal == 0:
        return Condition(kind, UNKNOWN, "NotYetCompared", "not all replicas have been compared yet")
    return Condition(kind, TRUE, "Equal", f"all replicas were equal over the last {equal} intervals")


def _progressing(query: ReplicatedQuery, view: QueryView, record: Record, draft: PlanDraft) -> Condition:
    kind, attempt = ConditionType.PROGRESSING, record.attempt
    if attempt is not None:
        text = f"the cutover from {record.serving} to {attempt.to} is {attempt.stage}"
        return Condition(kind, TRUE, attempt.stage.capitalize(), text)
    if draft.actions:
        verbs = sorted({type(action).__name__ for action in draft.actions})
        return Condition(kind, TRUE, "Acting", f"{len(draft.actions)} actions: {', '.join(verbs)}")
    others = [replica.name for replica in view.replicas if replica.version != record.serving and replica.process]
    if others:
        return Condition(kind, TRUE, "LettingGo", f"{', '.join(others)} are let go")
    serving = view.of(record.serving)
    moving = [found.name for found in serving if found.process and (found.is_silent or not found.is_joined)]
    if moving and not view.is_complete:
        return Condition(kind, TRUE, "Joining", f"{', '.join(moving)} are not joined yet")
    return Condition(kind, FALSE, "Stable", f"{record.serving} serves with {query.replicas} replicas")


def _degraded(query: ReplicatedQuery, view: QueryView, record: Record, notes: Iterable[PlanNote]) -> Condition:
    problems = list(_problems(query, view, record, notes))
    if not problems:
        return Condition(ConditionType.DEGRADED, FALSE, "AsDescribed", "nothing is wrong")
    texts = [text for _, text in problems[:_PROBLEMS_SHOWN]]
    more = len(problems) - len(texts)
    message = "; ".join([*texts, *([f"and {more} more"] if more else [])])
    return Condition(ConditionType.DEGRADED, TRUE, problems[0][0], message)


def _problems(
    query: ReplicatedQuery, view: QueryView, record: Record, notes: Iterable[PlanNote]
) -> Iterator[tuple[str, str]]:
    """Yield reason and text of what should be looked at, the worst first."""
    refused = refusal(query, record)
    if refused is not None:
        text = f"{refused.name} was given up: {refused.reason}; it is tried again when its description changes"
        yield "VersionRefused", text
    for server in view.observed.servers:
        if not server.is_reachable:
            name, problem = server.address or "a server", server.problem or "it has not been started"
            yield "ServerUnreachable", f"{name} gives no report: {problem}"
        elif server.store not in ("", "memory", "durable"):
            yield "StoreFailing", f"the store of {server.address}: {server.store}"
    for replica in view.replicas:
        process = replica.process
        if replica.quarantined_at:
            yield "Quarantined", f"{replica.name} is quarantined at {', '.join(replica.quarantined_at)}"
        if replica.is_silent:
            if (replica.lagging_for_s or 0.0) > query.health.lag_for_s:  # before that it is about to begin
                yield "Lagging", f"{replica.name} has published no stable point, though the output has one"
        elif replica.lagging_for_s is not None:
            yield "Lagging", f"{replica.name} is {replica.lag:,} behind the output"
        if process is None:
            continue
        if process.phase in (ProcessPhase.EXITED, ProcessPhase.RESTARTING) and not view.is_complete:
            yield "ReplicaEnded", f"{replica.name} has ended: {process.problem or f'exit code {process.exit_code}'}"
        elif process.problem:
            yield "ReplicaFailing", f"{replica.name}: {process.problem}"
        elif process.phase is ProcessPhase.UNKNOWN:
            yield "MachineUnknown", f"the machine of {replica.name} does not answer"
    yield from ((note.reason, note.message) for note in notes if note.is_warning and note.reason != "RolledBack")
