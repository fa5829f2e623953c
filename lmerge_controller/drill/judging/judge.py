"""The judge of a probe stream: finds lost, duplicated and contradictory events in what a reader received.

Called by the runner with the recorded output, element by element and with local times of receipt. It keeps a table of
its own from the elements, by the rules of III.C of the paper:

- at a stable point Vc no later insert starts before Vc;
- an adjust changes an event that is there, from an end that is not frozen (``vold >= Vc``) to one that is not frozen;
- the stable point never goes back.

An element that breaks one of them contradicts what the reader was promised. It is counted and not applied, so that one
fault is counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lmerge_controller.drill.judging.truth import ProbeTruth

INSERT: Final = "insert"
ADJUST: Final = "adjust"
STABLE: Final = "stable"
# Flaws of each kind that are kept as text. The counts have no bound.
FLAWS_KEPT_MAX: Final = 10
_BEGINNING: Final = -(2**63)


class DeliveredElement(NamedTuple):
    """An element as the reader received it. ``vs`` of a stable is its time; ``vold`` is the old end of an adjust."""

    kind: str
    vs: int
    ve: int = 0
    vold: int = 0
    payload: str = ""


class Flaw(NamedTuple):
    """Something wrong in the stream. ``at_s``: the time of receipt; None: found at the end, or nothing came."""

    kind: str
    at_s: float | None
    text: str


@dataclass(frozen=True)
class ProbeFindings:
    """What the judge has found: counts of events, and of the elements that contradict earlier ones.

    ``expected``: events of the truth; ``delivered``: of these, the ones that came. ``lost``: they did not come, though
    the stable point has passed their end. ``unfinished``: they did not come, and the stable point has not passed their
    end. ``duplicated``: further copies. ``invented``: events that the truth does not have. ``wrong_end``: events that
    were frozen with another end. ``arrivals_s``: times at which elements came; ``progress_s``: times at which the
    stable point moved; both ascend.
    """

    expected: int
    delivered: int
    lost: int
    unfinished: int
    duplicated: int
    invented: int
    wrong_end: int
    contradictions: int
    elements: int
    stable_point: int
    arrivals_s: tuple[float, ...] = field(repr=False)
    progress_s: tuple[float, ...] = field(repr=False)
    flaws: tuple[Flaw, ...] = ()

    @property
    def is_right(self) -> bool:
        """Whether the stream reconstitutes to the truth, and nothing in it was contradicted."""
        return self.delivered == self.expected and not any(count for _, count in self.counts)

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """What was wrong, each with its count, in the order of reports."""
        return (
            ("lost", self.lost),
            ("duplicated", self.duplicated),
            ("contradictions", self.contradictions),
            ("invented", self.invented),
            ("wrong end", self.wrong_end),
            ("unfinished", self.unfinished),
        )


class ProbeJudge:
    """Takes the delivered elements in their order, then gives the findings.

    ``stable_point``: that of the merge when the probe began, if it existed already.
    """

    def __init__(self, truth: ProbeTruth, *, stable_point: int = _BEGINNING) -> None:
        self.truth = truth
        self.stable_point = stable_point
        self._ends: dict[tuple[int, str], list[int]] = {}  # of each start and payload: the ends of its copies
        self._elements = 0
        self._counts: Counter[str] = Counter()
        self._flaws: list[Flaw] = []
        self._arrivals: list[float] = []
        self._progress: list[float] = []

    def take(self, elements: Iterable[DeliveredElement], at_s: float) -> None:
        """Take elements that came together at monotonic time ``at_s``."""
        before, count = self.stable_point, self._elements
        for element in elements:
            self._elements += 1
            problem = self._apply(element)
            if problem:
                self._note("contradiction", at_s, f"{_shown(element)}: {problem}")
        if self._elements > count:
            self._arrivals.append(at_s)
        if self.stable_point > before:
            self._progress.append(at_s)

    def findings(self, expected: int) -> ProbeFindings:
        """Compare the table with the truth: events 0 to ``expected`` - 1 must have come, and no others."""
        delivered = 0
        ends = dict(self._ends)
        for number in range(expected):
            vs, ve, payload = self.truth.event(number)[1:]
            copies = ends.pop((vs, payload), None)
            if copies:
                delivered += 1
                self._compare(f"event {number}", copies, ve)
            elif ve < self.stable_point:
                self._note(
                    "lost", None, f"event {number} [{vs}, {ve}) is not there at stable point {self.stable_point}"
                )
            else:
                self._counts["unfinished"] += 1
        for (vs, payload), copies in ends.items():
            for end in copies:
                self._note("invented", None, f"[{vs}, {end}) {payload!r:.60}")
        counts, self._counts = self._counts, Counter({"contradiction": self._counts["contradiction"]})
        flaws, self._flaws = self._flaws, [flaw for flaw in self._flaws if flaw.kind == "contradiction"]
        return ProbeFindings(
            expected,
            delivered,
            counts["lost"],
            counts["unfinished"],
            counts["duplicated"],
            counts["invented"],
            counts["wrong end"],
            counts["contradiction"],
            self._elements,
            self.stable_point,
            tuple(self._arrivals),
            tuple(self._progress),
            tuple(flaws),
        )

    def _apply(self, element: DeliveredElement) -> str:
        """Apply one element to the table. Return why it contradicts earlier ones, or an empty text."""
        kind, vs, ve, vold, payload = element
        if kind == STABLE:
            if vs < self.stable_point:
                return f"the stable point goes back from {self.stable_point}"
            self.stable_point = vs
            return ""
        if kind == INSERT:
            return self._insert(vs, ve, payload)
        if kind == ADJUST:
            return self._adjust(vs, ve, vold, payload)
        return "an element of an unknown kind"

    def _insert(self, vs: int, ve: int, payload: str) -> str:
        if ve < vs:
            return "it ends before it starts"
        if vs < self.stable_point:
            return f"it starts before the stable point {self.stable_point}"
        if ve > vs:
            self._ends.setdefault((vs, payload), []).append(ve)
        return ""

    def _adjust(self, vs: int, ve: int, vold: int, payload: str) -> str:
        ends = self._ends.get((vs, payload), [])
        if ve < vs:
            return "it ends before it starts"
        if vold not in ends:
            return f"no such event is there; its ends are {ends}"
        if vold < self.stable_point:
            return f"the event is frozen at {self.stable_point}"
        if ve < self.stable_point:
            return f"the new end is before the stable point {self.stable_point}"
        ends.remove(vold)
        if ve > vs:
            ends.append(ve)
        elif not ends:
            del self._ends[vs, payload]
        return ""

    def _compare(self, name: str, copies: list[int], ve: int) -> None:
        """Note further copies of an event, and an end that the stable point has frozen and that is not ``ve``."""
        for end in sorted(copies, key=lambda end: end != ve)[1:]:
            self._note("duplicated", None, f"{name} came {len(copies)} times, once with end {end}")
        if ve not in copies and (min(copies) < self.stable_point or ve < self.stable_point):
            self._note("wrong end", None, f"{name} ends at {copies[0]} and should end at {ve}")
        elif ve not in copies:
            self._counts["unfinished"] += 1

    def _note(self, kind: str, at_s: float | None, text: str) -> None:
        self._counts[kind] += 1
        if self._counts[kind] <= FLAWS_KEPT_MAX:
            self._flaws.append(Flaw(kind, at_s, text))


def _shown(element: DeliveredElement) -> str:
    kind, vs, ve, vold, payload = element
    if kind == STABLE:
        return f"stable({vs})"
    change = f"{vold} -> {ve}" if kind == ADJUST else str(ve)
    return f"{kind}({payload!r:.60}, {vs}, {change})"
