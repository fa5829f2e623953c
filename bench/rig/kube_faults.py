"""Breaks a release on a cluster, one fault at a time, and waits until its redundancy is whole again.

Called by ``cluster_faults``, which draws the faults. Pods are killed and nodes drained by the drill's own target. What
no API reaches (the link of a node, the API server) is broken by commands that the user gives.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from bench.rig.kube_release import BYSTANDER, QUERY, RELEASE, BenchRelease, listed
from bench.rig.stalls import CONTROL, InjectedFault
from lmerge_controller.drill.journal import UndoJournal
from lmerge_controller.drill.kube_calls import kill_pod
from lmerge_controller.drill.kube_place import KubePlace
from lmerge_controller.drill.observe import LAG_US_MAX, report_merge
from lmerge_controller.drill.probe.fleet import MERGE, ProbeFleet
from lmerge_controller.drill.redundancy import MergeReports
from lmerge_controller.drill.scenario import DrillStep, FaultKind, StepVictim, VictimKind
from lmerge_controller.drill.targets.kube_release import KubeRelease

REPLICA_KILLED: Final = "replica pod killed"
SERVER_KILLED: Final = "server pod killed"
DRAINED: Final = "node drained"
CUT: Final = "node cut off by its link"
UPGRADED: Final = "servers upgraded one by one"
OUTAGE: Final = "API server and controllers gone"
BYSTANDER_KILLED: Final = "unrelated pod killed (control)"
CONTROLS: Final = (CONTROL, BYSTANDER_KILLED)
# A killed replica is back in about this time.
QUIET_S: Final = 3.0
# The shorter ones pass while connections last; of the longer ones they are given up at both ends.
CUT_S: Final = (3.0, 20.0)
DRAINED_S: Final = 1.0
NOTICE_S_MAX: Final = 15.0
WHOLE_S_MAX: Final = 180.0
# Each look costs a connection to each server.
OBSERVE_S: Final = 0.25
SETTLE_S: Final = 0.2
COMMAND_S_MAX: Final = 120.0


@dataclass(frozen=True)
class UserCommands:
    """Commands of the shell that break and mend what no API reaches; empty: that fault is left out."""

    cut: str = ""
    heal: str = ""
    stop_api: str = ""
    start_api: str = ""
    lock: str = ""

    def lacks(self, kind: str) -> str:
        """Return why faults of a kind are left out, or an empty text."""
        if kind == CUT and not (self.cut and self.heal):
            return "no --cut and --heal"
        if kind == OUTAGE and not (self.stop_api and self.start_api):
            return "no --stop-api and --start-api"
        return ""


@dataclass
class KubeBreaker:
    """Injects faults. ``faults``: those that have been, with the time until all was whole again."""

    release: BenchRelease
    fleet: ProbeFleet
    replicas: frozenset[str]
    commands: UserCommands
    journal: UndoJournal
    random: Random
    outage_s: float
    faults: list[InjectedFault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began_s = 0.0
        self._place = KubePlace(self.release.namespace, RELEASE, QUERY)
        self._inject: dict[str, Callable[[], str]] = {
            REPLICA_KILLED: self._kill_replica,
            SERVER_KILLED: self._kill_server,
            DRAINED: self._drain,
            CUT: self._cut,
            UPGRADED: self._upgrade,
            OUTAGE: self._outage,
            CONTROL: self._nothing,
            BYSTANDER_KILLED: self._kill_bystander,
        }

    def inject(self, kind: str) -> InjectedFault:
        """Break, mend, and wait until all is whole. Raises RuntimeError if it does not become so."""
        self._began_s = time.monotonic()
        victim = self._inject[kind]()
        self.await_whole(f"{kind}, {victim}")
        fault = InjectedFault(kind, victim, self._began_s, time.monotonic() - self._began_s)
        self.faults.append(fault)
        return fault

    def await_whole(self, after: str) -> None:
        """Wait until every replica counts at every server, and the reader reads from all. Raises RuntimeError."""
        self._await(self._lacks, f"{after}: all is whole")

    def _await(self, lacking: Callable[[], list[str]], what: str) -> None:
        until_s = time.monotonic() + WHOLE_S_MAX
        while lacks := lacking():
            if time.monotonic() > until_s:
                raise RuntimeError(f"not within {WHOLE_S_MAX:.0f} s: {what}: {'; '.join(lacks)}")
            time.sleep(OBSERVE_S)

    # What is broken. Each returns what it hit.

    def _kill_replica(self) -> str:
        """Kill a replica on the node that has most of them: so a drained node gets some back."""
        pods = listed("pod", "-n", self.release.namespace, "-l", f"lmerge.dev/query={QUERY}")
        nodes = [str(pod["spec"].get("nodeName", "")) for pod in pods]
        most = max(map(nodes.count, nodes))
        victim = self.random.choice([pod for pod, node in zip(pods, nodes) if nodes.count(node) == most])
        return self._kill("input", sorted(self.replicas).index(str(victim["metadata"]["labels"]["lmerge.dev/replica"])))

    def _kill_server(self) -> str:
        return self._kill("server", self.random.randrange(len(self.release.addresses)))

    def _kill(self, kind: str, index: int) -> str:
        step = DrillStep(FaultKind.KILL, StepVictim(VictimKind(kind), index + 1))
        target, before = self._target(), self._reports()
        self._begin()
        target.breaks[step.ability](index + 1, step)
        self._await_noticed(f"{kind} {index}", before)  # Kubernetes starts another: there is nothing to undo
        return f"{kind} {index}"

    def _drain(self) -> str:
        target = self._target()
        number = self.random.randrange(target.numbers["node"]) + 1
        step = DrillStep(FaultKind.DRAIN, StepVictim(VictimKind.NODE, number))
        with self._locked():
            self._begin()
            undo = target.breaks[step.ability](number, step)
            time.sleep(DRAINED_S)
            undo()
        return f"node {number}"

    def _cut(self) -> str:
        seconds = self.random.uniform(*CUT_S)
        with self._locked(), self._undone(self.commands.heal):
            self._begin()
            shell(self.commands.cut)
            time.sleep(seconds)
        return f"for {seconds:.0f} s"

    def _upgrade(self) -> str:
        self.release.kubectl("rollout", "restart", f"statefulset/{RELEASE}-server")
        self.release.kubectl("rollout", "status", f"statefulset/{RELEASE}-server", "--timeout=180s")
        return "all servers"

    def _outage(self) -> str:
        controllers = f"deployment/{RELEASE}-controller"
        with self._locked():
            self.release.kubectl("scale", controllers, "--replicas=0")
            self.release.kubectl(
                "wait", "pod", "-l", "app.kubernetes.io/component=controller", "--for=delete", "--timeout=60s"
            )
            with self._undone(self.commands.start_api):
                shell(self.commands.stop_api)
                time.sleep(self.outage_s)
        self.release.kubectl("scale", controllers, "--replicas=2")
        self.release.kubectl("rollout", "status", controllers, "--timeout=120s")
        return f"for {self.outage_s:.0f} s"

    def _nothing(self) -> str:
        time.sleep(QUIET_S)
        return "nothing"

    def _kill_bystander(self) -> str:
        """Kill a pod that has nothing to do with the stream, and look as often as after other faults.

        So this is what the start of a pod costs those that share its cores.
        """
        (pod,) = self._bystanders()
        self._begin()
        kill_pod(self._place, pod)
        until_s = time.monotonic() + QUIET_S
        while time.monotonic() < until_s:
            self._lacks()
            time.sleep(OBSERVE_S)
        self._await(self._has_no_bystander, "another bystander runs")
        return BYSTANDER

    # Parts.

    def _begin(self) -> None:
        """Begin the fault, when what its preparation costs is over."""
        time.sleep(SETTLE_S)
        self._began_s = time.monotonic()

    def _bystanders(self) -> list[dict[str, Any]]:
        found = listed("pod", "-n", self.release.namespace, "-l", f"app={BYSTANDER}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def _has_no_bystander(self) -> list[str]:
        running = [pod for pod in self._bystanders() if pod["status"]["phase"] == "Running"]
        return [] if running else ["no bystander runs"]

    def _target(self) -> KubeRelease:
        return KubeRelease(self._place, self.journal, list(self.release.addresses), self.release.security)

    def _lacks(self) -> list[str]:
        self.fleet.read_messages()
        found = self._reports().lacks
        joined, servers = self.fleet.reader.joined, len(self.release.addresses)
        return found if joined == servers else [*found, f"the reader reads from {joined} of {servers} servers"]

    def _reports(self) -> MergeReports:
        return report_merge(
            self.release.addresses, MERGE, self.replicas, security=self.release.security, lag_max=LAG_US_MAX
        )

    def _await_noticed(self, victim: str, before: MergeReports) -> None:
        """Wait until the servers show the fault. A fault without an effect would prove nothing.

        A replica may be back between two looks; then its incarnation is another one.
        """
        until_s = time.monotonic() + NOTICE_S_MAX
        while not (self._lacks() or self._reports().came_back_since(before)):
            if time.monotonic() > until_s:
                raise RuntimeError(f"{victim} was killed, and nothing was noticed for {NOTICE_S_MAX:.0f} s")
            time.sleep(OBSERVE_S)

    @contextmanager
    def _undone(self, mending: str) -> Iterator[None]:
        """Run a command at the end, which is in the journal before."""
        note = self.journal.note("run-command", argv=["sh", "-c", mending], timeout_s=COMMAND_S_MAX)
        try:
            yield
        finally:
            shell(mending)
            self.journal.done(note)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of those who share the cluster, if there is one."""
        if not self.commands.lock:
            yield
            return
        holder = subprocess.Popen(
            ["flock", "-o", self.commands.lock, "sh", "-c", "echo held; cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            yield
        finally:
            holder.communicate()


def shell(text: str) -> None:
    """Run a command of the user's. Raises RuntimeError with its output if it fails."""
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False, timeout=COMMAND_S_MAX)
    if done.returncode:
        raise RuntimeError(f"{text} ended with exit code {done.returncode}: {done.stdout}{done.stderr}")
