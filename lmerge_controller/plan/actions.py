"""What can be done about a merged query: frozen values, each with its reason. Pure.

``ProcessAction`` is for a backend (``backend.Backend.act``), ``InputAction`` for a server
(``lmerge_controller.observe``).

Each action names the fact that it answers, such as one life of a process or one incarnation of an input. It is
conditional on that fact: an action whose fact is no longer so does nothing. So an action may be repeated, come late, or
be taken by two controllers at once, and has its effect once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lmerge_controller.model.query import JumpStartSource


@dataclass(frozen=True)
class StartServer:
    """Start server ``index``; if it runs already, do nothing.

    ``fingerprint``: of what is started. ``after``: the uid of the life that has ended; empty: there was none.
    """

    index: int
    fingerprint: str
    reason: str
    after: str = ""

    @property
    def fact(self) -> str:
        return f"server {self.index} without life after {self.after or 'none'}"


@dataclass(frozen=True)
class StopServer:
    """End the life ``uid`` of server ``index`` (drain it first); if it is another life, or none, do nothing."""

    index: int
    uid: str
    reason: str

    @property
    def fact(self) -> str:
        return f"server {self.index} life {self.uid}"


@dataclass(frozen=True)
class StartReplica:
    """Start a replica's process; if it runs already, do nothing.

    ``after``: the uid of the life that has ended, which is cleared away; empty: there was none. ``role``: active or
    observe, for LMERGE_ROLE. ``jump_start``: what is prepared for it.
    """

    replica: str
    version: str
    index: int
    role: str
    fingerprint: str
    reason: str
    after: str = ""
    jump_start: JumpStartSource = JumpStartSource.NONE

    @property
    def fact(self) -> str:
        return f"replica {self.replica} without life after {self.after or 'none'}"


@dataclass(frozen=True)
class StopReplica:
    """End the life ``uid`` of a replica for good; if it is another life, or none, do nothing.

    It is asked to leave, and killed after a time limit of the backend. What belongs to it goes too (on Kubernetes its
    Deployment), so that nothing starts it again.
    """

    replica: str
    uid: str
    reason: str

    @property
    def fact(self) -> str:
        return f"replica {self.replica} life {self.uid}"


@dataclass(frozen=True)
class ReplaceReplica:
    """End the life ``uid`` of a replica, and start a new one; if it is another life, or none, do nothing.

    The rest is as for StartReplica. It does not wait for the old one to leave by itself for long: the new incarnation
    fences it.
    """

    replica: str
    uid: str
    version: str
    index: int
    role: str
    fingerprint: str
    reason: str
    jump_start: JumpStartSource = JumpStartSource.NONE

    @property
    def fact(self) -> str:
        return f"replica {self.replica} life {self.uid}"


@dataclass(frozen=True)
class PromoteInput:
    """Make an observer active at one server, if ``incarnation`` is still the one that is attached."""

    server: str
    replica: str
    incarnation: int
    reason: str

    @property
    def fact(self) -> str:
        return f"input {self.replica} incarnation {self.incarnation} at {self.server} observes"


@dataclass(frozen=True)
class DemoteInput:
    """Make an active input an observer at one server, if ``incarnation`` is still the one that is attached."""

    server: str
    replica: str
    incarnation: int
    reason: str

    @property
    def fact(self) -> str:
        return f"input {self.replica} incarnation {self.incarnation} at {self.server} is active"


@dataclass(frozen=True)
class DetachInput:
    """End an input at one server whose process is gone, or whose machine does not answer. Its name is not refused."""

    server: str
    replica: str
    incarnation: int
    reason: str

    @property
    def fact(self) -> str:
        return f"input {self.replica} incarnation {self.incarnation} at {self.server} without process"


@dataclass(frozen=True)
class ReleaseInput:
    """Let a quarantined name attach again at one server: its process has been ended, or it is the last that is good."""

    server: str
    replica: str
    reason: str

    @property
    def fact(self) -> str:
        return f"replica {self.replica} quarantined at {self.server}"


ProcessAction: TypeAlias = StartServer | StopServer | StartReplica | StopReplica | ReplaceReplica
InputAction: TypeAlias = PromoteInput | DemoteInput | DetachInput | ReleaseInput
Action: TypeAlias = ProcessAction | InputAction


def target_of(action: Action) -> str:
    """Return what an action is about, for people: a replica, or a server."""
    if isinstance(action, StartServer | StopServer):
        return f"server-{action.index}"
    if isinstance(action, PromoteInput | DemoteInput | DetachInput | ReleaseInput):
        return f"{action.replica} at {action.server}"
    return action.replica
