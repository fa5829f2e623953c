"""Which replicas are started, ended, replaced, promoted and demoted. Pure.

Two kinds of rules. What cannot harm the output is done at once and for all replicas: starting what is not there,
promoting, releasing. What ends a replica that runs keeps three rules:

1. It is never the last good one: another good replica of the serving version stays, joined at every server that
answers. 2. One at a time: while a replica of the serving version starts, stops or joins, no other one of them is ended.
3. A version that was given up is stopped at once, and a version that has been replaced one replica at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lmerge.core.elements import NEG_INF
from lmerge_controller.model.query import JumpStartSource, ReplicatedQuery
from lmerge_controller.plan.actions import (
    DemoteInput,
    DetachInput,
    PromoteInput,
    ReleaseInput,
    ReplaceReplica,
    StartReplica,
    StopReplica,
)
from lmerge_controller.plan.assessment import QueryView, ReplicaView, kept_count
from lmerge_controller.plan.drafting import PlanDraft
from lmerge_controller.plan.observed import ObservedProcess, ProcessPhase
from lmerge_controller.plan.record import AttemptStage, Record

# An input without a process is ended after so long: its process may not have been seen yet, or be about to leave.
_ORPHAN_S: Final = 30.0


@dataclass(frozen=True)
class _Rules:
    """What the rules of one plan look at. ``record`` is the new one, after the decision about the cutover."""

    query: ReplicatedQuery
    view: QueryView
    record: Record
    draft: PlanDraft

    @property
    def attempt(self) -> str:
        return "" if self.record.attempt is None else self.record.attempt.to

    @property
    def promotes(self) -> bool:
        return self.record.attempt is not None and self.record.attempt.stage is AttemptStage.PROMOTING

    def is_described(self, replica: ReplicaView) -> bool:
        """Whether it should run now."""
        if replica.version not in (self.record.serving, self.attempt):
            return False
        # A version that is described no more goes on while it serves.
        return self.query.version(replica.version) is None or replica.index < self.count_of(replica.version)

    def count_of(self, version: str) -> int:
        """How many replicas of a version are kept now."""
        if version == self.record.serving:
            return kept_count(self.query, self.view.observed, version)
        return self.query.replicas

    def role_of(self, version: str) -> str:
        return "active" if version == self.record.serving or self.promotes else "observe"


def plan_replicas(query: ReplicatedQuery, view: QueryView, record: Record, draft: PlanDraft) -> None:
    """Write what is done about replicas into the draft."""
    rules = _Rules(query, view, record, draft)
    for replica in view.replicas:
        if rules.is_described(replica):
            _start(rules, replica)
    _change_roles(rules)
    _end_faulty(rules)
    _end_surplus(rules)
    _end_complete(rules)


def _start(rules: _Rules, replica: ReplicaView) -> None:
    """Start a replica that does not run, once it may."""
    version, process, view = rules.query.version(replica.version), replica.process, rules.view
    if version is None or (process is not None and process.is_alive):
        return
    if _has_nothing_to_add(rules, replica):
        return
    if not view.observed.reachable or not all(view.observed.parts.addresses):
        return  # it would only wait for the servers
    if replica.quarantined_at:
        _release(rules, replica, "its process has ended, and another one takes its place")
        return
    if process is not None and not _is_due(rules, process):
        return
    rules.draft.propose(
        StartReplica(
            replica.name,
            replica.version,
            replica.index,
            rules.role_of(replica.version),
            version.fingerprint,
            _start_reason(rules, replica),
            after="" if process is None else process.uid,
            jump_start=_jump_start(rules),
        )
    )


def _release(rules: _Rules, replica: ReplicaView, reason: str) -> None:
    """Let a name attach again wherever it is quarantined. A server that finds it wrong again refuses it again."""
    for server in replica.quarantined_at:
        rules.draft.propose(ReleaseInput(server, replica.name, reason))


def _has_nothing_to_add(rules: _Rules, replica: ReplicaView) -> bool:
    """Whether the stream has ended: that of the output, or of this replica, which has then ended with exit code 0."""
    process = replica.process
    if process is None or process.exit_code == 0:
        return rules.view.is_complete or (process is not None and replica.is_complete)
    return False


def _is_due(rules: _Rules, process: ObservedProcess) -> bool:
    """Whether a process that has ended may be started again."""
    ended_s = process.started_at_s if process.exited_at_s is None else process.exited_at_s
    delay_s = rules.query.restart.delay_s(process.exits)
    left_s = min(ended_s + delay_s - rules.view.now_s, delay_s)  # a clock that was set back must not delay it
    if left_s > 0:
        rules.draft.check_after(left_s)
    return left_s <= 0


def _start_reason(rules: _Rules, replica: ReplicaView) -> str:
    process = replica.process
    if process is None:
        if replica.version == rules.attempt:
            return f"{replica.version} is to be certified"
        if replica.index >= rules.query.replicas:
            return (
                f"the description of {replica.version} has changed; the replica that runs is replaced when this is good"
            )
        return f"{rules.query.replicas} replicas of {replica.version} are kept; it is not there"
    code = "" if process.exit_code is None else f" with exit code {process.exit_code}"
    ends = "" if process.exits <= 1 else f", {process.exits} times in a row"
    return f"it has ended{code}{ends}"


def _jump_start(rules: _Rules) -> JumpStartSource:
    """Return where a newcomer starts: at its beginning while the merge has come nowhere."""
    moved = any(server.has_merge and server.stable_point > NEG_INF for server in rules.view.observed.reachable)
    return rules.query.jump_start.source if moved else JumpStartSource.NONE


def _change_roles(rules: _Rules) -> None:
    """Promote what should count and observes; demote what counts and should not, where another one counts."""
    for replica in rules.view.replicas:
        for server, found in replica.inputs:
            observes = found.role == "observe"
            counts = replica.version == rules.record.serving or (replica.version == rules.attempt and rules.promotes)
            if counts and observes and not replica.quarantined_at and rules.is_described(replica):
                text = "it serves" if replica.version == rules.record.serving else "it is certified"
                reason = f"{replica.version}: {text}, and observes here"
                rules.draft.propose(PromoteInput(server.address, replica.name, found.incarnation, reason))
            elif not counts and not observes and _must_observe(rules, replica) and _another(rules, replica):
                reason = f"{replica.version} may not count: {_why_observe(rules, replica)}"
                rules.draft.propose(DemoteInput(server.address, replica.name, found.incarnation, reason))


def _must_observe(rules: _Rules, replica: ReplicaView) -> bool:
    """Whether it is of the version that is being certified, or of one that was given up. One that served may go on."""
    refused = {refused.name for refused in rules.record.refused}
    return replica.version == rules.attempt or replica.version in refused


def _why_observe(rules: _Rules, replica: ReplicaView) -> str:
    return "it is not certified yet" if replica.version == rules.attempt else "it was given up"


def _end_faulty(rules: _Rules) -> None:
    """Replace at most one replica of the serving version that runs, and should not run as it does."""
    serving = [replica for replica in rules.view.of(rules.record.serving) if rules.is_described(replica)]
    faults = [(replica, reason) for replica in serving if (reason := _fault(rules, replica))]
    for replica, reason in sorted(faults, key=lambda fault: _urgency(fault[0])):
        others = [other for other in serving if other is not replica and _is_changing(rules, other)]
        if others:
            text = f"{replica.name} is not replaced yet ({reason}): {others[0].name} is not joined"
            rules.draft.note("Waiting", text)
        elif not _may_end(rules, replica):
            if any(isinstance(action, StartReplica) for action in rules.draft.actions):
                continue  # it waits for the one that is started now
            rules.draft.note("LastGood", f"{replica.name} is not replaced ({reason}): no other good replica would stay")
            _release(rules, replica, "it carries the output elsewhere, so its process is not ended")
        elif _replace(rules, replica, reason):
            return


def _fault(rules: _Rules, replica: ReplicaView) -> str:
    """Return why a replica that runs is replaced; empty: it is not."""
    version, process, health = rules.query.version(replica.version), replica.process, rules.query.health
    if process is None or process.phase not in (ProcessPhase.RUNNING, ProcessPhase.UNKNOWN):
        return ""
    if replica.quarantined_at:
        return f"it is quarantined at {', '.join(replica.quarantined_at)}"
    if _has_lasted(rules, replica.lagging_for_s, health.lag_for_s):
        lasted = f"for {replica.lagging_for_s:.0f} s"
        if replica.is_silent:
            return f"it has published no stable point {lasted}, though the output has one"
        return f"it has been {replica.lag:,} behind the output {lasted}, more than {health.lag_max:,}"
    if _has_lasted(rules, replica.apart_for_s, health.join_within_s) and not rules.view.is_complete:
        return f"it has not been joined at every server for {replica.apart_for_s:.0f} s"
    if version is not None and process.fingerprint != version.fingerprint:
        return f"the description of {version.name} has changed"
    return ""


def _has_lasted(rules: _Rules, lasted_s: float | None, limit_s: float) -> bool:
    if lasted_s is None:
        return False
    if lasted_s <= limit_s:
        rules.draft.check_after(limit_s - lasted_s)
    return lasted_s > limit_s


def _urgency(replica: ReplicaView) -> tuple[bool, bool, str]:
    """Return a sort key: what harms the output most comes first."""
    return not replica.quarantined_at, replica.is_good, replica.name


def _is_changing(rules: _Rules, replica: ReplicaView) -> bool:
    """Whether a replica is on its way to be joined, so that no other one should be ended."""
    process = replica.process
    if process is None or process.phase in (ProcessPhase.EXITED, ProcessPhase.UNKNOWN):
        return False
    if replica.is_ending or process.phase is not ProcessPhase.RUNNING:
        return True
    apart_s = replica.apart_for_s
    return apart_s is not None and apart_s <= rules.query.health.join_within_s and not replica.quarantined_at


def _replace(rules: _Rules, replica: ReplicaView, reason: str) -> bool:
    process, version = replica.process, rules.query.version(replica.version)
    assert process is not None
    if version is None or replica.quarantined_at:
        # Its name must be released between its end and its start; a version that is not described cannot be started.
        return rules.draft.propose(StopReplica(replica.name, process.uid, reason))
    return rules.draft.propose(
        ReplaceReplica(
            replica.name,
            process.uid,
            replica.version,
            replica.index,
            rules.role_of(replica.version),
            version.fingerprint,
            reason,
            jump_start=_jump_start(rules),
        )
    )


def _end_surplus(rules: _Rules) -> None:
    """Stop what should not run: given up, replaced by another version, or above the number of replicas."""
    let_go = [replica for replica in rules.view.replicas if not rules.is_described(replica)]
    outdated = list(_outdated_attempt(rules))
    is_busy = any(replica.is_ending or _is_stopping(replica) for replica in let_go)
    for replica in [*outdated, *let_go]:
        process, is_given_up = replica.process, _must_observe(rules, replica)
        if process is None:
            _end_orphan(rules, replica)
            continue
        if process.phase is ProcessPhase.EXITED:
            rules.draft.propose(StopReplica(replica.name, process.uid, "it has ended, and is needed no more"))
            continue
        if process.phase is ProcessPhase.STOPPING:
            continue
        if is_busy and not is_given_up:
            continue
        if not _may_end(rules, replica):
            if any(rules.is_described(other) and _is_changing(rules, other) for other in rules.view.replicas):
                continue  # it waits for that one to join
            text = f"{replica.name} is not stopped, though it is needed no more: no good replica of the version that"
            rules.draft.note("LastGood", f"{text} serves ({rules.record.serving}) would stay")
            continue
        if rules.draft.propose(StopReplica(replica.name, process.uid, _surplus_reason(rules, replica))):
            is_busy = True


def _end_complete(rules: _Rules) -> None:
    """Stop what something else would start again and again, although the output has ended."""
    for replica in rules.view.replicas if rules.view.is_complete else ():
        process = replica.process
        if process is None or replica.inputs or not rules.is_described(replica):
            continue
        if process.phase is ProcessPhase.RESTARTING and process.exit_code == 0:
            rules.draft.propose(StopReplica(replica.name, process.uid, "the stream has come to its end"))


def _outdated_attempt(rules: _Rules) -> Iterator[ReplicaView]:
    """Yield replicas of the attempt's version that run an earlier description of it."""
    attempt = rules.record.attempt
    for replica in () if attempt is None else rules.view.of(attempt.to):
        process = replica.process
        if attempt is None or process is None or not rules.is_described(replica):
            continue
        if process.phase is ProcessPhase.RUNNING and process.fingerprint != attempt.fingerprint:
            yield replica


