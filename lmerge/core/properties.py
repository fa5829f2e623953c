"""Stream properties (III.C) and the choice of the algorithm (IV.G).

An input promises properties. The merge relies on the promises that all of its inputs make (their meet). They determine
the case:

====  ==========================================  =====================================================
case  needs                                       III.C
====  ==========================================  =====================================================
R0    insert-only, strictly-ordered               strictly increasing Vs
R1    insert-only, ordered, deterministic-ties    non-decreasing Vs, deterministic order among equal Vs
R2    insert-only, ordered                        non-decreasing Vs; with key, (Vs, payload) is a key
R3    key                                         any elements in any order, (Vs, payload) is a key
R4    nothing                                     the TDB is a multiset
====  ==========================================  =====================================================

``strictly-ordered`` implies ``ordered``, ``deterministic-ties`` and ``key``: there are no ties.

R2 uses the key while all inputs promise one, and counts copies while one does not (IV.C: "the relaxation to handle
duplicates"). So of R0, R1 and R2 each needs less than the one before. R3 needs the key, which R1 and R2 do not need.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from lmerge.errors import UsageError

INSERT_ONLY: Final = "insert-only"
ORDERED: Final = "ordered"
STRICTLY_ORDERED: Final = "strictly-ordered"
DETERMINISTIC_TIES: Final = "deterministic-ties"
KEY: Final = "key"

PROPERTY_NAMES: Final = (INSERT_ONLY, ORDERED, STRICTLY_ORDERED, DETERMINISTIC_TIES, KEY)
Properties: TypeAlias = frozenset[str]

NOTHING: Final[Properties] = frozenset()
EVERYTHING: Final[Properties] = frozenset(PROPERTY_NAMES)


class Case(enum.IntEnum):
    """The paper's cases. A larger number needs fewer promises."""

    R0 = 0
    R1 = 1
    R2 = 2
    R3 = 3
    R4 = 4

    @property
    def algorithm(self) -> str:
        """The name of the algorithm, ``r0`` .. ``r4``, as in options and statuses."""
        return self.name.lower()


NEEDS: Final[Mapping[Case, Properties]] = {
    Case.R0: frozenset({INSERT_ONLY, STRICTLY_ORDERED}),
    Case.R1: frozenset({INSERT_ONLY, ORDERED, DETERMINISTIC_TIES}),
    Case.R2: frozenset({INSERT_ONLY, ORDERED}),
    Case.R3: frozenset({KEY}),
    Case.R4: NOTHING,
}


R3_MINUS: Final = "r3-"  # VI: an algorithm of case R3 that is kept for comparison only


class Choice(NamedTuple):
    """A case and the reason for it, as text for the user."""

    case: Case
    reason: str


def parse_properties(names: Iterable[str]) -> Properties:
    """Return the set of properties with these names. Raises UsageError for a name that is no property."""
    declared = frozenset(names)
    unknown = sorted(declared - EVERYTHING)
    if unknown:
        raise UsageError(f"unknown property {unknown[0]!r}; the properties are {', '.join(PROPERTY_NAMES)}")
    return declared


def closure(declared: Properties) -> Properties:
    """Return ``declared`` and the properties that it implies."""
    if STRICTLY_ORDERED in declared:
        return declared | {ORDERED, DETERMINISTIC_TIES, KEY}
    return declared


def meet(inputs: Iterable[Properties]) -> Properties:
    """Return the properties that all inputs promise. Of no inputs: all properties."""
    common = EVERYTHING
    for declared in inputs:
        common &= closure(declared)
    return common


def without(promised: Properties, name: str) -> Properties:
    """Return what an input still promises after it broke ``name``. A broken order breaks the strict order too."""
    gone = {name, STRICTLY_ORDERED} if name in (ORDERED, KEY, DETERMINISTIC_TIES) else {name}
    return promised - gone


def choose(inputs: Mapping[str, Properties], *, needs_index: str = "", runs: Case | None = None) -> Choice:
    """Return the most specialised case that the promises of all ``inputs`` (by name) allow (IV.G).

    ``needs_index``: set where only R3 and R4, which keep an index, can be used: what the other cases lack, as text.
    ``runs``: the running case, which can only become more general. A smaller case as the result means that ``runs``
    may stay.
    """
    common = meet(inputs.values())
    cases = [case for case in Case if NEEDS[case] <= common and not (needs_index and case < Case.R3)]
    case = cases[0]
    if runs is not None and case < runs and not NEEDS[runs] <= common:
        # The needs of the cases are not a chain: R1 and R2 need no key, R3 does.
        why = _why_not(runs, inputs, common, needs_index).partition(" because ")[2]
        reason = f"{runs.algorithm} runs, but {why}, and a merge does not return to {case.algorithm}"
        return Choice(next(case for case in cases if case > runs), reason)
    if not inputs:
        return Choice(case, "no input has promised less yet")
    if case < Case.R2 and runs is Case.R2 and KEY not in common:
        reason = f"{runs.algorithm} runs, and a merge does not return to {case.algorithm}; {_counts(inputs)}"
        return Choice(runs, reason)
    used = NEEDS[case] | (common & {KEY} if case is Case.R2 else NOTHING)
    names = ", ".join(name for name in PROPERTY_NAMES if name in used)
    reason = f"all inputs promise {names}" if names else "no property is promised by all inputs"
    if case is Case.R2 and KEY not in common:
        reason += f"; {_counts(inputs)}"
    stronger = [better for better in Case if better < case]
    if stronger:
        reason += "; " + _why_not(stronger[-1], inputs, common, needs_index)
    return Choice(case, reason)


def _why_not(case: Case, inputs: Mapping[str, Properties], common: Properties, needs_index: str) -> str:
    missing = [name for name in PROPERTY_NAMES if name in NEEDS[case] and name not in common]
    if not missing:
        return f"{case.algorithm} {needs_index}"
    return f"not {case.algorithm} because {_not_promised(missing[0], inputs)}"


def _counts(inputs: Mapping[str, Properties]) -> str:
    return f"copies are counted because {_not_promised(KEY, inputs)}"


def _not_promised(promise: str, inputs: Mapping[str, Properties]) -> str:
    inputs_without = [repr(name) for name, declared in inputs.items() if promise not in closure(declared)]
    return f"{promise} is not promised by {', '.join(inputs_without[:5])}"
