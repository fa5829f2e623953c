"""The interface of targets: where the servers are, and what can be broken there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from lmerge_controller.drill.scenario import DrillStep

#: Undoes a fault. It may take as long as a server needs to start.
Undo = Callable[[], None]
#: Breaks a victim, given by its number from 1, as the step describes. Returns what undoes it.
Break = Callable[[int, DrillStep], Undo]


class DrillTarget(Protocol):
    """Where a drill takes place. Use it in a ``with``: the end undoes what the target itself has made."""

    @property
    def title(self) -> str:
        """What it is, in reports."""

    @property
    def addresses(self) -> list[str]:
        """The servers, as clients reach them."""

    @property
    def security(self) -> Any:
        """How clients connect: a Security or None."""

    @property
    def breaks(self) -> Mapping[str, Break]:
        """Abilities of faults of servers and nodes, such as ``kill server``."""

    @property
    def numbers(self) -> Mapping[str, int]:
        """How many victims of each kind there are: ``server``, ``node``, ``api-server``."""

    def check(self) -> None:
        """Raise LmergeError if a part has ended that the drill did not break."""


class AddressedTarget:
    """The servers of a target that knows them from its beginning, and keeps none of them running itself."""

    def __init__(self, addresses: Sequence[str], security: Any) -> None:
        self._addresses, self._security = list(addresses), security

    @property
    def addresses(self) -> list[str]:
        return self._addresses

    @property
    def security(self) -> Any:
        return self._security

    def check(self) -> None:
        """Do nothing: others keep the servers."""
