"""Sinks: the merged stream in files and tables of other systems, exactly once over kills and restarts.

``parquet`` writes final events to files, ``postgres`` keeps a table. Both store the resume token together with its
effect in one atomic step: a rename, or a transaction. A sink that starts reads the token and goes on from there.

Called by ``lmerge sink``. Imports ``subscribe``, the Arrow tables of ``views``, and the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from lmerge.client.subscribe.envelopes import AnySubscriber
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.wire.schema import Schema


class SinkSubscriber(AnySubscriber, Protocol):
    """What a sink needs of an ``AsyncSubscriber``."""

    @property
    def schema(self) -> Schema | None: ...
    @property
    def epoch(self) -> int | None:
        """The epoch of the merge, once something has come."""

    def close(self) -> None: ...


#: Makes the subscriber of a sink that resumes at this token; None: it begins with the present live events.
Subscribe: TypeAlias = Callable[["str | None"], SinkSubscriber]


@dataclass
class SinkProgress:
    """What a sink has done since its start. ``token``: the stored one; ``written``: rows, or final events."""

    token: str
    written: int = 0
    deleted: int = 0
    steps: int = 0
    gaps: list[SubscriptionGap] = field(default_factory=list)


def ignore_progress(progress: SinkProgress) -> None:
    """Do nothing: for sinks without a callback."""
