"""The plan: ``plan(query, observed) -> QueryPlan``. Called by the loop and by `lmerge plan`. Pure, and deterministic.

    assess      what the observation means, replica by replica
    cutover     which version serves, and which one is being tried
    servers     what is done about servers
    replicas    what is done about replicas
    report      what is reported

It is level-triggered: it looks at what is, not at what has happened, so that it goes on after any loss. What it must
remember is in the record (``record``), which is persisted before anything is done.
"""

from __future__ import annotations

from dataclasses import replace

from lmerge_controller.model.query import ReplicatedQuery
from lmerge_controller.plan.assessment import assess
from lmerge_controller.plan.conditions import QueryPlan
from lmerge_controller.plan.cutover import decide_cutover
from lmerge_controller.plan.drafting import PlanDraft
from lmerge_controller.plan.observed import ObservedQuery
from lmerge_controller.plan.replicas import plan_replicas
from lmerge_controller.plan.report import conditions_of
from lmerge_controller.plan.servers import plan_servers


def plan(query: ReplicatedQuery, observed: ObservedQuery) -> QueryPlan:
    """Return what to do about a query now, and what to report. Never raises for any observation."""
    seen = assess(query, observed)
    decision = decide_cutover(query, seen)
    if decision.record.attempt != seen.record.attempt or decision.record.serving != seen.record.serving:
        # Other replicas belong to the query now.
        seen = assess(query, replace(observed, parts=replace(observed.parts, record=decision.record)))
    record = replace(decision.record, noted=seen.record.noted, acted=seen.record.acted, starts_s=seen.record.starts_s)
    draft = PlanDraft(seen, query.restart.per_minute_max - len(record.starts_s))
    plan_servers(query, seen, record, draft)
    plan_replicas(query, seen, record, draft)
    attempt = record.attempt
    if attempt is not None:
        draft.check_after(attempt.since_s + query.cutover.timeout_s - seen.now_s)
    draft.check_often(since_s=[note.since_s for note in record.noted] + ([attempt.since_s] if attempt else []))
    notes = (*decision.notes, *draft.notes)
    return QueryPlan(
        actions=tuple(draft.actions),
        conditions=conditions_of(query, seen, record, draft, notes),
        record=replace(record, acted=draft.acted_facts, starts_s=tuple(draft.starts_s)),
        next_check_s=draft.next_check_s,
        notes=notes,
        joined=tuple(replica.name for replica in seen.of(record.serving) if replica.is_joined),
        replicas_count=query.replicas,
        survives_losses=observed.survives_losses,
    )
