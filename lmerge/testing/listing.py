"""Algorithm R3 as the paper prints it, line by line: a twin for tests and the baseline of a benchmark.

The top tier is a sorted map by (Vs, Payload) as in Figure 1, and ``stable`` scans every node below ``t``. Nothing is
checked, nothing can be detached. Two things are added, because without them the listing is wrong even on legal inputs:
an adjust to Ve = Vs is "no event" (the listing would compare it with a removed output), and a removed output event does
not count as output. It closes on any input's stable(+inf), as printed.
"""

from __future__ import annotations

from typing import Final

from sortedcontainers import SortedDict

from lmerge.core.elements import NEG_INF, Adjust, Element, Insert, Stable

OUTPUT: Final = -1  # the special key of the listing's hash table


class ListingR3:
    """IV.D, Algorithm R3. ``apply`` returns the output that an element causes."""

    def __init__(self) -> None:
        self.max_stable = NEG_INF  # 1
        self.index: SortedDict = SortedDict()  # 2: (Vs, payload) -> {input: Ve}

    def apply(self, s: int, e: Element) -> list[Element]:
        """Apply one element of input ``s``; return the output elements."""
        if isinstance(e, Insert):
            return self.insert(e, s)
        if isinstance(e, Adjust):
            self.adjust(e, s)
            return []
        return self.stable(e.vc, s)

    def insert(self, e: Insert, s: int) -> list[Element]:
        out: list[Element] = []
        f = self.index.get((e.vs, e.payload))  # 4
        if f is None:  # 5
            if e.vs < self.max_stable:  # 6
                return out
            f = self.index[e.vs, e.payload] = dict[int, int]()  # 7
            out.append(e)  # 8
            f[OUTPUT] = e.ve  # 9
        f[s] = e.ve  # 10
        return out

    def adjust(self, e: Adjust, s: int) -> None:
        f = self.index.get((e.vs, e.payload))  # 12
        if f is None:  # 13
            return
        f[s] = e.ve  # 14

    def stable(self, t: int, s: int) -> list[Element]:
        out: list[Element] = []
        if t <= self.max_stable:  # 16
            return out
        for key in list(self.index.irange(maximum=(t, b""), inclusive=(True, False))):  # 17, 18
            f = self.index[key]
            vs, payload = key
            in_ve = f.get(s, vs)  # 19, 20
            out_ve = f[OUTPUT]  # 21
            if in_ve != out_ve and (in_ve < t or out_ve < t):  # 22, 23
                out.append(Adjust(payload, vs, out_ve, in_ve))  # 24
                f[OUTPUT] = in_ve  # 25
            if in_ve < t:  # 26
                del self.index[key]  # 27
        self.max_stable = t  # 28
        out.append(Stable(t))  # 29
        return out
