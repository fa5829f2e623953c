"""Where a drill on Kubernetes takes place. Called without the client of Kubernetes, which it does not import."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class KubePlace:
    """A release of the chart in a namespace. ``query``: a ReplicatedQuery whose replicas may be broken, or empty."""

    namespace: str
    release: str
    query: str = ""
    kubeconfig: str | None = None
    context: str | None = None

    @property
    def owner(self) -> str:
        """The value of the annotation of nodes that a drill of this release has cordoned."""
        return f"{self.namespace}.{self.release}"

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values, for a journal."""
        return asdict(self)
