"""Servers that run already: the drill breaks its own replicas and its own links, never the servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmerge_controller.drill.targets.target import Break


class RunningServers:
    """Existing servers by their addresses. The processes of the servers are out of reach."""

    def __init__(self, addresses: list[str], security: Any) -> None:
        self._addresses, self._security = addresses, security

    @property
    def title(self) -> str:
        return f"servers {', '.join(self._addresses)}"

    @property
    def addresses(self) -> list[str]:
        return self._addresses

    @property
    def security(self) -> Any:
        return self._security

    @property
    def breaks(self) -> Mapping[str, Break]:
        return {}

    @property
    def numbers(self) -> Mapping[str, int]:
        return {"server": len(self._addresses)}

    def check(self) -> None:
        """Do nothing: the servers are not the drill's."""
