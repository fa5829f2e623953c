"""Servers that run already: the drill breaks its own replicas and its own links, never the servers."""

from __future__ import annotations

from collections.abc import Mapping

from lmerge_controller.drill.targets.target import AddressedTarget, Break


class RunningServers(AddressedTarget):
    """Existing servers by their addresses. The processes of the servers are out of reach."""

    @property
    def title(self) -> str:
        return f"servers {', '.join(self._addresses)}"

    @property
    def breaks(self) -> Mapping[str, Break]:
        return {}

    @property
    def numbers(self) -> Mapping[str, int]:
        return {"server": len(self._addresses)}
