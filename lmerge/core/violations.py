"""The errors for broken promises of an input: one function per kind, so the messages are the same everywhere.

Each function returns the error. It names the element, what was promised and what came. The caller raises it. The codes
are stable: metrics, tests and users' alerts rely on them.
"""

from __future__ import annotations

from typing import Final

from lmerge.core.batch import Row, element_of
from lmerge.core.elements import show_time
from lmerge.errors import InputViolation


def end_before_start(name: str, row: Row, index: int) -> InputViolation:
    """Return the error for an element with Ve < Vs."""
    came = f"it ends at {show_time(row[2])}, before its start"
    return InputViolation("end-before-start", name, str(element_of(row)), "Ve >= Vs", came, index=index)


def insert_below_stable(name: str, row: Row, index: int, stable: int) -> InputViolation:
    """Return the error for an insert below the input's own stable point."""
    return InputViolation(
        "insert-below-stable",
        name,
        str(element_of(row)),
        f"no insert below its own stable({show_time(stable)})",
        f"Vs is {show_time(row[1])}",
        index=index,
    )


def adjust_below_stable(name: str, row: Row, index: int, stable: int) -> InputViolation:
    """Return the error for an adjust from or to an end below the input's own stable point."""
    return InputViolation(
        "adjust-below-stable",
        name,
        str(element_of(row)),
        f"no adjust with Vold or Ve below its own stable({show_time(stable)})",
        f"Vold is {show_time(row[3])} and Ve is {show_time(row[2])}",
        index=index,
    )


def unknown_event(name: str, row: Row, index: int, known: str) -> InputViolation:
    """Return the error for an adjust of an event that the input does not have; ``known``: what it has (see below)."""
    return InputViolation(
        "unknown-event",
        name,
        str(element_of(row)),
        "to adjust only events that it inserted",
        f"for this payload and Vs it has {known}",
        index=index,
    )


KNOWN_TO_R3_MINUS: Final = "another end or no event"


def known_end(ve: int | None) -> str:
    """Return what an input has under R3, where (Vs, payload) is a key."""
    return "no event" if ve is None else f"an event that ends at {show_time(ve)}"


def known_ends(ends: list[int] | None) -> str:
    """Return what an input has under R4: ends, ascending."""
    return f"ends {ends}" if ends else "no event"


def known_live_ends(ends: list[int] | None) -> str:
    """Return what a single stream has; its frozen events are not kept."""
    return f"ends {ends}" if ends else "no live event"


def duplicate_key(name: str, row: Row, index: int) -> InputViolation:
    """Return the error for a second event with one (Vs, payload) where that is a key."""
    return InputViolation(
        "duplicate-key",
        name,
        str(element_of(row)),
        "that (Vs, payload) is a key (key)",
        "it already has an event with this Vs and payload",
        index=index,
        property_name="key",
    )


def out_of_order(name: str, row: Row, index: int, last_vs: int, *, strictly: bool) -> InputViolation:
    """Return the error for a Vs that decreases, or does not increase where that was promised."""
    promise = "strictly-ordered" if strictly else "ordered"
    rule = "Vs increases" if strictly else "Vs does not decrease"
    return InputViolation(
        "out-of-order",
        name,
        str(element_of(row)),
        f"that {rule} ({promise})",
        f"Vs is {show_time(row[1])} after {show_time(last_vs)}",
        index=index,
        property_name=promise,
    )


def adjust_not_promised(name: str, row: Row, index: int) -> InputViolation:
    """Return the error for an adjust from an input that promised inserts only."""
    return InputViolation(
        "adjust-not-promised",
        name,
        str(element_of(row)),
        "only inserts and stables (insert-only)",
        "an adjust came",
        index=index,
        property_name="insert-only",
    )


def ties_differ(name: str, row: Row, index: int) -> InputViolation:
    """Return the error for equal Vs in another order than on the other inputs."""
    return InputViolation(
        "ties-differ",
        name,
        str(element_of(row)),
        "the same order among equal Vs as every other input (deterministic-ties)",
        "it skipped this event before",
        index=index,
        property_name="deterministic-ties",
    )


def stable_backwards(name: str, row: Row, index: int, stable: int) -> InputViolation:
    """Return the error for a stable point that goes back."""
    return InputViolation(
        "stable-backwards",
        name,
        str(element_of(row)),
        f"that stable does not go back from {show_time(stable)}",
        f"Vc is {show_time(row[1])}",
        index=index,
    )
