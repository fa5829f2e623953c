"""Where the drills of one command take place: what makes the target, and what is known of it before.

Called by the command ``drill``. Each function describes one kind of target.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

from lmerge.errors import UsageError
from lmerge_controller.drill.kube_place import KubePlace
from lmerge_controller.drill.observe import merges_of
from lmerge_controller.drill.probe.fleet import MERGE
from lmerge_controller.drill.run import LINK_ABILITIES, SANDBOX_ABILITIES
from lmerge_controller.drill.scenario import DrillScenario
from lmerge_controller.drill.session import TargetMaker
from lmerge_controller.drill.targets.described import DescribedTarget, TargetDescription
from lmerge_controller.drill.targets.local_query import LocalQueryTarget, status_of_query
from lmerge_controller.drill.targets.running import RunningServers
from lmerge_controller.drill.targets.sandbox import ServerSandbox
from lmerge_controller.local.state_folder import StateFolder

# What needs nothing of the servers but that they run: neither comparison nor short intervals.
_OF_ANY_SERVERS: Final = frozenset({"kill replica", "freeze replica", "skew-clock replica", *LINK_ABILITIES})
_OF_PROCESSES: Final = frozenset({"kill server", "freeze server", "kill input", "freeze input"})


@dataclass(frozen=True)
class AimedDrill:
    """A target before it is made.

    ``addresses``: servers that run already. ``watched``: merges of the user's that are always read beside the probe.
    ``guarded``: merges that no fault may interrupt, and that must be seen for it: those whose replicas are broken.
    ``abilities``: which scenarios are meant where none is named; None: all.
    """

    make: TargetMaker
    addresses: tuple[str, ...] = ()
    security: Any = None
    watched: tuple[str, ...] = ()
    abilities: frozenset[str] | None = None
    guarded: tuple[str, ...] = ()

    def can_run(self, scenario: DrillScenario) -> bool:
        """Return whether a scenario is one of those that run without being named."""
        if self.abilities is None:
            return True
        if not self.abilities.issuperset(scenario.abilities):
            return False
        needs = scenario.needs
        if not self.addresses:  # a sandbox has what a scenario needs
            return True
        return needs.servers <= len(self.addresses) and not (needs.durable or needs.compared)

    def protected(self, named: list[str] | None) -> list[str]:
        """Return the merges that no fault may interrupt: the named ones, or all of the user's. Raises LmergeError."""
        found = list(named or [])
        if not named and self.addresses:
            found = [name for name in merges_of(self.addresses, security=self.security) if name != MERGE]
        return list(dict.fromkeys([*self.guarded, *found]))


IN_SANDBOX: Final = AimedDrill(
    lambda scenario, folder, journal: ServerSandbox(scenario.needs, folder, journal), abilities=SANDBOX_ABILITIES
)


def at_servers(addresses: list[str], security: Any) -> AimedDrill:
    """Return the drills at servers that run and are not broken."""
    return AimedDrill(
        lambda scenario, folder, journal: nullcontext(RunningServers(addresses, security)), tuple(addresses), security
    )


def at_described(description: TargetDescription, security: Any) -> AimedDrill:
    """Return the drills at a target that a file describes."""
    return AimedDrill(
        lambda scenario, folder, journal: nullcontext(DescribedTarget(description, security, journal)),
        description.servers,
        security,
    )


def at_kube(place: KubePlace, addresses: list[str], security: Any) -> AimedDrill:
    """Return the drills at a release on Kubernetes. ``addresses``: its servers; empty: by DNS. Raises LmergeError.

    Nodes that a killed drill of this release has left cordoned are uncordoned.
    """
    try:
        import kubernetes.aio  # noqa: F401 - only to report clearly that it is missing
    except ImportError:
        raise UsageError("drills on Kubernetes need its client: pip install 'lmerge[kubernetes]'") from None
    from lmerge_controller.drill.targets.kube_release import (
        KubeRelease,
        address_of,
        mend_nodes,
        merges_of_query,
        server_pods,
    )

    mend_nodes(place)
    found = addresses or [address_of(pod) for pod in server_pods(place)]
    return AimedDrill(
        lambda scenario, folder, journal: nullcontext(KubeRelease(place, journal, found, security)),
        tuple(found),
        security,
        abilities=_OF_ANY_SERVERS | {"kill server"} | ({"kill input"} if place.query else frozenset()),
        guarded=merges_of_query(place),
    )


def at_local_query(folder: StateFolder, security: Any) -> AimedDrill:
    """Return the drills at a query that `lmerge up` runs, whose own merge is watched. Raises UsageError."""
    status = status_of_query(folder)
    return AimedDrill(
        lambda scenario, _, journal: nullcontext(LocalQueryTarget(folder, journal, security)),
        status.addresses,
        security,
        (status.merge,),
        _OF_ANY_SERVERS | _OF_PROCESSES,
        (status.merge,),
    )
