"""The file of alerting rules that Prometheus loads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from monitoring.alerting.alert import Alert, Pace, runbook_url

HEADER = "# Made by `make monitoring` from monitoring/alerting. Do not edit: a test compares.\n"
NORMAL = Pace()


def rules_file(alerts: Iterable[Alert], pace: Pace = NORMAL) -> str:
    """Return the text of the file, with a group for each topic, in the order of the alerts."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for alert in alerts:
        groups.setdefault(alert.topic, []).append(_rule(alert, pace))
    return HEADER + written(
        {"groups": [{"name": f"lmerge-{topic}", "rules": rules} for topic, rules in groups.items()]}
    )


def written(value: Any) -> str:
    """Return a value as YAML, in the order of its keys."""
    return str(yaml.safe_dump(value, sort_keys=False, width=1000, allow_unicode=True))


def _rule(alert: Alert, pace: Pace) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": pace.condition(alert),
        "for": pace.held(alert),
        "labels": {"severity": alert.severity.value},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": runbook_url(alert.runbook),
        },
    }
