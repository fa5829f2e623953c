"""The report of drills as JSON: everything that the other forms show, for programs.

Times of faults are seconds since the beginning of their drill; pauses are milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any, Final

from lmerge import __version__
from lmerge_controller.drill.judging.verdict import DrillVerdict, FaultWindow
from lmerge_controller.drill.judging.watched import WatchVerdict
from lmerge_controller.drill.report.result import DrillResult, exit_code

# Readers refuse a form that they do not have.
FORM: Final = 1


def report_json(results: Sequence[DrillResult]) -> str:
    """Return the report as one line of JSON, ended by a newline."""
    report = {
        "form": FORM,
        "lmerge": __version__,
        "exit_code": exit_code(results),
        "drills": [_drill(result) for result in results],
    }
    return json.dumps(report) + "\n"


def moment(at: float) -> str:
    """Return a wall time, in seconds since the epoch, as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _drill(result: DrillResult) -> dict[str, Any]:
    return {
        "name": result.scenario.name,
        "summary": result.scenario.summary,
        "target": result.target,
        "status": result.status.value,
        "reasons": list(result.reasons),
        "began_at": moment(result.began_at),
        "seconds": round(result.seconds, 3),
        "limits": asdict(result.scenario.limits),
        **({} if result.verdict is None else _verdict(result.verdict, result.began_s)),
        "watched": [_watched(watched) for watched in result.watched],
    }


def _watched(watched: WatchVerdict) -> dict[str, Any]:
    return {
        "merge": watched.stream.merge,
        "elements": watched.stream.elements,
        "gaps": watched.stream.gaps,
        "quiet_pause_ms": round(watched.quiet_pause_ms, 3),
        "quiet_stall_ms": round(watched.quiet_stall_ms, 3),
        "faults": [
            {"pause_ms": round(window.pause_ms, 3), "stall_ms": round(window.stall_ms, 3)} for window in watched.windows
        ],
        "reasons": list(watched.reasons),
    }


def _verdict(verdict: DrillVerdict, began_s: float) -> dict[str, Any]:
    findings = verdict.findings
    return {
        "events": {
            "expected": findings.expected,
            "delivered": findings.delivered,
            "elements": findings.elements,
            "gaps": verdict.gaps,
            **{kind.replace(" ", "_"): count for kind, count in findings.counts},
        },
        "pauses": {name: round(value, 3) for name, value in asdict(verdict.pauses).items()},
        "faults": [_fault(window, began_s) for window in verdict.windows],
        "flaws": [
            {
                "kind": flaw.kind,
                "at_seconds": None if flaw.at_s is None else round(flaw.at_s - began_s, 3),
                "text": flaw.text,
            }
            for flaw in findings.flaws
        ],
    }


def _fault(window: FaultWindow, began_s: float) -> dict[str, Any]:
    fault = window.fault
    return {
        "what": fault.what,
        "victim": fault.victim,
        "at_seconds": round(fault.at_s - began_s, 3),
        "undone_at_seconds": round(fault.until_s - began_s, 3),
        "recovery_seconds": None if window.recovery_s is None else round(window.recovery_s, 3),
        "pause_ms": round(window.pause_ms, 3),
        "stall_ms": round(window.stall_ms, 3),
        "problem": fault.problem,
    }
