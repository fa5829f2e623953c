"""The file of tests that ``promtool test rules`` runs: for each alert one case that fires and one that does not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from monitoring.alerting.alert import Alert, AlertExample, duration, runbook_url
from monitoring.alerting.rules_file import HEADER, written


def promtool_file(alerts: Iterable[Alert], rules: str) -> str:
    """Return the text of the file. ``rules``: the name of the file of rules beside it."""
    cases = [_case(alert, proof) for alert in alerts for proof in (alert.fires, alert.stays_silent)]
    return HEADER + written({"rule_files": [rules], "evaluation_interval": "15s", "tests": cases})


def _case(alert: Alert, proof: AlertExample) -> dict[str, Any]:
    expected = [] if proof.labels is None else [_expected(alert, proof, proof.labels)]
    return {
        "name": f"{alert.name} {'does not fire' if proof.labels is None else 'fires'}",
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in proof.series.items()],
        "alert_rule_test": [{"eval_time": duration(proof.at_s), "alertname": alert.name, "exp_alerts": expected}],
    }


def _expected(alert: Alert, proof: AlertExample, labels: Any) -> dict[str, Any]:
    return {
        "exp_labels": {"severity": alert.severity.value, **labels},
        "exp_annotations": {
            "summary": _filled(alert.summary, proof, labels),
            "description": _filled(alert.description, proof, labels),
            "runbook_url": runbook_url(alert.runbook),
        },
    }


def _filled(text: str, proof: AlertExample, labels: Any) -> str:
    """Return a text with the labels and the value in place, as Prometheus fills it. A label that is not there is ''."""
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: str(labels.get(found[1], "")), text)
    return re.sub(r"\{\{ \$value[^}]*\}\}", proof.value, text)
