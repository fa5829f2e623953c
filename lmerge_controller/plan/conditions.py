"""What is reported of a merged query: conditions, as Kubernetes has them, and the whole plan as one value. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lmerge.text_enum import TextEnum
from lmerge_controller.plan.actions import Action
from lmerge_controller.plan.record import Record


class ConditionType(TextEnum):
    """The conditions, in the order in which they are shown.

    AVAILABLE: a joined replica feeds a server that answers. REDUNDANT: the loss of any one replica, and of any one
    server if there are several, would be survived. CERTIFIED: the replicas have been found equal. PROGRESSING:
    something is being changed now. DEGRADED: something is wrong that should be looked at.
    """

    AVAILABLE = "Available"
    REDUNDANT = "Redundant"
    CERTIFIED = "Certified"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"


class ConditionStatus(TextEnum):
    """Whether a condition holds; UNKNOWN: no server has answered."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True)
class Condition:
    """A condition. ``reason``: one CamelCase name, stable for programs. ``message``: for people."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True)
class PlanNote:
    """A decision that is no action, such as a replica that is not replaced because it is the last good one."""

    reason: str
    message: str
    is_warning: bool = False


@dataclass(frozen=True)
class QueryPlan:
    """What to do, in this order, and what to report.

    ``record``: to be persisted before the first action. ``next_check_s``: seconds after which a plan may differ
    although nothing else has changed. ``joined``: the replicas of the serving version that are joined at every server
    that answers; ``replicas_count`` of them are kept. ``survives_losses``: how many inputs may be lost, as the servers
    report it; the smallest number of those that answer, 0 if none does.
    """

    actions: tuple[Action, ...]
    conditions: tuple[Condition, ...]
    record: Record
    next_check_s: float
    notes: tuple[PlanNote, ...] = ()
    joined: tuple[str, ...] = ()
    replicas_count: int = 0
    survives_losses: int = 0

    def condition(self, kind: ConditionType) -> Condition:
        """Return the condition of a type."""
        return next(found for found in self.conditions if found.type is kind)
