"""What the nodes of a plan have counted in a run, as lines for its picture."""

from __future__ import annotations

from lmerge.core.elements import NEG_INF, show_time
from lmerge.temporal.entrance import StreamEntrance
from lmerge.temporal.runs.parts import RunPart


def part_notes(part: RunPart) -> list[str]:
    """Return what an operator has taken and emitted, what it keeps, what feedback has saved, and what holds it back."""
    counters, operator = part.counters, part.operator
    lines = [f"{counters.taken:,} in, {counters.emitted:,} out"]
    lines.append(_kept(operator.live(), operator.stable))
    saved = [("not evaluated", operator.skipped), ("freed", operator.purged)]
    if any(number for _, number in saved):
        lines.append(", ".join(f"{number:,} {what}" for what, number in saved if number))
    held_by = operator.held_by()
    if held_by is not None:
        lines.append(str(held_by))
    if operator.failed:
        lines.append(f"{operator.failed:,} failed, dropped")
    return lines


def source_notes(entrance: StreamEntrance) -> list[str]:
    """Return the live events of a source, its stable point, and what was late."""
    lines = [_kept(len(entrance.live), entrance.live.stable)]
    if entrance.dropped or entrance.moved:
        lines.append(f"late: {entrance.dropped:,} dropped, {entrance.moved:,} moved")
    return lines


def _kept(live: int, stable: int) -> str:
    return f"{live:,} live" if stable == NEG_INF else f"{live:,} live, stable {show_time(stable)}"
