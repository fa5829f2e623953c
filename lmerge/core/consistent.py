"""Mutual consistency of inputs (III.B): what C1-C3 assume of them, as an executable definition.

Prefixes of streams are mutually consistent if each can be extended so that all mean the same TDB. With the elements of
Example 5 an extension is bounded by the prefix's own stable(L), and this decides it per (p, Vs):

* ``Vs >= L``: anything may still come, change or go.
* ``Vs < L``: no event comes or goes any more. Ends below L stay; of the others it is known that they are not below L.
* An insert-only input changes nothing that it has; an ordered one adds nothing before its largest Vs.
* An input that joins late (V.B) settles nothing about events that end before its join_at.

So each prefix fixes, for a range of times x, how many events of (p, Vs) end at x or later in any TDB that it can
still come to mean. The prefixes are mutually consistent if one count satisfies them all, which never grows with x.
Where (p, Vs) is a key, it is at most one.
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
    """Where inputs contradict each other, and how, by (Vs, payload) in ascending order; empty if they nowhere do.

    ``multiset``: the R4 form; otherwise (p, Vs) must be a key everywhere. All Tdbs must keep frozen events. O(size of
    all TDBs times the number of inputs).
    """
    views = [_View.of(prefix) for prefix in inputs]
    found = {}
    for key in sorted(set[Key]().union(*(view.ends for view in views))):
        problem = _contradiction(key, views, multiset)
        if problem is not None:
            found[key] = f"{named(key)}: {problem}"
    return found


def mutually_consistent(inputs: Sequence[InputPrefix], *, multiset: bool = False) -> bool:
    """III.B: whether there is one TDB that every prefix can still come to mean."""
    return not contradictions(inputs, multiset=multiset)


class _View(NamedTuple):
    """One prefix: ``ends``: those of its events from join_at on, by key. ``complete_below``: no event comes before."""

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
    """Any TDB has ``at_least(x)`` events that end at x or later, for ``low <= x <= high``; if low > high: at most that
    many from ``low`` on.
    """

    name: str
    ends: list[int]  # ascending
    low: int
    high: int

    def at_least(self, x: int) -> int:
        return len(self.ends) - bisect_left(self.ends, x)


class _Count(NamedTuple):
    """So many events end at some time or later, by what the input ``name`` has."""

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
    """Go down through the times at which a count can change, with the smallest count that is left."""
    count = _Count(0, "")
    for x in sorted(_times(claims) | set(added), reverse=True):
        if added[x]:
            count = _Count(count.events + added[x], adders[x])
        fixed = [_Count(claim.at_least(x), claim.name) for claim in claims if claim.low <= x <= claim.high]
        bounds = [_Count(claim.at_least(claim.high), claim.name) for claim in claims if claim.high < x == claim.low]
        if fixed:
            fewest, most = min(fixed), max(fixed)
            if fewest.events < max(most.events, count.events):
                return _in_words(x, most if most.events > fewest.events else count, fewest)
            count = most
        for bound in bounds:
            if bound.events < count.events:
                return _in_words(x, count, bound)
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


def _in_words(x: int, more: _Count, fewer: _Count) -> str:
    which = f"that end at {show_time(x)} or later"
    return f"{more.events} {which} by input {more.name!r}, {fewer.events} by input {fewer.name!r}"
