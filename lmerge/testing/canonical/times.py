"""Times in SQL: the infinities, and arithmetic that does not overflow."""

from __future__ import annotations

from typing import Final

INF: Final = 2**63 - 1
NEG_INF: Final = -(2**63)


def wide(expression: str) -> str:
    """Return an expression in 128 bits, so that sums of times do not overflow."""
    return f"CAST({expression} AS HUGEINT)"


def saturated(expression: str) -> str:
    """Return a time that stays within 64 bits: beyond, it is the infinity."""
    return f"CAST(greatest(least({expression}, {INF}), {NEG_INF}) AS BIGINT)"


def later(expression: str, d: int) -> str:
    """Return a time ``d`` units later, or earlier if ``d`` is negative; an infinity stays where it is."""
    moved = saturated(f"{wide(expression)} + ({d})")
    return f"CASE WHEN {expression} IN ({INF}, {NEG_INF}) THEN {expression} ELSE {moved} END"


def start_above(expression: str, hop: int, offset: int) -> str:
    """Return the smallest time of a grid above an expression: the remainder of SQL has the sign of the dividend."""
    moved = f"({wide(expression)} - ({offset}))"
    return f"({wide(expression)} - ((({moved} % {hop}) + {hop}) % {hop}) + {hop})"
