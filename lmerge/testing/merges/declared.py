"""What inputs of drawn merges promise, and the policies that they are merged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lmerge.core.policy import Leader
from lmerge.core.properties import PROPERTY_NAMES

Promises = tuple[str, ...]

R0_PROMISES: Final[Promises] = ("insert-only", "strictly-ordered")
R1_PROMISES: Final[Promises] = ("insert-only", "ordered", "deterministic-ties")
R2_PROMISES: Final[Promises] = ("insert-only", "ordered", "key")
COPIES_PROMISES: Final[Promises] = ("insert-only", "ordered")
"""R2 where no key is promised."""
R3_PROMISES: Final[Promises] = ("key",)
R4_PROMISES: Final[Promises] = ()
PROMISES: Final[Mapping[str, Promises]] = {
    "r0": R0_PROMISES,
    "r1": R1_PROMISES,
    "r2": R2_PROMISES,
    "r3": R3_PROMISES,
    "r4": R4_PROMISES,
}
DECLARED: Final[Sequence[Promises]] = (
    R0_PROMISES,
    (*R0_PROMISES, "ordered", "deterministic-ties"),
    (*R0_PROMISES, "ordered", "key"),
    (*R0_PROMISES, "key"),
    R1_PROMISES,
    (*R1_PROMISES, "key"),
    R2_PROMISES,
    COPIES_PROMISES,
    R3_PROMISES,
    PROPERTY_NAMES,
)
"""For each case, promises that lead to every more general case when one of them is broken."""

ANY_POLICIES: Final = ("lazy", "eager")
"""Those that every algorithm has."""
INDEX_POLICIES: Final = (
    "lazy",
    "eager",
    "half-frozen-only",
    "final-only",
    "quorum:2",
    "leading-input-only",
    "lazy+lag:5",
    "eager+lag:2",
    "final-only+lag:3",
    "lazy+lead:4",
    "eager+lag:2+lead:3",
    "leading-input-only+lead:5",
    "quorum:2+lead:4",
    "final-only+lead:6",
    "quorum:60%+lead:3",
    "leading-input-only:highest-insert+lead:4",
    "leading-input-only:most-unfrozen+adjusts+lead:5",
    "half-frozen-only+adjusts",
    "quorum:60%",
    "quorum:2+adjusts",
    "leading-input-only+adjusts",
    "leading-input-only:highest-insert+lag:4",
    "leading-input-only:most-unfrozen+adjusts",
)
"""Those of R3 and R4, which keep an index."""

_LEADING: Final = tuple(f"leading-input-only:{leader.value}" for leader in Leader)
_SHOWS: Final = (
    "half-frozen-only",
    *_LEADING,
    "quorum:1",
    "quorum:2",
    "quorum:9",
    "quorum:34%",
    "quorum:60%",
    "quorum:100%",
)
JUDGED_POLICIES: Final = ("lazy", "eager", "final-only", *_SHOWS, *(f"{show}+adjusts" for show in _SHOWS))
"""Those that ``policies`` has definitions of."""

INDEXED: Final = ("r3", "r4")
CLOSINGS: Final = ("all", "any", "quorum:2")
