"""Runs an algorithm of the core for the benchmarks: on either engine, with its rate and its memory.

A run takes prepared batches of all inputs in turns; each input has bytes of its own. The native core is called as
``Merge`` calls it (``apply``, then ``take``), but without the bookkeeping of names. ``merge_rates`` measures ``Merge``
itself.
"""

from __future__ import annotations

import ctypes
import gc
import pickle
import tracemalloc
from collections.abc import Callable
from itertools import chain, zip_longest
from typing import Any, Final

from bench.harness import cpu_timed
from lmerge._native import Cleanse as NativeCleanse
from lmerge._native import Columns, Core, Limit
from lmerge.core.batch import Batch
from lmerge.core.comparison.cleanse import Cleanse
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.testing.streams.large_inputs import LargeInputs

NATIVE: Final = "native"
PYTHON: Final = "Python"
CLEANSED: Final = "cleanse + r1"
LIMIT: Final = "limit"
ORDERED: Final = ("r0", "r1", "r2")
"""Algorithms whose inputs must be in order."""
KINDS: Final = (*ORDERED, "r3", "r3-", "r4", CLEANSED)

PROPERTIES: Final = {
    "r0": ("insert-only", "strictly-ordered"),
    "r1": ("insert-only", "ordered", "deterministic-ties"),
    "r2": ("insert-only", "ordered", "key"),
    "r3": ("key",),
    "r3-": ("key",),
    "r4": (),
}
_DEMANDS: Final = {"r0": 1 | 4, "r1": 1 | 2 | 8, "r2": 1 | 2 | 16, "r3": 16, "r3-": 16, "r4": 0}

Order = list[tuple[int, Any]]


def arrivals(inputs: list[list[Batch]]) -> Order:
    """Return the batches of all inputs, in turns."""
    turns = zip_longest(*([(at, batch) for batch in batches] for at, batches in enumerate(inputs)))
    return [item for item in chain.from_iterable(turns) if item is not None]


def prepare(engine: str, spec: LargeInputs) -> Order:
    """Return the streams of a workload in the form that the engine takes."""
    return converted(engine, arrivals(spec.batches()))


def converted(engine: str, order: Order) -> Order:
    return order if engine == PYTHON else [(at, Columns.of(batch)) for at, batch in order]


def elements(order: Order) -> int:
    return sum(batch.count for _, batch in order)


class CoreRun:
    """One algorithm on one engine. ``out``: the number of elements that it has emitted."""

    def __init__(self, engine: str, kind: str, inputs: int, *, live: bool = False) -> None:
        self.out = 0
        self.core: Core | None = None
        if kind == LIMIT:
            limit = Limit()
            self._feed: Callable[[int, Any], Any] = lambda _, batch: limit.apply(batch)
            return
        algorithm = "r1" if kind == CLEANSED else kind
        self._feed = (self._native if engine == NATIVE else self._python)(algorithm, inputs, live)
        if kind == CLEANSED:
            make: Any = NativeCleanse if engine == NATIVE else Cleanse
            cleansers, feed = [make(str(at)) for at in range(inputs)], self._feed
            self._feed = lambda at, batch: feed(at, cleansers[at].apply(batch))

    def feed(self, order: Order) -> None:
        feed = self._feed
        for at, batch in order:
            feed(at, batch)

    def _native(self, algorithm: str, inputs: int, live: bool) -> Callable[[int, Any], None]:
        core = self.core = Core(algorithm, "first", False, 0, 0, "furthest-stable", 0, 0, live)
        for slot in range(inputs):
            core.attach(slot, slot, _DEMANDS[algorithm], None, False, True)

        def feed(at: int, batch: Columns) -> None:
            assert core.apply(at, batch, 0) is None
            self.out += core.take()[0].count

        return feed

    def _python(self, algorithm: str, inputs: int, live: bool) -> Callable[[int, Any], None]:
        return self._merge(Merge(MergeConfig(algorithm, track_live=live, engine="python")), algorithm, inputs)

    def _merge(self, merge: Merge, algorithm: str, inputs: int) -> Callable[[int, Any], None]:
        for at in range(inputs):
            merge.attach(str(at), PROPERTIES[algorithm])

        def feed(at: int, batch: Any) -> None:
            outcome = merge.apply(str(at), batch)
            assert not outcome.detached
            self.out += outcome.batch.count

        return feed


def rates(engine: str, kind: str, order: Order, inputs: int, repeats: int, *, live: bool = False) -> list[float]:
    """Return the elements a second of one core, from an empty merge in each repeat."""
    count = elements(order)
    values = []
    for _ in range(repeats):
        run = CoreRun(engine, kind, inputs, live=live)
        values.append(count / cpu_timed(lambda run=run: run.feed(order)))  # type: ignore[misc]
    return values


def merge_rates(algorithm: str, order: Order, inputs: int, repeats: int) -> list[float]:
    """Return the same for ``Merge`` on the native engine, with the live output tracked, as the service runs it."""
    count = elements(order)
    values = []
    for _ in range(repeats):
        merge = Merge(MergeConfig(algorithm, engine="native"))
        for at in range(inputs):
            merge.attach(str(at), PROPERTIES[algorithm])
        work = [(str(at), batch) for at, batch in order]
        values.append(count / cpu_timed(lambda m=merge, w=work: [m.apply(name, batch) for name, batch in w]))  # type: ignore[misc]
    return values


def memory(engine: str, kind: str, order: Order, inputs: int, samples: int = 9) -> list[tuple[float, int]]:
    """Return the bytes in use and the nodes of the index at ``samples`` points from the middle to nine tenths.

    Native: the bytes that malloc has given out (``mallinfo2``), with the allocator's headers. Python: tracemalloc;
    every batch is copied when it arrives, as from a network.
    """
    points = {round(len(order) * (0.5 + 0.4 * at / max(1, samples - 1))) for at in range(samples)}
    sampled = []
    frozen = order if engine == NATIVE else [(at, pickle.dumps(batch)) for at, batch in order]
    gc.collect()
    if engine == PYTHON:
        tracemalloc.start()
    used = malloc_bytes if engine == NATIVE else lambda: tracemalloc.get_traced_memory()[0]
    before = used()
    run = CoreRun(engine, kind, inputs)
    for number, (at, item) in enumerate(frozen, 1):
        run.feed([(at, item if engine == NATIVE else pickle.loads(item))])
        if number in points:
            gc.collect()
            sampled.append((float(used() - before), run.core.node_count if run.core else 0))
    if engine == PYTHON:
        tracemalloc.stop()
    return sampled


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def malloc_bytes() -> int:
    """Return the bytes that this process has from glibc's malloc, over all arenas, without small Python objects."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _Mallinfo
    info = mallinfo2()
    return int(info.uordblks + info.hblkhd)


def trim() -> None:
    """Return unused memory of malloc to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
