"""The subscribers of one merge: each gets the output before its subscription, and a place in the fan-out behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from lmerge.errors import LimitExceeded, LmergeError
from lmerge.service.merge.merge_state import MergeState
from lmerge.service.merge.merge_task import MergeTask
from lmerge.service.output.fanout import Message, SubscriberQueue
from lmerge.service.output.journal import History
from lmerge.service.output.pipeline import Beginning


class Subscriptions:
    """The subscribers of the merge of ``state``, and the ends of all its streams."""

    def __init__(self, state: MergeState, task: MergeTask) -> None:
        self._state = state
        self._task = task

    async def subscribe(
        self, subscriber: SubscriberQueue, resume_at: int | None = None, *, snapshot_if_too_old: bool = False
    ) -> Beginning:
        """Register a subscriber; return the output that comes before its queue.

        ``resume_at``: the subscriber has all events that end before this time. Raises LimitExceeded, Draining, and
        OutOfRange if ``resume_at`` is too old.
        """
        self._task.check_open()
        subscribed = self._task.settled_long(lambda: self._subscribe(subscriber, resume_at, snapshot_if_too_old))
        return await self._state.output.once_kept("subscribe to", subscribed)

    def unsubscribe(self, subscriber: SubscriberQueue) -> None:
        """End a subscription: nothing more is offered to it."""
        self._state.output.fanout.remove(subscriber)

    def written(self, subscriber: SubscriberQueue, message_bytes: int) -> None:
        """Note that the last message taken from the queue of a subscriber, of this many bytes, was written."""
        self._state.output.fanout.written(subscriber, message_bytes)

    def past(self, history: History) -> AsyncIterator[Message]:
        """Return the messages of a history that is in the store."""
        return self._state.output.past(history)

    async def _subscribe(
        self, subscriber: SubscriberQueue, resume_at: int | None, snapshot_if_too_old: bool
    ) -> Beginning:
        if self._task.is_draining:
            self._task.check_open()
        state = self._state
        if len(state.subscribers) >= state.settings.subscribers_per_merge:
            raise LimitExceeded(
                f"subscriber {subscriber.name!r} cannot subscribe to merge {state.name!r}: "
                f"it has {len(state.subscribers)} subscribers, the limit"
            )
        return await state.output.subscribe(subscriber, resume_at, snapshot_if_too_old)

    def end_all(self, error: LmergeError) -> None:
        """End all publishers and subscribers with ``error``, behind the output so far. To be called in a step."""
        state = self._state
        state.output.flush()
        state.acks.hand_over(state.output.release)
        for inp in list(state.inputs.values()):
            state.output.then(partial(inp.session.end, error))
        state.output.then(lambda: state.output.fanout.finish(error))

    def cut_all(self, error: LmergeError) -> None:
        """End all publishers and subscribers with ``error`` at once: what was not released is never delivered."""
        for inp in self._state.inputs.values():
            inp.session.end(error)
        self._state.output.fanout.finish(error)
