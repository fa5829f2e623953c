"""Mutual consistency of inputs (III.B), which C1-C3 assume, as an executable definition.

Prefixes of streams are mutually consistent if each can be extended so that all reconstitute to the same TDB. With the
elements of Example 5, the prefix's own stable(L) limits its extensions. For each (p, Vs):

* ``Vs >= L``: events may still be added, changed or removed.
* ``Vs < L``: no event is added or removed any more. Ends below L stay. The other ends may change, but not to below L.
* An insert-only input does not change its events. An ordered input adds no event before its largest Vs.
* An input that joins late (V.B) sets no limit for events that end before its join_at.

So each prefix fixes, for a range of times x, how many events of (p, Vs) end at x or later in any TDB that it can still
be extended to. The prefixes are mutually consistent if one count, which never grows with x, satisfies all of them.
Where (p, Vs) is a key, the count is at most one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from lmerge.core.compatible import InputPrefix, Key, ends_by_key, named
from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.core.properties import INSERT_ONLY, ORDERED, STRICTLY_ORDERED, closure


def contradictions(inputs: Sequence[InputPrefix], *, multiset: bool = False) -> dict[Key, str]:
    """Return where inputs contradict each other, with a description, by (Vs, payload) in ascending order.

    Empty if they do not. ``multiset``: the R4 form; otherwise (p, Vs) must be a key everywhere. All Tdbs must keep
    frozen events. O(size of all TDBs times the number of inputs).
    """
    views = [_View.of(prefix) for prefix in inputs]
    found = {}
    for key in sorted(set[Key]().union(*(view.ends for view in views))):
        problem = _contradiction(key, views, multiset)
        if problem is not None:
            found[key] = f"{named(key)}: {problem}"
    return found


class _View(NamedTuple):
    """One prefix. ``ends``: of its events, by key. ``complete_below``: no event with a smaller Vs can be added."""

    name: str
    join_at: int
    stable: int
    insert_only: bool
    complete_below: int
    ends: dict[Key, Counter[int]]

    @classmethod
    def of(cls, prefix: InputPrefix) -> _View:
        promises, stable = closure(prefix.promises), prefix.tdb.stable_point
        ends = ends_by_key(prefix.tdb)
        insert_only = INSERT_ONLY in promises
        last_vs = max((vs for vs, _ in ends), default=NEG_INF)
        complete_below = stable
        if insert_only and ORDERED in promises and last_vs > NEG_INF:
            complete_below = max(stable, last_vs + (STRICTLY_ORDERED in promises))
        return cls(prefix.name, prefix.join_at, stable, insert_only, complete_below, ends)


class _Claim(NamedTuple):
    """What one prefix requires of any TDB: ``at_least(x)`` events end at x or later, for ``low <= x <= high``.

    If low > high: at most that many events end at ``low`` or later.
    """

    name: str
    ends: list[int]  # ascending
    low: int
    high: int

    def at_least(self, x: int) -> int:
        return len(self.ends) - bisect_left(self.ends, x)


class _Count(NamedTuple):
    """The number of events that end at some time or later, as required by the input ``name``."""

    events: int
    name: str


def _contradiction(key: Key, views: Sequence[_View], multiset: bool) -> str | None:
    vs = key[0]
    claims, added = [], Counter[int]()
    adders: dict[int, str] = {}
    for view in views:
        ends = view.ends.get(key, Counter())
        if not multiset and ends.total() > 1:
            return f"input {view.name!r} has {ends.total()} events, and this is a key"
        low = max(view.join_at, vs + 1)
        if vs < view.complete_below:
            high = INF if view.insert_only else view.stable
            claims.append(_Claim(view.name, sorted(ends.elements()), low, high))
        elif view.insert_only:
            for ve, count in ends.items():
                if ve >= low and count > added[ve]:
                    added[ve], adders[ve] = count, view.name
    return _first_unsatisfied(claims, added, adders, at_most=None if multiset else 1)


def _first_unsatisfied(
    claims: list[_Claim], added: Counter[int], adders: dict[int, str], at_most: int | None
) -> str | None:
    """Return the first problem, going down through the times at which a count can change with the smallest count."""
    count = _Count(0, "")
    for x in sorted(_times(claims) | set(added), reverse=True):
        if added[x]:
            count = _Count(count.events + added[x], adders[x])
        fixed = [_Count(claim.at_least(x), claim.name) for claim in claims if claim.low <= x <= claim.high]
        bounds = [_Count(claim.at_least(claim.high), claim.name) for claim in claims if claim.high < x == claim.low]
        if fixed:
            fewest, most = min(fixed), max(fixed)
            if fewest.events < max(most.events, count.events):
                return _problem_text(x, most if most.events > fewest.events else count, fewest)
            count = most
        for bound in bounds:
            if bound.events < count.events:
                return _problem_text(x, count, bound)
        if at_most is not None and count.events > at_most:
            return f"{count.events} events are needed by input {count.name!r} and others, and this is a key"
    return None


def _times(claims: list[_Claim]) -> set[int]:
    times = set()
    for claim in claims:
        times |= {claim.low, claim.high} if claim.low <= claim.high else {claim.low}
        for ve in claim.ends:
            times |= {x for x in (ve, ve + 1) if claim.low <= x <= claim.high}
    return times


def _problem_text(x: int, more: _Count, fewer: _Count) -> str:
    which = f"that end at {show_time(x)} or later"
    return f"{more.events} {which} by input {more.name!r}, {fewer.events} by input {fewer.name!r}"