def _surplus_reason(rules: _Rules, replica: ReplicaView) -> str:
    if replica.version == rules.attempt:
        return f"the description of {replica.version} has changed"
    if replica.version == rules.record.serving:
        return f"{rules.query.replicas} replicas are kept"
    if _must_observe(rules, replica):
        return f"{replica.version} is given up"
    return f"{rules.record.serving} has taken over"


def _is_stopping(replica: ReplicaView) -> bool:
    return replica.process is not None and replica.process.phase is ProcessPhase.STOPPING


def _end_orphan(rules: _Rules, replica: ReplicaView) -> None:
    """Detach the inputs of a replica that should not be, and has no process that could be stopped."""
    for server, found in replica.inputs:
        if found.attached_s < _ORPHAN_S:
            rules.draft.check_after(_ORPHAN_S - found.attached_s)
        elif _may_end(rules, replica):
            reason = "no process of this name is known, and it is needed no more"
            rules.draft.propose(DetachInput(server.address, replica.name, found.incarnation, reason))


def _may_end(rules: _Rules, replica: ReplicaView) -> bool:
    """Whether the output would not miss a replica: another good one stays, or it is active nowhere."""
    if _another(rules, replica):
        return True
    return rules.view.all_reachable and not replica.carries


def _another(rules: _Rules, replica: ReplicaView) -> bool:
    """Whether another good replica stays, whatever this plan does: of the serving version.

    One of another version is enough, if it was not given up, where the replica itself is not good: the output follows
    the other one already, and no good replica of the serving version would otherwise ever come back.
    """
    ended = {action.replica for action in rules.draft.actions if isinstance(action, StopReplica | ReplaceReplica)}
    serving, refused = rules.record.serving, {refused.name for refused in rules.record.refused}
    any_version = replica.version == serving and not replica.is_good
    return any(
        other.is_good
        and other.name != replica.name
        and other.name not in ended
        and (rules.is_described(other) if other.version == serving else any_version and other.version not in refused)
        for other in rules.view.replicas
    )
