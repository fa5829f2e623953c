"""Work on one merge that takes long goes to a thread, and the loop serves everybody else meanwhile.

The hub waits for it, so nobody else touches the merge, and what is read of it is of one moment. What others may ask
meanwhile is answered from the moment before (``observed``).

What takes long: a large batch, or one whose rows are many bytes to check (``rowcheck``); a stable of a merge with many
live events, all of which it may visit, and whatever lets one go on that was held; a list of those.
Only the native engine gives the interpreter free while it works: a batch of the Python engine is merged on the loop, in
turns that are short for that. If its rows are many bytes, and for lists of its live events, a thread takes turns with
the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

from lmerge.core.merge import Merge
from lmerge.service.admin.merge_view import Observed, observe

T = TypeVar("T")

# From so many live events on: fewer are listed within 15 ms and visited by a stable within 40 ms, while a thread costs
# each turn about 0.1 ms.
LIVE_EVENTS_MIN: Final = 100_000


class Offload:
    """``executor`` None: everything is done on the loop. ``before``: the merge as it was, while a thread is at work."""

    def __init__(self, executor: Executor | None) -> None:
        self.before: Observed | None = None
        self._executor = executor

    @property
    def has_thread(self) -> bool:
        """Whether there is a thread for what takes long."""
        return self._executor is not None

    def is_large(self, merge: Merge) -> bool:
        """Whether a look at all live events belongs in a thread."""
        return self._executor is not None and merge.live_count >= LIVE_EVENTS_MIN

    async def run(self, merge: Merge, work: Callable[[], T]) -> T:
        """``work`` in a thread, which nobody but the hub of ``merge`` may ask for."""
        self.before = observe(merge)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            self.before = None

    async def read(self, merge: Merge, work: Callable[[], T]) -> T:
        """``work``, which may look at all live events: at once if they are few."""
        return await self.run(merge, work) if self.is_large(merge) else work()
