"""The report of drills for people at a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from lmerge_controller.drill.judging.verdict import DrillVerdict, FaultWindow
from lmerge_controller.drill.judging.watched import WatchVerdict
from lmerge_controller.drill.report.result import DrillResult, DrillStatus


def result_text(result: DrillResult) -> str:
    """Return the lines of one drill, each ended by a newline."""
    lines = [f"{result.status.value.upper():8} {result.scenario.name}: {result.scenario.summary}"]
    lines += [f"         {reason}" for reason in result.reasons]
    if result.verdict is not None:
        lines += [f"         {line}" for line in _verdict_lines(result.verdict)]
    lines += [f"         {line}" for watched in result.watched for line in watched_lines(watched)]
    return "".join(f"{line}\n" for line in lines)


def watched_lines(watched: WatchVerdict) -> list[str]:
    """Return the lines of a user's stream: before the first fault, and around each."""
    stream = watched.stream
    quiet = f"before the first fault it paused at most {watched.quiet_pause_ms:,.0f} ms"
    stood = f"its stable point stood at most {watched.quiet_stall_ms:,.0f} ms"
    lines = [f"your merge {stream.merge}: {stream.elements:,} elements, {stream.gaps} gaps; {quiet}, {stood}"]
    for window in watched.windows:
        name = f"{window.fault.what} {window.fault.victim}".rstrip()
        lines.append(f"  {name}: it paused {window.pause_ms:,.0f} ms, its stable point stood {window.stall_ms:,.0f} ms")
    return lines


def summary_text(results: Sequence[DrillResult]) -> str:
    """Return the last line of a report: how many drills passed, failed and were refused."""
    counts = [(status.value, sum(result.status is status for result in results)) for status in DrillStatus]
    faults = sum(len(result.verdict.windows) for result in results if result.verdict is not None)
    parts = [f"{count} {name}" for name, count in counts if count]
    return f"{', '.join(parts) or 'no drills'}; {faults} faults\n"


def _verdict_lines(verdict: DrillVerdict) -> list[str]:
    findings, pauses = verdict.findings, verdict.pauses
    wrong = ", ".join(f"{count} {kind}" for kind, count in findings.counts)
    lines = [f"{findings.delivered:,} of {findings.expected:,} events; {wrong}; {verdict.gaps} gaps"]
    lines += [_window_line(window) for window in verdict.windows]
    lines.append(
        f"pauses: p50 {pauses.p50_ms:,.0f} ms, largest {pauses.largest_ms:,.0f} ms; "
        f"before the first fault: p99 {pauses.quiet_p99_ms:,.0f} ms, largest {pauses.quiet_largest_ms:,.0f} ms"
    )
    return lines + [f"{flaw.kind}: {flaw.text}" for flaw in findings.flaws]


def _window_line(window: FaultWindow) -> str:
    fault = window.fault
    back = "not whole again" if window.recovery_s is None else f"whole again after {window.recovery_s:.1f} s"
    return (
        f"{fault.what} {fault.victim} for {fault.until_s - fault.at_s:.1f} s: output paused {window.pause_ms:,.0f} ms, "
        f"stable point stood {window.stall_ms:,.0f} ms, {back}"
    )
