"""What the status page shows of a server and its merges, as values for JSON. Read only, on the server's loop.

Times of streams are texts, because a browser's numbers cannot hold all of int64. Times of the wall clock are
milliseconds since the epoch. Text from outside is escaped (``wire.shown``); the page shows all of it as text.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.core.inputs import InputRole
from lmerge.core.merge import InputStatus
from lmerge.service.admin.metrics_inputs import lag_seconds
from lmerge.service.admin.status_history import MergeHistory, rounded
from lmerge.service.merge.hub import Hub
from lmerge.service.merge.lifecycle import InputLifecycle
from lmerge.service.merge.merge_state import MergeState
from lmerge.service.merge.occurrences import Occurrence
from lmerge.text_enum import TextEnum
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.rows import row_formatter
from lmerge.wire.shown import escaped, escaped_line

# Subscribers of one merge that a report has: those with the longest queues. More are only counted.
SUBSCRIBERS_SHOWN: Final = 32
# Intervals in which inputs differ. The newest show what is wrong now; `lmerge certify` shows more.
DIVERGENT_SHOWN: Final = 8
# Texts are sentences; a longer one is cut.
TEXT_SHOWN: Final = 600


class HealthLevel(TextEnum):
    """How a merge is. The page has a colour, a sign and a text for each."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"


class Health(NamedTuple):
    """How a merge is, and why, as a sentence."""

    level: HealthLevel
    text: str


def merge_row(hub: Hub, rate: float | None, wall_offset_s: float) -> dict[str, Any]:
    """Report one merge for the list of merges. ``rate``: output elements a second, None if it is not known yet.

    ``wall_offset_s``: what makes a time of the loop's clock one of the wall clock.
    """
    last_at_s = hub.state.output.fanout.pauses.last_at_s
    state = hub.state
    observed = state.observed
    health = health_of(state, _lacking(state, observed.inputs))
    return {
        "name": hub.name,
        "health": health.level,
        "text": health.text,
        "algorithm": observed.algorithm,
        "stable": show_time(observed.stable_point),
        "inputs": len(observed.inputs),
        "survives": state.survives_losses,
        "subscribers": len(state.subscribers),
        "rate": None if rate is None else rounded(rate),
        "last_ms": None if last_at_s is None else round((last_at_s + wall_offset_s) * 1000),
        "divergences": state.certifier.divergences,
    }


def merge_report(hub: Hub, history: MergeHistory | None) -> dict[str, Any]:
    """Report one merge completely, without its history, occurrences and differences."""
    state = hub.state
    observed, certifier = state.observed, state.certifier
    lacking = _lacking(state, observed.inputs)
    health = health_of(state, lacking)
    now_s = asyncio.get_running_loop().time()
    waiting = sorted(state.subscribers.values(), key=lambda subscriber: -subscriber.queued_bytes)
    return {
        "name": hub.name,
        "health": health.level,
        "text": health.text,
        "algorithm": observed.algorithm,
        "algorithm_reason": _text(observed.algorithm_reason),
        "policy": str(state.merge.policy),
        "engine": state.merge.engine,
        "epoch": state.epoch,
        "stable": show_time(observed.stable_point),
        "survives": state.survives_losses,
        "live_events": observed.live_count,
        "live_bytes": state.payload_limit.live_bytes + state.queued_bytes,
        "late": observed.late,
        "refused": observed.refused,
        "store": _text(state.store_status),
        "recording": _text(state.recording_status),
        "gaps": state.gaps,
        "cut_off": state.cut_off_count,
        "rate": None if history is None else history.newest_output,
        "emitted": observed.emitted.inserts + observed.emitted.adjusts,
        "silent_ms": _silent_ms(state),
        "divergence_policy": certifier.policy,
        "divergences": certifier.divergences,
        "disputed": certifier.disputed,
        "quarantined": [
            {"name": name, "why": _text(why)} for name, why in list(certifier.quarantined.items())[:SUBSCRIBERS_SHOWN]
        ],
        "cutover_to": certifier.cutover_to,
        "inputs": _inputs(hub, observed.inputs, lacking, history),
        "subscribers": [
            {
                "name": one.name,
                "peer": one.peer,
                "queued_bytes": one.queued_bytes,
                "lag_ms": round(1000 * one.lag_s(now_s)),
                "sent": one.sent_elements,
            }
            for one in waiting[:SUBSCRIBERS_SHOWN]
        ],
        "subscriber_count": len(waiting),
    }


