"""The ways in which an easy version of the algebra gets a sentence wrong, and the native defects that are it.

The phrases are those of ``LISTED`` in ``temporal_listed``, which has the defects in Python.
"""

from collections.abc import Mapping

from seeded import Defect

DEFECTS: tuple[Defect, ...] = ()

READS_NO_ENDS = "modules that read ends of events, or lifetimes of their own, run in Python"
USERS = "users' modules run in Python"
PLANS = "plans, and what they promise, are in Python"
GRAPH = "the graph of operators is in Python"
REPLICA = "replicas and their sources are in Python"

LISTED_NATIVE: Mapping[str, tuple[str, ...] | str] = {
    "<= for < in membership": (
        "native windows: an event that is cut short stays in the window that begins at its end",
    ),
    "<= for < in closing, hf and the snapshot's boundary (D2 to D4)": (
        "native windows: a window on a grid closes behind its end",
        "native windows: a snapshot closes at its end (D4)",
        "native windows: a session closes when the stable point is the gap behind its end",
    ),
    "right clip (D1)": READS_NO_ENDS,
    "affected windows by the changed part only": (
        "native windows: an edge that is new does not reach the snapshot before it (D7)",
    ),
    "full retraction instead of adjust": ("several changes of one result are taken back and inserted (D8)",),
    "stable before results": (
        "native windows: a stable passes snapshots that were not emitted (D9)",
        "native windows: a stable passes count windows that were not emitted (D9)",
        "native windows: a revision takes back a snapshot that the stable point has passed (D9)",
    ),
    "m from live events": (
        "native windows: the watermark is that of the last batch",
        "native windows: the watermark falls when the event that starts last is removed",
    ),
    "m per group": ("native windows: the watermark is that of the group",),
    "window of the start only": ("native windows: an event belongs to the window of its start alone",),
    "truncating grid division": ("native windows: the grid is truncated below zero",),
    "N events instead of N starts": ("native windows: count windows count events and not their starts",),
    "overlap membership for count windows": ("native windows: count windows have what overlaps them",),
    "inf as an end": ("native windows: +inf is counted as an end",),
    "clip kept between windows": READS_NO_ENDS,
    "left clip for right": READS_NO_ENDS,
    "unchanged lets the past through": READS_NO_ENDS,
    "empty window has a count of 0": ("native windows: a snapshot without events has a count of 0",),
    "coalesced neighbours": ("native windows: an edge that two events have goes with the first of them",),
    "float sum by arrival": ("native aggregates: floats are added as they come",),
    "NaN never removed": ("native aggregates: NaN is never removed", "native aggregates: an infinity is never removed"),
    "removal with the new payload": ("native windows: an event leaves with the values of the one before it",),
    "state shared": ("native windows: all windows of a grid share their states",),
    "group never freed": ("native windows: a group that is empty is kept",),
    "stable visits all groups": (
        "native windows: a stable visits every group of count windows and sessions",
        "native windows: a stable visits every group of snapshots",
        "a stable visits every key of a join",
    ),
    "event deleted at RE = c": (
        "the stable point freezes what ends at it",
        "a join drops an event that ends at its stable point",
    ),
    "join state dropped at RE < cl only": ("a join drops an event although its match can still come",),
    "anti-join right side dropped by feedback": ("feedback leaves out right events that decide where a part starts",),
    "skipped event adjusted instead of inserted": ("an event that was left out is adjusted instead of inserted",),
    "snapshot without bits of skipped events": (
        "a restored operator has left nothing out",
        "a restored operator has one copy of what is left out",
    ),
    "multicast feedback takes the max": GRAPH,
    "union takes the max stable": ("a union is stable where one of its inputs is",),
    "ended input holds time": ("a union is held by an input that has ended",),
    "top-k by row_number": ("native top-k: rows are numbered, and ties at k are cut",),
    "join column order by plan": ("the columns of the input that changes come first",),
    "hash order in output": ("parts without a match come in the order of a table",),
    "form final emits an open window": ("native windows: the form final emits snapshots that are open",),
    "derived property ignores the form": PLANS,
    "grouped snapshot promises ordered": PLANS,
    "sequence of batches changes the TDB": (
        "native windows: the last start of a batch is its watermark, not the greatest",
    ),
    "module exception swallowed": ("native windows: the failure of a module is swallowed",),
    "non-deterministic module not named": USERS,
    "late policy off by one": (
        "a change at the stable point is late",
        "a late event is moved though nothing of it is left",
    ),
    "point event with RE = LE": (
        "native windows: a point result ends where it begins",
        "a point event may last two units of time",
        "a point event may end before it begins",
    ),
    "late edge sample ignored": ("a late sample does not cut the one before it short",),
    "two samples at one time by arrival": ("of two samples at one time the one that came last holds",),
    "the N-1 windows before a new start not computed anew": (
        "native windows: the windows before a new start are not computed anew",
    ),
    "clipped lifetime removed with the new RE": READS_NO_ENDS,
    "time-bound compares LE instead of sync time": USERS,
    "set_duration passes the input's Vold on": ("a duration that is set changes with the end of the event",),
    "shift forgets the stable, or the feedback": (
        "a shift leaves the stable point where it is",
        "a shift asks for what its own output needs",
    ),
    "fused operators call a UDF twice": ("native expressions: a call in two branches is made twice for a row",),
    "a shared part fast-forwards for one consumer": GRAPH,
    "attached query misses live events": (
        "a batch leaves out of the live events what ends at its stable point",
        "an event that came as columns and ends at the stable point is forgotten",
    ),
    "cleanse releases at Ve = Vc": ("cleanse releases an event that ends at the stable point",),
    "percentile rank off by one": ("native aggregates: the rank of a percentile is off by one",),
    "integer average truncated": ("native aggregates: the average of integers is truncated",),
    "left join has match and NULL piece for one instant": ("a match and its absence are in the output at one time",),
    "late event counted and passed on": ("a late event is counted and passed on",),
    "JSON of a plan loses a policy": PLANS,
    "spanning event counted once per pane": ("an event leaves the windows of a grid one too late",),
    "min not computed anew when the minimum leaves": ("native aggregates: the smallest value stays when it leaves",),
    "windows_max not enforced": ("native windows: a step opens one window more than it may",),
    "source seek skips a half-frozen event": REPLICA,
    "restart repeats a batch": REPLICA,
    "a module's declared version ignored at restore": USERS,
}
"""Each way, and the names of the native defects that are it; or why there can be none."""
