"""Sinks: the merged stream in files and tables of other systems, exactly once over kills and restarts.

``parquet`` writes final events to files, ``postgres`` keeps a table. Both store the resume token together with what it
stands for, in one step that happens or does not: a rename, a transaction. A sink that starts reads it, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from lmerge.client.subscribe.envelopes import AnySubscriber
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.wire.schema import Schema


class Source(AnySubscriber, Protocol):
    """What a sink needs of an ``AsyncSubscriber``."""

    @property
    def schema(self) -> Schema | None: ...
    @property
    def epoch(self) -> int | None:
        """Of the merge, once something has come."""
    def close(self) -> None: ...


#: Makes the subscriber of a sink that goes on at this token; None: from the live events of now.
Subscribe: TypeAlias = Callable[["str | None"], Source]


@dataclass
class Progress:
    """What a sink has done since it was started. ``token``: what is stored; ``written``: rows, or final events."""

    token: str
    written: int = 0
    deleted: int = 0
    steps: int = 0
    gaps: list[SubscriptionGap] = field(default_factory=list)


def nobody(progress: Progress) -> None:
    """For sinks whose progress nobody watches."""
