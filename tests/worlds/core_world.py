"""Helpers of the tests of the core: the paper's examples, sessions, policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lmerge.core.elements import INF, Adjust, Element, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.testing.oracle import Follow

R0_PROMISES = ("insert-only", "strictly-ordered")
R1_PROMISES = ("insert-only", "ordered", "deterministic-ties")
R2_PROMISES = ("insert-only", "ordered", "key")
COPIES_PROMISES = ("insert-only", "ordered")  # R2 where no key is promised
R3_PROMISES = ("key",)
R4_PROMISES = ()
PROMISES = {"r0": R0_PROMISES, "r1": R1_PROMISES, "r2": R2_PROMISES, "r3": R3_PROMISES, "r4": R4_PROMISES}

INDEX_POLICIES = (
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


def a(payload: str, vs: int, ve: int = INF) -> Insert:
    """Return Example 1's a(value, start, end)."""
    return Insert(payload.encode(), vs, ve)


def m(payload: str, vs: int, vold: int, ve: int) -> Adjust:
    """Return Example 1's m(value, start, newEnd), with the old end of Example 5's adjust."""
    return Adjust(payload.encode(), vs, vold, ve)


def f(vc: int) -> Stable:
    """Return Example 1's f(time)."""
    return Stable(vc)


def merge_of(
    inputs: int = 2,
    algorithm: str = "auto",
    policy: str = "lazy",
    *,
    promises: Sequence[str] = R3_PROMISES,
    closing: str = "all",
) -> Follow:
    """Return a followed merge with inputs "1", "2", ... that promise ``promises``."""
    follow = Follow(Merge(MergeConfig(algorithm, policy, closing)))
    for at in range(inputs):
        follow.attach(str(at + 1), promises)
    return follow


def emitted(follow: Follow, name: str, *elements: Element) -> list[Element]:
    """Publish ``elements`` of an input, and return the output."""
    return list(follow.publish(name, *elements).batch.elements())


def interleavings(lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Return all orders in which streams of these lengths can arrive, as sequences of stream numbers."""
    if not any(lengths):
        yield ()
        return
    for at, left in enumerate(lengths):
        if left:
            rest = list(lengths)
            rest[at] -= 1
            for tail in interleavings(rest):
                yield (at, *tail)
