"""What `lmerge ps` and the progress of `lmerge up` show: the state of a run as one value, and as JSON. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from lmerge_controller.backend import ActionOutcome
from lmerge_controller.plan.actions import target_of
from lmerge_controller.plan.conditions import QueryPlan

# The last decisions that are shown; the log of the run has all.
EVENTS_MAX: Final = 50


@dataclass(frozen=True)
class LocalEvent:
    """A decision or a problem, numbered from 1."""

    number: int
    at_s: float
    text: str
    is_warning: bool = False


@dataclass(frozen=True)
class LocalStatus:
    """The state of a run. ``conditions`` and ``processes`` are tables as JSON has them.

    ``joined``: the replicas that are joined, of ``replicas_count`` of the ``serving`` version. ``survives_losses``: how
    many inputs may be lost, as the servers report it. ``notes``: the decisions of the last plan that were no actions.
    ``request``: the last one of another `lmerge up` that was answered; ``refusal``: why it was refused; empty: it was
    taken.
    """

    query: str
    merge: str = ""
    addresses: tuple[str, ...] = ()
    serving: str = ""
    joined: tuple[str, ...] = ()
    replicas_count: int = 0
    survives_losses: int = 0
    conditions: tuple[Mapping[str, Any], ...] = ()
    processes: tuple[Mapping[str, Any], ...] = ()
    events: tuple[LocalEvent, ...] = ()
    notes: tuple[str, ...] = ()
    request: str = ""
    refusal: str = ""

    def condition(self, kind: str) -> Mapping[str, Any]:
        """Return a condition; of unknown status if nothing was planned yet."""
        unknown = {"type": kind, "status": "Unknown", "reason": "NotPlannedYet", "message": "nothing was planned yet"}
        return next((found for found in self.conditions if found["type"] == kind), unknown)

    def is_true(self, kind: str) -> bool:
        """Whether a condition holds."""
        return bool(self.condition(kind)["status"] == "True")

    def after(self, plan: QueryPlan, outcomes: Sequence[ActionOutcome], now_s: float) -> LocalStatus:
        """Return the status after one turn of the loop."""
        noted = [(note.message, note.is_warning) for note in plan.notes if note.message not in self.notes]
        status = self
        for text, is_warning in (*noted, *_texts(outcomes)):
            status = status.with_event(text, now_s, is_warning=is_warning)
        return replace(
            status,
            serving=plan.record.serving,
            joined=plan.joined,
            replicas_count=plan.replicas_count,
            survives_losses=plan.survives_losses,
            conditions=tuple(
                {"type": str(c.type), "status": str(c.status), "reason": c.reason, "message": c.message}
                for c in plan.conditions
            ),
            notes=tuple(note.message for note in plan.notes),
        )

    def with_event(self, text: str, now_s: float, *, is_warning: bool = False) -> LocalStatus:
        """Return the status with one event more."""
        number = self.events[-1].number + 1 if self.events else 1
        return replace(self, events=(*self.events, LocalEvent(number, now_s, text, is_warning))[-EVENTS_MAX:])

    def events_after(self, earlier: LocalStatus) -> Iterator[LocalEvent]:
        """Yield the events that ``earlier`` has not."""
        last = earlier.events[-1].number if earlier.events else 0
        return (event for event in self.events if event.number > last)

    def as_json(self) -> dict[str, Any]:
        """Return the status as JSON values; ``status_of`` is the inverse."""
        return asdict(self)


def status_of(value: Mapping[str, Any]) -> LocalStatus | None:
    """Return the status of what ``as_json`` returned; None for anything else, such as that of another version."""
    names = {field.name for field in fields(LocalStatus)}
    known: dict[str, Any] = {
        name: tuple(item) if isinstance(item, list) else item for name, item in value.items() if name in names
    }
    try:
        known["events"] = tuple(LocalEvent(**event) for event in known.get("events", ()))
        return LocalStatus(**known)
    except (TypeError, ValueError):
        return None


def _texts(outcomes: Sequence[ActionOutcome]) -> Iterator[tuple[str, bool]]:
    for outcome in outcomes:
        name = re.findall("[A-Z][a-z]+", type(outcome.action).__name__)[0].lower()  # start of StartReplica
        text = f"{name} {target_of(outcome.action)}: {outcome.action.reason}"
        yield (f"{text}; it failed: {outcome.error}", True) if outcome.error else (text, False)
