"""Every file that this package generates, with its text."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from monitoring.alerting.catalogue import ALERTS
from monitoring.alerting.promtool_file import promtool_file
from monitoring.alerting.rules_file import rules_file
from monitoring.alerting.runbooks import runbook, runbook_path
from monitoring.boards.catalogue import BOARDS
from monitoring.boards.grafana import dashboard_json

ROOT: Final = Path(__file__).resolve().parent.parent
RULES: Final = "monitoring/rules/lmerge.rules.yaml"
RULE_TESTS: Final = "monitoring/rules/lmerge.rules.test.yaml"
DASHBOARDS: Final = "monitoring/dashboards"
CHART_DASHBOARDS: Final = "charts/lmerge/files/dashboards"
CHART_RULES: Final = "charts/lmerge/files/rules/lmerge.rules.yaml"


def files() -> dict[str, str]:
    """Return the text of each generated file by its path from the repository's root."""
    rules = rules_file(ALERTS)
    pages = {runbook_path(alert): runbook(alert, ROOT) for alert in ALERTS}
    boards = {
        f"{folder}/lmerge-{board.uid}.json": dashboard_json(board)
        for folder in (DASHBOARDS, CHART_DASHBOARDS)
        for board in BOARDS
    }
    return {RULES: rules, CHART_RULES: rules, RULE_TESTS: promtool_file(ALERTS, Path(RULES).name), **pages, **boards}
