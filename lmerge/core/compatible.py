"""Compatibility of an output prefix with input prefixes (III.D): conditions C1-C3 as an executable definition.

The oracle of the tests, ``lmerge replay --check``, and a check for a sample in production. It looks at everything:
O(size of all TDBs) a call.

Two remarks on the paper's text:

* C2, second bullet, prints "the event is HF and L_m <= L". The reason given, "so the output event can be adjusted to
  match any changes in TDB_m", holds only the other way round: TDB_m may move the end to anything from L_m on, and the
  output can follow to anything from L on, so ``L <= L_m`` is needed. Where the output tracks the largest L_m, as in
  all of the paper's examples, both say the same. A merge held back by a lag tells them apart.
* An input that has left still supports what it said: its prefix stays among the inputs.

The R4 form generalises III.D's last paragraph to an output behind the largest stable point: of the inputs that know
about a (p, Vs), the one with the largest stable point decides which ends below L the output has, and how many events
are half frozen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from lmerge.core.elements import NEG_INF, Event, is_fully_frozen, is_half_frozen, show_payload, show_time
from lmerge.core.tdb import Tdb

Key = tuple[int, bytes]


class InputPrefix(NamedTuple):
    """One input as the conditions see it. ``join_at``: it says nothing about events that end before (V.B)."""

    name: str
    tdb: Tdb
    join_at: int = NEG_INF


class _Said(NamedTuple):
    """What one input has for one (p, Vs)."""

    ve: int
    last: int  # L_m


def incompatibilities(
    output: Tdb, inputs: Sequence[InputPrefix], *, multiset: bool = False, right_from: int = NEG_INF
) -> list[str]:
    """Every way in which ``output`` is not compatible with ``inputs``, in words; empty if it is compatible.

    ``multiset``: the R4 form; otherwise (p, Vs) must be a key everywhere (R3). ``right_from``: the largest join_at of
    an input that was admitted before it; of events that end below, nothing is asked. All Tdbs must keep frozen events.
    """
    largest = max((prefix.tdb.stable_point for prefix in inputs), default=NEG_INF)
    problems = []
    if output.stable_point > largest:
        at = show_time(output.stable_point)
        problems.append(f"C1: the output is stable at {at}, no input beyond {show_time(largest)}")
    look = _multiset_problems if multiset else _key_problems
    return problems + look(output, inputs, right_from)


def is_compatible(output: Tdb, inputs: Sequence[InputPrefix], *, multiset: bool = False) -> bool:
    """III.D: whether the output can still follow every extension of the inputs that keeps them consistent."""
    return not incompatibilities(output, inputs, multiset=multiset)


def _key_problems(output: Tdb, inputs: Sequence[InputPrefix], right_from: int) -> list[str]:
    said: dict[Key, list[_Said]] = {}
    for prefix in inputs:
        for event in prefix.tdb.events():
            said.setdefault((event.vs, event.payload), []).append(_Said(event.ve, prefix.tdb.stable_point))
    shown: dict[Key, list[Event]] = {}
    for event in output.events():
        shown.setdefault((event.vs, event.payload), []).append(event)
    limit = output.stable_point
    problems = []
    for key, events in shown.items():
        if len(events) > 1:
            problems.append(f"C2: the output has {len(events)} events for {_named(key)}")
        if min(events[0].ve, limit) >= right_from:
            problems += filter(None, [_c2(events[0], said.get(key, []), limit)])
    for key, sayings in said.items():
        sayings = [s for s in sayings if min(s.ve, s.last) >= right_from]
        problems += filter(None, [_c3(key, shown[key][0] if key in shown else None, sayings, limit)])
    return problems


def _c2(event: Event, sayings: list[_Said], limit: int) -> str | None:
    """C2: an event that *may* be in the output."""
    if is_fully_frozen(event.ve, limit):
        if any(s.ve == event.ve and is_fully_frozen(s.ve, s.last) for s in sayings):
            return None
        return f"C2: {event} is fully frozen in the output and in no input"
    if is_half_frozen(event.vs, event.ve, limit):
        for s in sayings:
            if is_fully_frozen(s.ve, s.last) and limit <= s.ve:
                return None
            if is_half_frozen(event.vs, s.ve, s.last) and limit <= s.last:
                return None
        return f"C2: {event} is half frozen in the output and no input supports it"
    return None


def _c3(key: Key, event: Event | None, sayings: list[_Said], limit: int) -> str | None:
    """C3: an event that *must* be in the output."""
    vs = key[0]
    if limit <= vs:
        return None  # it can still be added
    half_frozen = event is not None and is_half_frozen(vs, event.ve, limit)
    frozen = [s for s in sayings if is_fully_frozen(s.ve, s.last)]
    for s in frozen:
        if limit <= s.ve:
            if not half_frozen:
                return f"C3: {_named(key)} ends at {show_time(s.ve)} in an input; the output cannot follow any more"
        elif event is None or event.ve != s.ve:
            return f"C3: {_named(key)} is fully frozen with end {show_time(s.ve)} in an input and not in the output"
    pending = [s for s in sayings if is_half_frozen(vs, s.ve, s.last)]
    if not frozen and pending and not (limit <= max(s.last for s in pending) and half_frozen):
        return f"C3: {_named(key)} is half frozen in an input and not in the output"
    return None


def _multiset_problems(output: Tdb, inputs: Sequence[InputPrefix], right_from: int) -> list[str]:
    limit = output.stable_point
    shown = _ends_by_key(output)
    ends = [(prefix, _ends_by_key(prefix.tdb)) for prefix in inputs]
    ends.sort(key=lambda pair: -pair[0].tdb.stable_point)
    keys = set(shown).union(*(by_key for _, by_key in ends))
    problems = []
    for key in sorted(key for key in keys if key[0] < limit):
        has = shown.get(key, Counter())
        for prefix, by_key in ends:
            if prefix.tdb.stable_point < limit:
                break  # it does not know yet, nor does any after it
            wants = by_key.get(key, Counter())
            low = max(prefix.join_at, right_from)
            for ve in sorted(set(has) | set(wants)):
                if low <= ve < limit and has[ve] != wants[ve]:
                    problems.append(
                        f"R4: {_named(key)} ends at {show_time(ve)} {wants[ve]} times in input {prefix.name!r} "
                        f"and {has[ve]} times in the output, fully frozen"
                    )
            half, wanted = (sum(n for ve, n in c.items() if ve >= limit) for c in (has, wants))
            if low <= limit and half != wanted:
                problems.append(
                    f"R4: {_named(key)} has {wanted} half-frozen events in input {prefix.name!r}, {half} in the output"
                )
            break
    return problems


def _ends_by_key(tdb: Tdb) -> dict[Key, Counter[int]]:
    by_key: dict[Key, Counter[int]] = {}
    for event in tdb.events():
        by_key.setdefault((event.vs, event.payload), Counter())[event.ve] += 1
    return by_key


def _named(key: Key) -> str:
    return f"({show_payload(key[1])}, Vs {show_time(key[0])})"