def health_of(state: MergeState, lacking: dict[str, str]) -> Health:
    """Return how a merge is. ``lacking``: why each attached input could not carry the output, empty if it could."""
    carriers = sum(not why for why in lacking.values())
    if state.store_problem is not None:
        return Health(HealthLevel.CRITICAL, f"The store cannot be written: {_text(state.store_problem)}")
    if state.observed.stable_point == INF:
        return Health(HealthLevel.OK, "Closed: the stream has ended")
    if not lacking:
        return Health(HealthLevel.CRITICAL, "No input is attached: the output stands still")
    if not carriers:
        return Health(HealthLevel.CRITICAL, "No input can carry the output now")
    if state.certifier.disputed:
        return Health(HealthLevel.CRITICAL, "Inputs differ, and the output waits for a decision")
    if carriers == 1:
        return Health(HealthLevel.WARNING, "Not redundant: the loss of one more input stops the output")
    losses = "1 loss" if carriers == 2 else f"{carriers - 1} losses"
    if _differing(state, lacking):
        return Health(HealthLevel.WARNING, f"Survives {losses}, but inputs differ")
    if state.certifier.quarantined:
        return Health(HealthLevel.WARNING, f"Survives {losses}, but an input is quarantined")
    if state.recording_has_stopped:
        return Health(HealthLevel.WARNING, f"Survives {losses}, but the recording has stopped")
    return Health(HealthLevel.OK, f"Survives {losses}")


def _differing(state: MergeState, names: Iterable[str]) -> list[str]:
    """Return the attached inputs that differed from another one in the last interval in which they were compared."""
    monitor = state.certifier.monitor
    reports = [] if monitor is None else [monitor.report(name) for name in names]
    return [report.name for report in reports if report is not None and report.compared and not report.in_row]


def occurrence_list(occurrences: Iterable[Occurrence], wall_offset_s: float) -> list[dict[str, Any]]:
    """Report occurrences. ``wall_offset_s``: what makes times of the loop's clock times of the wall clock."""
    return [
        {
            "n": one.number,
            "at_ms": round((one.at_s + wall_offset_s) * 1000),
            "kind": one.kind,
            "input": one.input,
            "text": _text(one.text),
        }
        for one in occurrences
    ]


def differences_report(
    certified: pb.CertifyMergeResponse, schema: pb.Schema | None, *, with_payloads: bool
) -> list[dict[str, Any]]:
    """Report the newest intervals in which inputs differ, with the events that differ if payloads may be shown."""
    payload_text = row_formatter(schema)
    return [
        {
            "start": show_time(interval.start),
            "end": show_time(interval.end),
            "missing": _text(interval.missing),
            "digests": [{"input": d.replica, "events": d.events, "digest": d.digest} for d in interval.digests],
            "events": [
                {
                    "payload": _text(payload_text(event.payload)),
                    "vs": show_time(event.vs),
                    "ve": show_time(event.ve),
                    "present": list(event.present),
                    "absent": list(event.absent),
                }
                for event in interval.differences
            ]
            if with_payloads
            else [],
        }
        for interval in certified.divergent[:DIVERGENT_SHOWN]
    ]


def _inputs(
    hub: Hub, statuses: tuple[InputStatus, ...], lacking: dict[str, str], history: MergeHistory | None
) -> list[dict[str, Any]]:
    now_s = asyncio.get_running_loop().time()
    front = max((status.stable_point for status in statuses if not status.held), default=NEG_INF)
    found = []
    for status in statuses:
        attached = hub.inputs.get(status.name)
        life = InputLifecycle() if attached is None else attached.life
        won, received = _rates(history, status.name)
        found.append(
            {
                "name": status.name,
                "incarnation": status.incarnation,
                "role": "observer" if status.role is InputRole.OBSERVE else "active",
                "state": life.state(status),
                "lacks": _text(lacking[status.name]),
                "stable": show_time(status.stable_point),
                "lag": _lag(front, status.stable_point),
                "lag_ms": round(1000 * lag_seconds(hub, status, now_s)),
                "rate": received,
                "won_rate": won,
                "won": status.won,
                "late": status.late,
                "attached_s": round(now_s - attached.attached_at) if attached is not None else 0,
                "equal_intervals": hub.state.certifier.equal_in_row(status.name),
                "properties": list(status.properties),
            }
        )
    return found


def _lacking(state: MergeState, statuses: tuple[InputStatus, ...]) -> dict[str, str]:
    now_s = asyncio.get_running_loop().time()
    found = {}
    for status in statuses:
        attached = state.inputs.get(status.name)
        life = InputLifecycle() if attached is None else attached.life
        found[status.name] = state.redundancy.lacks(status, life, now_s)
    return found


def _rates(history: MergeHistory | None, name: str) -> tuple[float | None, float | None]:
    newest = None if history is None else history.newest(name)
    if newest is None:
        return None, None
    won, received = (None if math.isnan(rate) else rounded(rate) for rate in newest)
    return won, received


def _lag(front: int, stable_point: int) -> str | None:
    """Return how far an input is behind the furthest one, in the stream's units; None if it cannot be measured."""
    if front in (NEG_INF, INF) or stable_point == NEG_INF:
        return "0" if front == stable_point == INF else None
    return str(max(0, front - stable_point))


def _silent_ms(state: MergeState) -> int | None:
    """Return how long ago the last output was."""
    last_at_s = state.output.fanout.pauses.last_at_s
    return None if last_at_s is None else round((asyncio.get_running_loop().time() - last_at_s) * 1000)


def _text(text: str) -> str:
    """Return a text from outside in a form that may be shown, and not longer than a sentence."""
    shown = escaped(text) if len(text) <= TEXT_SHOWN else f"{escaped(text[:TEXT_SHOWN])}..."
    return escaped_line(shown)
