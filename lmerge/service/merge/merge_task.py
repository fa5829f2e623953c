"""The task that owns one merge, as the rest of the server reaches it: an actor with an inbox.

Batches and steps wait in the inbox, in the order in which they came. ``Hub`` gives the task its work: to take what
waits, turn by turn. A caller queues a step, and waits for its result or not. When the task has died, every caller gets
an error instead of waiting for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from lmerge.errors import Draining, LmergeError, Unavailable
from lmerge.service.merge.inbox import Inbox, Step, Work
from lmerge.service.merge.turn_pace import TurnPace
from lmerge.service.output.release_queue import Effect
from lmerge.service.settings import Settings

T = TypeVar("T")


class MergeTask:
    """The task of the merge ``name``. ``then``: hands over an effect, run when the output before it is released.

    ``broken``: the error that callers get once the task has failed; None: that it has failed, and no more.
    """

    def __init__(self, name: str, settings: Settings, then: Callable[[Effect], None]) -> None:
        self.inbox: Final = Inbox(settings.merge_queue_elements, settings.merge_queue_bytes)
        self.pace: Final = TurnPace(settings)
        self.is_draining = False
        self.broken: LmergeError | None = None
        self._name = name
        self._then = then
        self._task: asyncio.Task[None] | None = None

    # Its life.

    def start(self, turns: Coroutine[Any, Any, None]) -> None:
        """Start the task. ``turns`` takes what waits in the inbox, for ever."""
        self._task = asyncio.create_task(turns, name=f"merge {self._name}")

    @property
    def is_alive(self) -> bool:
        """Whether the task takes steps. False once it has failed."""
        return self._task is not None and not self._task.done()

    def cancel(self) -> None:
        """End the task without waiting for it."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def failure(self) -> LmergeError:
        """Return the error for callers of a task that has failed."""
        return self.broken or Unavailable(f"merge {self._name!r} has failed; see the server's log")

    def check_open(self) -> None:
        """Raise Draining if the merge takes nothing new, or the error with which it has failed."""
        if self.is_draining:
            raise Draining(f"merge {self._name!r}: {Draining.MESSAGE}")
        if not self.is_alive:
            raise self.failure()

    # What it is given to do.

    def queue(self, work: Work, enough: int) -> None:
        """Queue a batch, after ``inbox.room``. The turn begins at once if ``enough`` elements wait."""
        self.inbox.put(work)
        if self.inbox.elements >= enough:
            self.pace.hurry()

    def step(self, step: Step) -> None:
        """Queue a step, without waiting for it."""
        self.inbox.put(step)
        self.pace.hurry()

    async def call(self, step: Callable[[], T]) -> T:
        """Run ``step`` in the task, after all that was queued before it. Return its result or raise its error."""
        return await self._called(lambda: _at_once(step), lambda answer: answer())

    async def settled(self, step: Callable[[], T]) -> T:
        """Like ``call``, but return the result only when all output emitted before it is released."""
        return await self._called(lambda: _at_once(step), self._then)

    async def settled_long(self, step: Callable[[], Awaitable[T]]) -> T:
        """Like ``settled``, for a step that awaits something. The task does nothing else meanwhile."""
        return await self._called(step, self._then)

    async def _called(self, step: Callable[[], Awaitable[T]], hand_over: Callable[[Effect], None]) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                result = await step()
            except LmergeError as error:
                if not future.done():
                    future.set_exception(error)
            else:
                hand_over(lambda: None if future.done() else future.set_result(result))

        assert self._task is not None
        self.step(run)
        await asyncio.wait((future, self._task), return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise self.failure()
        return future.result()


async def _at_once(step: Callable[[], T]) -> T:
    return step()
