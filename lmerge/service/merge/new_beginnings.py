"""The steps by which a merge begins without a joined input: early admission, a gap, a reset.

They are part of the hub's steps. ``Hub`` sets the attributes that they use.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial

from lmerge.core.detaching import DetachCause, InputDetached
from lmerge.core.elements import NEG_INF
from lmerge.core.merge import InputStatus, Merge, Outcome, earliest_joining
from lmerge.errors import MergeReset, Unavailable
from lmerge.service import log
from lmerge.service.merge.divergence_policy import Certifier
from lmerge.service.merge.hub_queries import HubQueries
from lmerge.service.merge.payload_limit import PayloadLimit
from lmerge.service.merge.redundancy import Redundancy
from lmerge.service.merge.stalled_merge import StandstillTimer, gap_error
from lmerge.service.settings import Settings


class NewBeginnings(HubQueries):
    """The steps. They pass what a call of the merge has caused to ``_absorb``, which the hub implements."""

    name: str
    certifier: Certifier
    payload_limit: PayloadLimit
    detached: deque[InputDetached]
    detached_counts: dict[str, int]
    _settings: Settings
    _standstill: StandstillTimer

    @abstractmethod
    def _absorb(self, outcome: Outcome) -> None: ...

    @abstractmethod
    def _new_payload_limit(self) -> PayloadLimit: ...

    def _admit_if_stuck(self) -> None:
        """Admit an input if the merge has emitted no stable and has only joining inputs: it would wait for ever.

        This happens when the first replica comes back to a server that has started without its state, and when that
        replica ends again before its first stable. The merge has emitted nothing that it could contradict. So the input
        with the earliest join_at is admitted, and the output is right from that time on. A merge that has emitted a
        stable waits for an input that has the missing time (``StandstillTimer``).
        """
        first = earliest_joining(self.merge.inputs())
        if first is not None and self.merge.stable_point == NEG_INF:
            self._admit(first)
            first = None
        self._standstill.look(first is not None)

    def _admit(self, first: InputStatus) -> None:
        assert first.join_at is not None
        log.event(logging.WARNING, "input admitted early", merge=self.name, input=first.name, join_at=first.join_at)
        self._output.flush()
        if self._recorder is not None:
            self._recorder.admitted(first.name)
        self._absorb(self.merge.admit(first.name))
        self._output.begin_from(first.join_at)

    def _end_standstill(self) -> None:
        """Accept a gap: see ``stalled_merge``."""
        first = earliest_joining(self.merge.inputs())
        if first is None or first.join_at is None:
            return
        error = gap_error(self.name, self.merge.stable_point, first.join_at)
        merge = self._settings.new_merge()
        merge.keep_fence(self.merge)
        self._begin_anew(
            DetachCause.GAP, merge, error, partial(self._output.begin_anew, merge, first.join_at, error)
        )

    def reset(self, epoch: int, subscriber_error: MergeReset, publisher_error: Unavailable) -> None:
        """Begin a new epoch; to be called in a step.

        Subscribers end with ``subscriber_error``, publishers with ``publisher_error``.
        """
        merge = self._settings.new_merge()
        self._standstill.close()
        self.certifier.quarantined.clear()
        self._begin_anew(
            DetachCause.RESET, merge, publisher_error, partial(self._output.reset, merge, epoch, subscriber_error)
        )

    def _begin_anew(
        self, cause: DetachCause, merge: Merge, error: Unavailable, put_into_output: Callable[[], None]
    ) -> None:
        """Replace the present merge by ``merge``. All inputs end with ``error``.

        ``put_into_output`` sets ``merge`` in the output. ``cause``: of the ends of the inputs.
        """
        for name, inp in self._inputs.items():
            self.detached.appendleft(InputDetached(name, inp.incarnation, cause, str(error)))
            self._output.then(partial(inp.session.end, error))
        self.detached_counts[cause] = self.detached_counts.get(cause, 0) + len(self._inputs)
        self._inputs.clear()
        put_into_output()
        self.certifier.begin_anew(merge)
        self.merge = merge
        self.payload_limit = self._new_payload_limit()
        self.redundancy = Redundancy(self._settings.redundancy_lag_s)
        if self._recorder is not None:
            self._recorder.begin_anew()
