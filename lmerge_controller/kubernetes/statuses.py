"""The status of a query as JSON: conditions as Kubernetes has them, and what changed enough to be written. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, Final

from lmerge_controller.kubernetes.crd import schema_digest
from lmerge_controller.plan.conditions import Condition, QueryPlan

# A status of which only messages differ is written so often at most: they hold counts, which always change.
MESSAGES_EVERY_S: Final = 30.0
DEFINITION_CURRENT: Final = "DefinitionCurrent"


def condition_rows(
    before: Mapping[str, Any], rows: Iterable[tuple[str, str, str, str]], generation: int, now_s: float
) -> list[dict[str, Any]]:
    """Return conditions of (type, status, reason, message). A condition that stays keeps its time of transition."""
    old = {one["type"]: one for one in before.get("conditions") or ()}
    made = []
    for kind, status, reason, message in rows:
        same = kind in old and old[kind].get("status") == status
        since = old[kind].get("lastTransitionTime") if same else time_text(now_s)
        made.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message[:32_000],
                "lastTransitionTime": since,
                "observedGeneration": generation,
            }
        )
    return made


def planned_status(
    before: Mapping[str, Any], plan: QueryPlan, generation: int, now_s: float, missing_right: str = ""
) -> dict[str, Any]:
    """Return the status that a plan gives, with the record that is there.

    ``missing_right``: a right that RBAC did not give to an action of the plan.
    """
    rows = [_row(condition) for condition in plan.conditions]
    if missing_right:
        text = f"RBAC does not allow the controller to {missing_right}"
        rows = [row if row[0] != "Degraded" else ("Degraded", "True", "RightMissing", text) for row in rows]
    return dict(before) | {
        "observedGeneration": generation,
        "serving": plan.record.serving,
        "joined": list(plan.joined),
        "joinedReplicas": len(plan.joined),
        "joinedOf": f"{len(plan.joined)}/{plan.replicas_count}",
        "conditions": condition_rows(before, [*rows, *definition_row(before)], generation, now_s),
    }


def degraded_status(
    before: Mapping[str, Any], reason: str, message: str, generation: int, now_s: float
) -> dict[str, Any]:
    """Return the status of a query about which nothing can be done now. What was found before stays."""
    kept = [
        (one["type"], one["status"], one["reason"], one["message"])
        for one in before.get("conditions") or ()
        if one["type"] != "Degraded"
    ]
    rows = [*kept, ("Degraded", "True", reason, message)]
    return dict(before) | {"conditions": condition_rows(before, rows, generation, now_s)}


def definition_row(status: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return the condition about the CustomResourceDefinition, if the API server has reported which one it has."""
    if not status:
        return []
    found, own = status.get("schema"), schema_digest()
    if found == own:
        return [(DEFINITION_CURRENT, "True", "SameSchema", f"the definition has schema {own}")]
    text = (
        f"the CustomResourceDefinition has schema {found or 'of an older form'}, this controller has {own}: the API "
        "server drops fields that it does not have; apply charts/lmerge/crds of this version"
    )
    return [(DEFINITION_CURRENT, "False", "OtherSchema", text)]


def is_news(before: Mapping[str, Any], after: Mapping[str, Any], age_s: float) -> bool:
    """Return whether to write a status. ``age_s``: since the last write."""
    if _bare(before) != _bare(after):
        return True
    return before != after and age_s >= MESSAGES_EVERY_S


def time_text(now_s: float) -> str:
    """Return a time as the API writes it."""
    return datetime.fromtimestamp(now_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _row(condition: Condition) -> tuple[str, str, str, str]:
    return str(condition.type), str(condition.status), condition.reason, condition.message


def _bare(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status without messages and times."""
    rows = [(one["type"], one["status"], one["reason"]) for one in status.get("conditions") or ()]
    return {key: value for key, value in status.items() if key not in ("conditions", "term", "schema")} | {"rows": rows}
