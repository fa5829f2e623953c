"""The verdict of one drill: findings and pauses against limits. Pure.

Called by the runner, and read by the reports. A drill passes if the stream was right, no gap was reported, every fault
took place, and no limit was exceeded. Nothing lost, nothing twice and no contradiction are no limits that can be set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lmerge_controller.drill.judging.judge import ProbeFindings
from lmerge_controller.drill.judging.pauses import gaps_ms, longest_pause_ms, percentile

# A pause that begins so soon after the end of a fault still counts as the fault's: the return also disturbs.
SETTLE_S: Final = 0.5


@dataclass(frozen=True)
class DrillLimits:
    """What a drill may cost. None: no limit.

    ``pause_ms``: the longest time without output around a fault. ``stall_ms``: the longest time in which the stable
    point stands. ``recovery_s``: from the undoing of a fault until the redundancy is back.
    """

    pause_ms: float | None = None
    stall_ms: float | None = None
    recovery_s: float | None = None


@dataclass(frozen=True)
class FaultRecord:
    """A fault that took place, in monotonic seconds.

    ``until_s``: when it was undone. ``recovered_s``: when the redundancy was back; None: it did not come back in time.
    ``problem``: why it did not take place as planned, or empty.
    """

    what: str
    victim: str
    at_s: float
    until_s: float
    recovered_s: float | None = None
    problem: str = ""

    def pause_ms(self, times_s: Sequence[float], *, ended_s: float) -> float:
        """Return the longest pause, in milliseconds, that begins between the fault and the end of what it disturbs."""
        until_s = max(self.until_s, self.recovered_s or 0.0) + SETTLE_S
        return longest_pause_ms(times_s, self.at_s, until_s, ended_s=ended_s)


@dataclass(frozen=True)
class FaultWindow:
    """What the output did around one fault. Pauses are in milliseconds; ``recovery_s`` None: no recovery was seen."""

    fault: FaultRecord
    pause_ms: float
    stall_ms: float
    recovery_s: float | None


@dataclass(frozen=True)
class PauseSummary:
    """The distribution of the pauses around the faults, and of the quiet stream before them, in milliseconds."""

    faults: int
    p50_ms: float
    p99_ms: float
    largest_ms: float
    quiet_p99_ms: float
    quiet_largest_ms: float


@dataclass(frozen=True)
class DrillVerdict:
    """The result of one drill. ``reasons``: why it failed; empty: it passed."""

    findings: ProbeFindings
    windows: tuple[FaultWindow, ...]
    pauses: PauseSummary
    gaps: int
    reasons: tuple[str, ...]

    @property
    def has_passed(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.reasons


def judged(
    findings: ProbeFindings, faults: Sequence[FaultRecord], limits: DrillLimits, *, ended_s: float, gaps: int = 0
) -> DrillVerdict:
    """Return the verdict. ``ended_s``: when the recording ended; ``gaps``: stretches that the reader was warned of."""
    windows = tuple(_window(findings, fault, ended_s) for fault in faults)
    reasons = [*_flaws(findings, gaps), *_not_done(faults), *_exceeded(windows, limits)]
    return DrillVerdict(findings, windows, _summary(findings, windows), gaps, tuple(reasons))


def _window(findings: ProbeFindings, fault: FaultRecord, ended_s: float) -> FaultWindow:
    pause, stall = (fault.pause_ms(times, ended_s=ended_s) for times in (findings.arrivals_s, findings.progress_s))
    recovery = None if fault.recovered_s is None else max(0.0, fault.recovered_s - fault.until_s)
    return FaultWindow(fault, pause, stall, recovery)


def _summary(findings: ProbeFindings, windows: Sequence[FaultWindow]) -> PauseSummary:
    arrivals = findings.arrivals_s
    first = min((window.fault.at_s for window in windows), default=float("inf"))
    quiet = gaps_ms(arrivals, arrivals[0], first) if arrivals else []
    pauses = [window.pause_ms for window in windows]
    return PauseSummary(
        len(windows),
        percentile(pauses, 0.5),
        percentile(pauses, 0.99),
        max(pauses, default=0.0),
        percentile(quiet, 0.99),
        max(quiet, default=0.0),
    )


def _flaws(findings: ProbeFindings, gaps: int) -> list[str]:
    found = [f"{count} {kind}" for kind, count in findings.counts if count]
    if gaps:
        found.append(f"{gaps} gaps reported to the reader")
    if not findings.expected:
        found.append("the probe published nothing")
    return found


def _not_done(faults: Sequence[FaultRecord]) -> list[str]:
    problems = [f"{fault.what} {fault.victim}: {fault.problem}" for fault in faults if fault.problem]
    return problems if faults else ["no fault took place"]


def _exceeded(windows: Sequence[FaultWindow], limits: DrillLimits) -> list[str]:
    found = []
    for window in windows:
        name = f"{window.fault.what} {window.fault.victim}".rstrip()
        if limits.pause_ms is not None and window.pause_ms > limits.pause_ms:
            found.append(f"{name}: the output paused {window.pause_ms:,.0f} ms, the limit is {limits.pause_ms:,.0f} ms")
        if limits.stall_ms is not None and window.stall_ms > limits.stall_ms:
            found.append(
                f"{name}: the stable point stood {window.stall_ms:,.0f} ms, the limit is {limits.stall_ms:,.0f} ms"
            )
        if limits.recovery_s is None or window.fault.problem:
            continue
        if window.recovery_s is None:
            found.append(f"{name}: the redundancy did not come back within {limits.recovery_s:,.0f} s")
        elif window.recovery_s > limits.recovery_s:
            found.append(
                f"{name}: the redundancy came back after {window.recovery_s:,.1f} s, "
                f"the limit is {limits.recovery_s:,.0f} s"
            )
    return found
