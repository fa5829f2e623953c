"""The steps by which a merge begins anew, with a fresh ``Merge``: behind a gap, and at a reset."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lmerge.core.detaching import DetachCause
from lmerge.core.merge import Merge, earliest_joining
from lmerge.errors import MergeReset, Unavailable
from lmerge.service.merge.merge_state import MergeState
from lmerge.service.merge.stalled_merge import StandstillTimer, gap_error


class NewBeginnings:
    """The steps for one merge. Both are to be called in the hub's task."""

    def __init__(self, state: MergeState, standstill: StandstillTimer) -> None:
        self._state = state
        self._standstill = standstill

    def accept_gap(self) -> None:
        """End a standstill by a gap: see ``stalled_merge``. Does nothing if an input has joined meanwhile."""
        state = self._state
        first = earliest_joining(state.merge.inputs())
        if first is None or first.join_at is None:
            return
        error = gap_error(state.name, state.merge.stable_point, first.join_at)
        merge = state.settings.new_merge()
        merge.keep_fence(state.merge)
        self._begin(DetachCause.GAP, merge, error, partial(state.output.begin_anew, merge, first.join_at, error))

    def reset(self, epoch: int, subscriber_error: MergeReset, publisher_error: Unavailable) -> None:
        """Begin a new epoch.

        Subscribers end with ``subscriber_error``, publishers with ``publisher_error``.
        """
        state = self._state
        merge = state.settings.new_merge()
        self._standstill.close()
        state.certifier.quarantined.clear()
        put_into_output = partial(state.output.reset, merge, epoch, subscriber_error)
        self._begin(DetachCause.RESET, merge, publisher_error, put_into_output)

    def _begin(self, cause: DetachCause, merge: Merge, error: Unavailable, put_into_output: Callable[[], None]) -> None:
        """Replace the present merge by ``merge``. All inputs end with ``error``.

        ``put_into_output`` sets ``merge`` in the output. ``cause``: of the ends of the inputs.
        """
        self._state.end_inputs(cause, error)
        put_into_output()
        self._state.begin_with(merge)
