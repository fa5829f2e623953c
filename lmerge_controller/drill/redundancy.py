"""Whether a step would be survived: pure checks of what the servers report, before each fault.

Called by the runner, for the probe's merge and for the user's merges on the same servers. A drill refuses where the
next fault would interrupt a stream, and names what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lmerge_controller.drill.scenario import DrillNeeds, DrillScenario, DrillStep, FaultKind, VictimKind

COMPARING: Final = ("majority", "hold", "quarantine")
# What is reported of a merge whose servers write to a store.
DURABLE: Final = "durable"


@dataclass(frozen=True)
class ServerReport:
    """What one server reports of one merge. ``problem``: why it could not be asked, or empty.

    ``joined``: names of the inputs that could carry the output alone; ``won``: elements of the output that each input
    has caused; ``incarnations``: that of each attached input; ``survives_losses``: so many inputs may be lost.
    """

    address: str
    merge: str
    problem: str = ""
    joined: frozenset[str] = frozenset()
    won: tuple[tuple[str, int], ...] = ()
    incarnations: tuple[tuple[str, int], ...] = ()
    survives_losses: int = 0
    divergence_policy: str = ""
    store: str = ""
    stable_point: int = -(2**63)
    epoch: int = 0


@dataclass(frozen=True)
class MergeReports:
    """What all servers report of one merge. ``replicas``: the inputs that are expected to be joined, if known."""

    merge: str
    servers: tuple[ServerReport, ...]
    replicas: frozenset[str] = frozenset()

    @property
    def answering(self) -> tuple[ServerReport, ...]:
        """The servers that have answered."""
        return tuple(server for server in self.servers if not server.problem)

    @property
    def lacks(self) -> list[str]:
        """What is missing until the redundancy is whole; empty: it is whole."""
        found = [f"server {server.address}: {server.problem}" for server in self.servers if server.problem]
        for server in self.answering:
            missing = sorted(self.replicas - server.joined)
            if missing:
                found.append(f"server {server.address}: {', '.join(missing)} not joined")
        return found

    def came_back_since(self, earlier: MergeReports) -> bool:
        """Return whether an input has attached again since: at some server it has another incarnation."""
        before = {
            (server.address, name): number for server in earlier.answering for name, number in server.incarnations
        }
        return any(
            before.get((server.address, name), number) != number
            for server in self.answering
            for name, number in server.incarnations
        )

    def winner(self) -> str:
        """Return the joined replica that has caused most of the output, over all servers."""
        won = dict.fromkeys(sorted(self.replicas), 0)
        for server in self.answering:
            for name, count in server.won:
                if name in won:
                    won[name] += count
        return max(won, key=lambda name: won[name])


def unmet_needs(scenario: DrillScenario, abilities: frozenset[str], replicas: int, probe: MergeReports) -> list[str]:
    """Return what a target lacks for a scenario, as text. ``replicas``: how many of the probe there will be."""
    needs: DrillNeeds = scenario.needs
    found = [f"this target cannot {ability}" for ability in scenario.abilities if ability not in abilities]
    if replicas < needs.replicas:
        found.append(f"it needs {needs.replicas} replicas, and there are {replicas}")
    if len(probe.servers) < needs.servers:
        found.append(f"it needs {needs.servers} servers, and there are {len(probe.servers)}")
    for server in probe.servers:
        if server.problem:
            found.append(f"server {server.address}: {server.problem}")
            continue
        if needs.durable and server.store != DURABLE:
            found.append(f"server {server.address} has no store that can be written (serve --store): {server.store}")
        if needs.compared and server.divergence_policy not in COMPARING:
            found.append(
                f"server {server.address} compares with --on-divergence {server.divergence_policy}; "
                f"it needs {', '.join(COMPARING)}"
            )
    return found


def refusal(step: DrillStep, victims: int, merges: Sequence[MergeReports]) -> list[str]:
    """Return why a step would not be survived, as text; empty: it would.

    ``victims``: how many fall at once. ``merges``: that of the probe, whose replicas are the victims of faults of
    replicas, then those of users, which only share the servers.
    """
    found: list[str] = []
    for number, merge in enumerate(merges):
        if step.victim.kind is VictimKind.INPUT:
            found += [] if number == 0 else _without_replicas(step, merge, victims)
        elif step.victim.kind is not VictimKind.REPLICA:
            found += _without_a_server(merge, victims if step.victim.kind is VictimKind.SERVER else 1)
        elif number == 0:
            found += _without_replicas(step, merge, victims)
    return found


def is_noticed(step: DrillStep, victims: Sequence[str], probe: MergeReports) -> bool:
    """Return whether the servers show the effect of a fault; a fault without an effect proves nothing.

    ``victims``: names of replicas, or numbers of servers from 1. Of faults that the servers need not notice, such as a
    slow connection, nothing is required.
    """
    if step.victim.kind is VictimKind.SERVER:
        found = [probe.servers[int(victim) - 1] for victim in victims]
        if step.fault is FaultKind.FILL_DISK:
            return all(server.problem or server.store != DURABLE for server in found)
        return step.fault not in (FaultKind.KILL, FaultKind.STOP, FaultKind.FREEZE) or all(s.problem for s in found)
    if step.victim.kind is VictimKind.REPLICA and step.fault in (FaultKind.KILL, FaultKind.LIE):
        return not any(server.joined.intersection(victims) for server in probe.answering)
    return True


def _without_replicas(step: DrillStep, merge: MergeReports, victims: int) -> list[str]:
    found = [f"{merge.merge}: {lack}" for lack in merge.lacks]
    for server in merge.answering:
        if step.victim.kind is VictimKind.INPUT and not server.joined:
            continue  # the query does not publish to this server
        left = server.survives_losses - victims
        honest = len(server.joined) - victims
        if left < 0:
            found.append(
                f"{merge.merge}: at {server.address} it survives the loss of {server.survives_losses}, not of {victims}"
            )
        elif step.fault is FaultKind.LIE and honest < 2:
            found.append(f"{merge.merge}: at {server.address} {honest} would be left to contradict a liar, and 2 must")
    return found


def _without_a_server(merge: MergeReports, victims: int) -> list[str]:
    """Return what is missing for a merge to go on without ``victims`` of its servers."""
    found = [f"{merge.merge}: {lack}" for lack in merge.lacks]
    able = [server for server in merge.answering if server.joined]
    if len(able) <= victims:
        found.append(f"{merge.merge}: {len(able)} servers could carry it, and {victims} would go")
        return found
    points = {server.address: server.joined for server in able}
    unlike = sorted({", ".join(sorted(names)) or "none" for names in points.values()})
    if len(unlike) > 1:
        found.append(f"{merge.merge}: its servers do not have the same replicas: {' | '.join(unlike)}")
    return found
