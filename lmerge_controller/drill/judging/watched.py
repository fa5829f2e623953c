"""What a fault did to a stream of the user's: its pauses, and whether its stable point went on. Pure.

Called by the runner. The truth of this stream is not known, and neither is its pace. So its pauses are reported beside
those of its quiet time, and have no limits. What fails a drill: a gap, an end, or a stable point that went on before
the first fault and not after the last one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lmerge_controller.drill.judging.pauses import gaps_ms
from lmerge_controller.drill.judging.verdict import FaultRecord

# A stable point that moved less often before the first fault has no pace that it could have lost.
MOVES_MIN: Final = 2


@dataclass(frozen=True)
class WatchedStream:
    """What a reader of a user's merge has received. Times are monotonic seconds and ascend.

    ``progress_s``: when the stable point went on. ``problem``: why it could not be read to the end, or empty.
    """

    merge: str
    arrivals_s: tuple[float, ...] = ()
    progress_s: tuple[float, ...] = ()
    elements: int = 0
    gaps: int = 0
    is_complete: bool = False
    problem: str = ""


@dataclass(frozen=True)
class WatchedWindow:
    """A user's stream around one fault: its longest pause, and how long its stable point stood, in milliseconds."""

    fault: FaultRecord
    pause_ms: float
    stall_ms: float


@dataclass(frozen=True)
class WatchVerdict:
    """What is reported of a user's stream. The quiet times are the longest before the first fault, in milliseconds."""

    stream: WatchedStream
    windows: tuple[WatchedWindow, ...]
    quiet_pause_ms: float
    quiet_stall_ms: float
    reasons: tuple[str, ...]


def watch_verdict(stream: WatchedStream, faults: Sequence[FaultRecord], *, ended_s: float) -> WatchVerdict:
    """Return the verdict over a user's stream. ``ended_s``: when the recording ended."""
    first_s = min((fault.at_s for fault in faults), default=ended_s)
    quiet_ms = max(gaps_ms(stream.arrivals_s, 0.0, first_s), default=0.0)
    stood_ms = max(gaps_ms(stream.progress_s, 0.0, first_s), default=0.0)
    windows = tuple(_window(stream, fault, ended_s) for fault in faults)
    return WatchVerdict(stream, windows, quiet_ms, stood_ms, tuple(_reasons(stream, faults)))


def has_gone_on(stream: WatchedStream, faults: Sequence[FaultRecord]) -> bool:
    """Whether the stable point moved after the last fault; True where it has no pace, or nothing more to come."""
    if stream.is_complete or not faults:
        return True
    first_s, last_s = min(fault.at_s for fault in faults), max(fault.until_s for fault in faults)
    moves = len(stream.progress_s)
    return bisect_right(stream.progress_s, first_s) < MOVES_MIN or bisect_right(stream.progress_s, last_s) < moves


def _window(stream: WatchedStream, fault: FaultRecord, ended_s: float) -> WatchedWindow:
    pause, stall = (fault.pause_ms(times, ended_s=ended_s) for times in (stream.arrivals_s, stream.progress_s))
    return WatchedWindow(fault, pause, stall)


def _reasons(stream: WatchedStream, faults: Sequence[FaultRecord]) -> list[str]:
    found = []
    if stream.problem:
        found.append(f"{stream.merge}: its reader has failed: {stream.problem}")
    if stream.gaps:
        found.append(f"{stream.merge}: {stream.gaps} gaps reported to its reader")
    if not has_gone_on(stream, faults):
        found.append(f"{stream.merge}: its stable point has not gone on after the last fault")
    return found
