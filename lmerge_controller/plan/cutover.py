"""Whether another version begins to take over, goes on, has taken over, or is given up. Pure.

    serving v1 ---> certifying v2 ---> promoting v2 ---> serving v2
                         |                  |
                         `------------------`---> serving v1; v2 is refused until its description changes

What is recorded is the stage alone; each step follows from what is observed now:

1. *Certifying*: every replica of the new version runs as an observer, and publishes the same as the others in
   ``cutover.intervals`` intervals in a row, at every server that answers.
2. *Promoting*: each of its inputs becomes active. That is recorded first, because a promoted input is a new
incarnation,
   which counts equal intervals from 0.
3. When all of them are good, the new version serves. The old one is then surplus, and let go by ``replicas``.

A difference, a quarantine, the time-out, or the end of a replica of the new version gives it up. A change of the
description ends the attempt without a judgement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from lmerge_controller.model.query import ReplicatedQuery, VersionSpec
from lmerge_controller.plan.assessment import QueryView, ReplicaView
from lmerge_controller.plan.conditions import PlanNote
from lmerge_controller.plan.observed import ObservedProcess, ProcessPhase
from lmerge_controller.plan.record import AttemptStage, CutoverAttempt, Record, RefusedVersion

# Of versions that are described at most, and some that were.
_REFUSED_MAX: Final = 32
# The clocks of machines differ by less.
_CLOCKS_APART_S: Final = 5.0


@dataclass(frozen=True)
class CutoverDecision:
    """The record that follows, and what was decided."""

    record: Record
    notes: tuple[PlanNote, ...] = ()


def decide_cutover(query: ReplicatedQuery, view: QueryView) -> CutoverDecision:
    """Return what becomes of the cutover now: at most one step."""
    record, version = view.record, query.version(query.active)
    if version is None or query.active == record.serving:
        ended = record.attempt
        notes = () if ended is None else (_note("CutoverEnded", f"{record.serving} is the active version again"),)
        return CutoverDecision(replace(record, attempt=None, refused=()), notes)
    attempt = record.attempt
    if attempt is not None and (attempt.to, attempt.fingerprint) != (version.name, version.fingerprint):
        text = f"the cutover to {attempt.to} has ended: the description has changed"
        begun = _begun(query, replace(view, record=replace(record, attempt=None)), version)
        return CutoverDecision(begun.record, (_note("CutoverEnded", text), *begun.notes))
    if attempt is None:
        return _begun(query, view, version)
    failure = _failure(query, view, attempt)
    if failure:
        refused = RefusedVersion(version.name, version.fingerprint, view.now_s, failure)
        text = f"{version.name} is given up, and {record.serving} goes on: {failure}"
        kept = [old for old in record.refused if old.name != version.name]
        record = replace(record, attempt=None, refused=(*kept, refused)[-_REFUSED_MAX:])
        return CutoverDecision(record, (_note("RolledBack", text, is_warning=True),))
    return _advanced(query, view, attempt)


def refusal(query: ReplicatedQuery, record: Record) -> RefusedVersion | None:
    """Return why the active version is not tried, None if it is."""
    version = query.version(query.active)
    for refused in record.refused:
        if version is not None and (refused.name, refused.fingerprint) == (version.name, version.fingerprint):
            return refused
    return None


def _begun(query: ReplicatedQuery, view: QueryView, version: VersionSpec) -> CutoverDecision:
    record = view.record
    if refusal(query, record) is not None:
        return CutoverDecision(record)
    if not any(_is_there(old) for old in view.of(record.serving)) and view.all_reachable:
        text = f"{version.name} serves at once: no replica of {record.serving} is there to go on"
        return CutoverDecision(replace(record, serving=version.name), (_note("Serving", text),))
    if not query.merge.compares:
        text = f"{version.name} cannot be certified: the merge compares nothing (divergence: none)"
        return CutoverDecision(record, (_note("NotCompared", text, is_warning=True),))
    attempt = CutoverAttempt(version.name, version.fingerprint, view.now_s)
    text = f"{version.name} starts beside {record.serving}, as an observer"
    return CutoverDecision(replace(record, attempt=attempt), (_note("CutoverBegun", text),))


def _is_there(view: ReplicaView) -> bool:
    return (view.process is not None and view.process.is_alive) or bool(view.inputs)


def _failure(query: ReplicatedQuery, view: QueryView, attempt: CutoverAttempt) -> str:
    """Return why the attempt is given up, as the end of a sentence; empty: it goes on."""
    for replica in view.of(attempt.to):
        for server, found in replica.inputs:
            if found.unequal_intervals > 0:
                return f"{replica.name} publishes other events than the others, as {server.address} found"
        if replica.quarantined_at:
            return f"{replica.name} is quarantined at {replica.quarantined_at[0]}"
        process = replica.process
        if process is not None and _has_ended(process, attempt):
            code = "" if process.exit_code is None else f" with exit code {process.exit_code}"
            more = f" ({process.problem})" if process.problem else ""
            return f"{replica.name} has ended{code}{more}"
        if process is None and attempt.stage is AttemptStage.PROMOTING:
            return f"{replica.name} has gone"
    if view.now_s - attempt.since_s > query.cutover.timeout_s:
        return f"it has not taken over within {query.cutover.timeout_s:g} s"
    return ""


def _has_ended(process: ObservedProcess, attempt: CutoverAttempt) -> bool:
    """Whether a process of the attempt has ended, now or before. An end before the attempt does not count.

    Nor does the end of a process that the attempt found ending: it was let go by a cutover before, away from here.
    """
    if process.fingerprint != attempt.fingerprint:
        return False
    if process.phase is ProcessPhase.STOPPING and process.started_at_s < attempt.since_s:
        return False
    if process.exited_at_s is not None and process.exited_at_s < attempt.since_s - _CLOCKS_APART_S:
        return False
    return process.phase in (ProcessPhase.EXITED, ProcessPhase.RESTARTING) or process.exits > 0


def _advanced(query: ReplicatedQuery, view: QueryView, attempt: CutoverAttempt) -> CutoverDecision:
    record = view.record
    new = view.of(attempt.to)[: query.replicas]
    if attempt.stage is AttemptStage.PROMOTING:
        if len(new) == query.replicas and all(replica.is_good for replica in new):
            text = f"{attempt.to} has taken over; {record.serving} is let go"
            return CutoverDecision(replace(record, serving=attempt.to, attempt=None), (_note("Serving", text),))
        return CutoverDecision(record)
    certified = len(new) == query.replicas and all(_is_certified(query, replica, attempt) for replica in new)
    if certified and view.good(record.serving):
        text = f"{attempt.to} is certified over {query.cutover.intervals} intervals, and is promoted"
        promoting = replace(attempt, stage=AttemptStage.PROMOTING)
        return CutoverDecision(replace(record, attempt=promoting), (_note("Certified", text),))
    return CutoverDecision(record)


def _is_certified(query: ReplicatedQuery, replica: ReplicaView, attempt: CutoverAttempt) -> bool:
    return (
        replica.runs
        and replica.process is not None
        and replica.process.fingerprint == attempt.fingerprint
        and replica.is_attached
        and all(found.equal_intervals >= query.cutover.intervals for _, found in replica.inputs)
    )


def _note(reason: str, message: str, *, is_warning: bool = False) -> PlanNote:
    return PlanNote(reason, message, is_warning)
