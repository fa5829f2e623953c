"""Compatibility of an output prefix with input prefixes (III.D): conditions C1-C3 as an executable definition.

Used as the oracle of the tests, by ``lmerge replay --check``, and to check samples in production. A call looks at all
TDBs: O(their size).

Remarks on the paper's text:

* C2, second bullet, prints "the event is HF and L_m <= L". The reason given, "so the output event can be adjusted to
  match any changes in TDB_m", holds only for the reverse. TDB_m may move the end to any time from L_m on, and the
  output can follow to any time from L on, so ``L <= L_m`` is needed. Where the output tracks the largest L_m, as in all
  of the paper's examples, both forms are equal. They differ for a merge that stays behind by a lag.
* An input that has left still supports what it delivered: its prefix stays among the inputs.
* An input that joins late (V.B) is right about events with ``Ve >= join_at``. So it supports and requires an end only
  where that end, or the stable point until which the event is still alive, is at or above its join_at. Its own stable
  point counts for C1 once the others have reached its join_at, or once it was admitted before that (law 1,
  docs/laws.md).

The R4 form generalises III.D's last paragraph to an output behind the largest stable point. Of the inputs with a stable
point at or above L, the one with the largest decides which ends below L the output has, and how many events are half
frozen. For ends below its join_at, the next one decides.

The conditions assume inputs that are mutually consistent: see ``consistent``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from lmerge.core.elements import INF, NEG_INF, Event, is_fully_frozen, is_half_frozen, show_payload, show_time
from lmerge.core.properties import NOTHING, Properties
from lmerge.core.tdb import Tdb

Key = tuple[int, bytes]


class InputPrefix(NamedTuple):
    """One input of the conditions. ``join_at``: the input may be wrong about events that end before it (V.B).

    ``promises``: its promises beyond the rules of a stream. Only mutual consistency depends on them.
    """

    name: str
    tdb: Tdb
    join_at: int = NEG_INF
    promises: Properties = NOTHING


class _InputEvent(NamedTuple):
    """The end that one input has for one (p, Vs), and the stable point of that input."""

    ve: int
    last: int  # L_m


def incompatibilities(
    output: Tdb,
    inputs: Sequence[InputPrefix],
    *,
    multiset: bool = False,
    right_from: int = NEG_INF,
    apart_from: Collection[Key] = (),
) -> list[str]:
    """Return every way in which ``output`` is not compatible with ``inputs``, as text; empty if it is compatible.

    ``multiset``: the R4 form; otherwise (p, Vs) must be a key everywhere (R3). ``right_from``: the largest join_at of
    an input that was admitted before it; events that end below are not checked. ``apart_from``: (Vs, payload) of other
    events that are not checked. All Tdbs must keep frozen events.
    """
    reach = _reach(inputs, right_from)
    problems = []
    if output.stable_point > reach:
        at = show_time(output.stable_point)
        problems.append(f"C1: the output is stable at {at}, no input that has joined beyond {show_time(reach)}")
    look = _multiset_problems if multiset else _key_problems
    found = look(output, inputs, right_from)
    return problems + [problem for key, problem in found if key not in apart_from]


def _reach(inputs: Sequence[InputPrefix], right_from: int) -> int:
    """Return the largest L_m of an input that has joined. Joined inputs move MaxStable to the join_at of the next."""
    reach = NEG_INF
    for prefix in sorted(inputs, key=lambda prefix: prefix.join_at):
        if prefix.join_at <= max(reach, right_from):
            reach = max(reach, prefix.tdb.stable_point)
    return reach


def _key_problems(output: Tdb, inputs: Sequence[InputPrefix], right_from: int) -> list[tuple[Key, str]]:
    by_key: dict[Key, list[_InputEvent]] = {}
    for prefix in inputs:
        last = prefix.tdb.stable_point
        for event in prefix.tdb.events():
            if min(event.ve, last) >= max(prefix.join_at, right_from):
                by_key.setdefault((event.vs, event.payload), []).append(_InputEvent(event.ve, last))
    shown: dict[Key, list[Event]] = {}
    for event in output.events():
        shown.setdefault((event.vs, event.payload), []).append(event)
    limit = output.stable_point
    problems: list[tuple[Key, str | None]] = []
    for key, events in shown.items():
        if len(events) > 1:
            problems.append((key, f"C2: the output has {len(events)} events for {named(key)}"))
        if min(events[0].ve, limit) >= right_from:
            problems.append((key, _c2(events[0], by_key.get(key, []), limit)))
    for key, input_events in by_key.items():
        problems.append((key, _c3(key, shown[key][0] if key in shown else None, input_events, limit)))
    return [(key, problem) for key, problem in problems if problem is not None]


def _c2(event: Event, input_events: list[_InputEvent], limit: int) -> str | None:
    """Check C2: an event that *may* be in the output. Return the problem, None if there is none."""
    if is_fully_frozen(event.ve, limit):
        if any(s.ve == event.ve and is_fully_frozen(s.ve, s.last) for s in input_events):
            return None
        return f"C2: {event} is fully frozen in the output and in no input"
    if is_half_frozen(event.vs, event.ve, limit):
        for s in input_events:
            if is_fully_frozen(s.ve, s.last) and limit <= s.ve:
                return None
            if is_half_frozen(event.vs, s.ve, s.last) and limit <= s.last:
                return None
        return f"C2: {event} is half frozen in the output and no input supports it"
    return None


def _c3(key: Key, event: Event | None, input_events: list[_InputEvent], limit: int) -> str | None:
    """Check C3: an event that *must* be in the output. Return the problem, None if there is none."""
    vs = key[0]
    if limit <= vs:
        return None  # it can still be added
    half_frozen = event is not None and is_half_frozen(vs, event.ve, limit)
    frozen = [s for s in input_events if is_fully_frozen(s.ve, s.last)]
    for s in frozen:
        if limit <= s.ve:
            if not half_frozen:
                return f"C3: {named(key)} ends at {show_time(s.ve)} in an input; the output cannot follow any more"
        elif event is None or event.ve != s.ve:
            return f"C3: {named(key)} is fully frozen with end {show_time(s.ve)} in an input and not in the output"
    pending = [s for s in input_events if is_half_frozen(vs, s.ve, s.last)]
    if not frozen and pending and not (limit <= max(s.last for s in pending) and half_frozen):
        return f"C3: {named(key)} is half frozen in an input and not in the output"
    return None


def _multiset_problems(output: Tdb, inputs: Sequence[InputPrefix], right_from: int) -> list[tuple[Key, str]]:
    limit = output.stable_point
    shown = ends_by_key(output)
    further = [prefix for prefix in inputs if prefix.tdb.stable_point >= limit]  # the others can still change
    further.sort(key=lambda prefix: -prefix.tdb.stable_point)
    ends = [(prefix, ends_by_key(prefix.tdb)) for prefix in further]
    keys = set(shown).union(*(by_key for _, by_key in ends))
    problems = []
    for key in sorted(key for key in keys if key[0] < limit):
        decided = INF + 1  # an input with a larger stable point has decided about ends from here on
        for prefix, by_key in ends:
            low = max(prefix.join_at, right_from)
            if low < decided:
                found = _c_r4(key, low, decided, limit, shown.get(key, Counter()), by_key.get(key, Counter()))
                problems += [(key, f"{problem} of input {prefix.name!r}") for problem in found]
                decided = low
    return problems


def _c_r4(key: Key, low: int, high: int, limit: int, has: Counter[int], needed: Counter[int]) -> list[str]:
    """Check III.D's last paragraph for the ends in [``low``, ``high``). Return the problems."""
    problems = [
        f"R4: {named(key)} ends {has[ve]} times at {show_time(ve)}, fully frozen in the output, not the {needed[ve]}"
        for ve in sorted(set(has) | set(needed))
        if low <= ve < min(limit, high) and has[ve] != needed[ve]
    ]
    half, needed_half = (sum(n for ve, n in ends.items() if ve >= limit) for ends in (has, needed))
    if low <= limit < high and half != needed_half:
        problems.append(f"R4: {named(key)} has {half} half-frozen events in the output, not the {needed_half}")
    return problems


def ends_by_key(tdb: Tdb) -> dict[Key, Counter[int]]:
    """Return how often each end occurs, by (Vs, payload)."""
    by_key: dict[Key, Counter[int]] = {}
    for event in tdb.events():
        by_key.setdefault((event.vs, event.payload), Counter())[event.ve] += 1
    return by_key


def named(key: Key) -> str:
    """Return a (Vs, payload) as text for messages."""
    return f"({show_payload(key[1])}, Vs {show_time(key[0])})"
