"""Groups of arguments of a publisher: where its stream begins, what it holds, and its heartbeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lmerge.client.connection.outage import REPORT_AFTER_S
from lmerge.client.publish.outbox import BEHIND_EVENTS_MAX, OUTBOX_BYTES_MAX
from lmerge.core.batch import AnyBatch
from lmerge.core.inputs import INCARNATION_MAX
from lmerge.errors import UsageError

HEARTBEAT_S: Final = 1.0


@dataclass(frozen=True)
class Origin:
    """Where the stream of a publisher begins, and which life of its replica publishes it.

    - ``join_at``: the stream is right for every event with ``Ve >= join_at``; None: it starts at the beginning.
    - ``incarnation``: of the replica, at most 2**63 - 1; a newer one replaces an older one. None: the time in
      microseconds.
    - ``seed``: a batch that is published first, inserts and then one stable: the live events of a checkpoint, from
      which the stream goes on.

    Raises UsageError if the incarnation is out of range.
    """

    join_at: int | None = None
    incarnation: int | None = None
    seed: AnyBatch | None = None

    def __post_init__(self) -> None:
        if self.incarnation is not None and not 0 <= self.incarnation <= INCARNATION_MAX:
            raise UsageError(f"incarnation {self.incarnation} is not between 0 and {INCARNATION_MAX}")


@dataclass(frozen=True)
class PublisherLimits:
    """What a publisher holds at most, and how long it waits.

    - ``give_up_after_s``: after so many seconds without any server it fails with ServerGone; None: never.
    - ``buffer_bytes_max``: bytes that may wait to be sent; beyond, publishing waits.
    - ``behind_events_max``: live events kept for a server that is away, beyond what the others need.
    - ``report_after_s``: after so many seconds without a server, one line of log has the reason; None: never.
    """

    give_up_after_s: float | None = None
    buffer_bytes_max: int = OUTBOX_BYTES_MAX
    behind_events_max: int = BEHIND_EVENTS_MAX
    report_after_s: float | None = REPORT_AFTER_S


@dataclass(frozen=True)
class Heartbeat:
    """Stables of a stream whose source is idle, so that it delays no merge.

    ``stable_point`` is called when no stable was published for ``every_s`` seconds. It returns the stable to publish,
    or None.
    """

    stable_point: Callable[[], int | None]
    every_s: float = HEARTBEAT_S
