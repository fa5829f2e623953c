"""The progress that the inputs of one merge get: acks, stable points that other inputs have moved, fast-forwards.

Publishers forget events by the stable point of an ack. So it is always the released stable point, which a restart of a
durable server cannot take back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from lmerge.core.merge import InputStatus
from lmerge.service.merge.attachments import Attached
from lmerge.service.merge.lifecycle import InputLifecycle, to_fast_forward
from lmerge.service.output.release_queue import ReleaseQueue
from lmerge.service.settings import Settings


class Acks:
    """Sends acks and feedback. ``inputs``: the hub's own table. ``lives``: see ``MergeState.lives``."""

    def __init__(
        self,
        inputs: Mapping[str, Attached],
        lives: Callable[[], list[tuple[InputStatus, InputLifecycle]]],
        settings: Settings,
    ) -> None:
        self._inputs = inputs
        self._lives = lives
        self._settings = settings
        self.fast_forwards = 0  # sent to all inputs together
        self._stable_timer: asyncio.TimerHandle | None = None
        self._feedback_timer: asyncio.TimerHandle | None = None

    def hand_over(self, release: ReleaseQueue) -> None:
        """At the end of a turn: hand over an ack for every input that had something merged, or has joined."""
        for inp in self._inputs.values():
            if inp.unacked:
                self.ack(inp, release)

    def ack(self, inp: Attached, release: ReleaseQueue) -> None:
        """Hand over an ack for what has been merged up to this point of the turn."""
        inp.unacked = False
        release.then(partial(self._acked, inp, inp.merged, inp.joined, release))

    def released(self, release: ReleaseQueue) -> None:
        """After a turn was released: schedule feedback, and acks for quiet inputs whose merge others have moved."""
        # Also without a new stable point: an input that attaches to a stalled merge can be behind it.
        if self._settings.feedback_lag is not None and self._feedback_timer is None:
            loop = asyncio.get_running_loop()
            self._feedback_timer = loop.call_later(self._settings.feedback_interval_s, self._send_feedback, release)
        if all(inp.acked_stable == release.stable_point for inp in self._inputs.values()):
            return
        if self._stable_timer is None:
            loop = asyncio.get_running_loop()
            self._stable_timer = loop.call_later(self._settings.stable_ack_interval_s, self._send_stable, release)

    def close(self) -> None:
        """Stop: send no more acks and no more feedback."""
        for timer in (self._stable_timer, self._feedback_timer):
            if timer is not None:
                timer.cancel()

    def _acked(self, inp: Attached, sequence: int, joined: bool, release: ReleaseQueue) -> None:
        inp.acked, inp.acked_stable = sequence, release.stable_point
        inp.session.acknowledge(sequence, release.stable_point, joined)

    def _send_stable(self, release: ReleaseQueue) -> None:
        self._stable_timer = None
        for inp in self._inputs.values():
            if inp.acked_stable != release.stable_point:
                self._acked(inp, inp.acked, inp.joined, release)

    def _send_feedback(self, release: ReleaseQueue) -> None:
        """V.D: send a fast-forward to each input that lags."""
        self._feedback_timer = None
        lag, stable_point = self._settings.feedback_lag, release.stable_point
        assert lag is not None
        for name in to_fast_forward(self._lives(), stable_point, lag):
            inp = self._inputs[name]
            inp.life.fast_forwarded_to = stable_point
            inp.session.fast_forward(stable_point)
            self.fast_forwards += 1
