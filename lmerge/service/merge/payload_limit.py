"""The payload bytes of a merge, and the choice of the input to end when they are above the limit.

Three things count: the payloads of live events, those of inputs that wait to join, and those of batches in the inbox.
The queues of subscribers, the journal and the evidence have bounds of their own. The core maintains the number, so
reading it costs nothing.

An input whose batch makes the merge grow is charged for the growth. When the merge shrinks, all shares shrink in
proportion, so together they are the bytes that are there. This is an estimate of which input fills the merge, not an
account: replicas deliver the same events, and the first one is charged.
"""

from __future__ import annotations

from typing import Final

from lmerge.errors import LimitExceeded

# A merge that stays above its limit loses its next input when it has grown by this share of the limit. Only an input
# that has brought as much is ended: what is there already is removed at the next stable of another input.
_GROWTH_SHARE: Final = 1 / 8

Key = tuple[str, int]


class PayloadLimit:
    """The limit of one merge. ``bytes_max``: for the merge; ``input_bytes_max``: for what one input has brought."""

    def __init__(self, bytes_max: int, input_bytes_max: int, live_bytes: int = 0) -> None:
        self.live_bytes = live_bytes
        self._max = bytes_max
        self._input_max = input_bytes_max
        self._act_above = bytes_max
        self._shares: dict[Key, float] = {}  # by input and incarnation

    def note(self, key: Key, live_bytes: int) -> None:
        """Note that the merge has ``live_bytes`` after a batch of this input."""
        before, self.live_bytes = self.live_bytes, live_bytes
        if live_bytes > before:
            self._shares[key] = self._shares.get(key, 0.0) + live_bytes - before
        elif live_bytes < before:
            part = live_bytes / before
            for other in self._shares:
                self._shares[other] *= part

    def gone(self, key: Key, live_bytes: int) -> None:
        """Note that the input has ended: what it brought is charged to no input any more."""
        self._shares.pop(key, None)
        self.live_bytes = live_bytes

    def share(self, key: Key) -> int:
        """Return about how many of the live bytes this input has brought."""
        return int(self._shares.get(key, 0.0))

    def too_much(self, queued_bytes: int) -> tuple[str, LimitExceeded] | None:
        """Return the input to end now, and the error; None if no input must end. ``queued_bytes``: in the inbox."""
        held_bytes = self.live_bytes + queued_bytes
        if held_bytes <= self._max:
            self._act_above = self._max
            if held_bytes <= self._input_max:
                return None
        if not self._shares:
            return None
        key = max(self._shares, key=lambda key: (self._shares[key], key))
        share = self.share(key)
        if share > self._input_max:
            return key[0], LimitExceeded(
                f"input {key[0]!r} was ended: it has brought {share} live bytes, above the limit of {self._input_max} "
                "bytes for one input"
            )
        if held_bytes <= self._act_above or share <= self._max * _GROWTH_SHARE:
            return None  # the excess came from an input that has ended: the next stable of another removes it
        self._act_above = held_bytes + int(self._max * _GROWTH_SHARE)
        return key[0], LimitExceeded(
            f"input {key[0]!r} was ended: the merge holds {held_bytes} bytes, above the limit of {self._max}, and this "
            f"input has brought the most of it, {share} bytes"
        )
