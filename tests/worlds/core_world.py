"""Helpers of the tests of the core: the paper's examples, sessions, policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lmerge.core.elements import INF, Adjust, Element, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.testing.merges.declared import R3_PROMISES
from lmerge.testing.oracle import Follow


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
