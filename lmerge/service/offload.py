"""Moves long work on one merge to a thread. The loop serves all other streams meanwhile.

The hub waits for the thread, so nothing else touches the merge, and what the thread reads is of one moment. Queries
during that time are answered with the state before the work began (``MergeState.observed``).

Work that takes long:

- a large batch, or one whose rows are many bytes to check (``row_check``);
- a stable of a merge with many live events, as it may visit all of them, and the release of a stable that was held;
- a list of the live events of such a merge.

Only the native engine releases the GIL while it works. A batch of the Python engine is merged on the loop, in turns
that are short for that reason. For the check of many bytes of rows, and for lists of live events, the Python engine
uses a thread too: the interpreter switches between it and the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

from lmerge.core.merge import Merge
from lmerge.service.merge_view import Observed, observe

T = TypeVar("T")

# The number of live events from which a thread is used. Fewer are listed within 15 ms and visited by a stable within
# 40 ms, while a thread costs each turn about 0.1 ms.
LIVE_EVENTS_MIN: Final = 100_000


class Offload:
    """Runs work in ``executor``; None: on the loop. ``before``: the state before the work, while a thread works."""

    def __init__(self, executor: Executor | None) -> None:
        self.before: Observed | None = None
        self._executor = executor

    @property
    def has_thread(self) -> bool:
        """Whether there is a thread for long work."""
        return self._executor is not None

    def is_large(self, merge: Merge) -> bool:
        """Whether work that visits all live events of ``merge`` belongs in a thread."""
        return self._executor is not None and merge.live_count >= LIVE_EVENTS_MIN

    async def run(self, merge: Merge, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread; return its result. Only the hub of ``merge`` may call this."""
        self.before = observe(merge)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            self.before = None

    async def read(self, merge: Merge, work: Callable[[], T]) -> T:
        """Run ``work``, which may visit all live events; return its result. On the loop if they are few."""
        return await self.run(merge, work) if self.is_large(merge) else work()
