"""The fence of incarnations (law 3, docs/laws.md).

An incarnation of an input is accepted once, and no older one after it. ``Merge`` owns the fence.
"""

from __future__ import annotations

from lmerge.core.inputs import INCARNATION_MAX
from lmerge.errors import InputTaken, StaleIncarnation, UsageError


class IncarnationFence:
    """The newest incarnation of each name that one merge has accepted, also of inputs that have left."""

    def __init__(self, newest: dict[str, int] | None = None) -> None:
        self.newest: dict[str, int] = {} if newest is None else newest

    def __contains__(self, name: str) -> bool:
        """Return whether an input of that name has ever attached."""
        return name in self.newest

    def next(self, name: str, incarnation: int | None, attached: int | None) -> int:
        """Return the incarnation with which an input may attach now; None requests the one after the newest.

        ``attached``: the incarnation that is attached under that name, if one is. Changes nothing: see ``raise_to``.
        Raises InputTaken, StaleIncarnation, UsageError.
        """
        newest = self.newest.get(name)
        if incarnation is None:
            if attached is not None:
                raise InputTaken(f"input {name!r} cannot attach: incarnation {attached} of it is attached")
            if newest is not None and newest >= INCARNATION_MAX:
                raise UsageError(
                    f"input {name!r} cannot attach: no incarnation is newer than {newest}, which was seen; an "
                    "administrator can let the name begin again: lmerge detach --forget"
                )
            return 1 if newest is None else newest + 1
        if not 0 < incarnation <= INCARNATION_MAX:
            raise UsageError(
                f"input {name!r} cannot attach: incarnation {incarnation} is not between 1 and {INCARNATION_MAX}"
            )
        if incarnation == attached:
            raise InputTaken(f"input {name!r} cannot attach: incarnation {incarnation} of it is attached")
        if newest is not None and incarnation <= newest:
            raise StaleIncarnation(
                f"input {name!r} cannot attach: incarnation {incarnation} is not newer than {newest}, which was seen"
            )
        return incarnation

    def raise_to(self, name: str, incarnation: int) -> None:
        """Refuse this incarnation of ``name``, and older ones, from now on."""
        self.newest[name] = incarnation

    def forget(self, name: str) -> None:
        """Let any incarnation of ``name`` attach, as if none had been seen."""
        self.newest.pop(name, None)

    def take_over(self, before: IncarnationFence) -> None:
        """Refuse what ``before`` refuses too."""
        for name, newest in before.newest.items():
            self.newest[name] = max(newest, self.newest.get(name, newest))
