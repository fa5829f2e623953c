"""How long does the output stop when a replica, a connection or a server is killed, and is anything lost or doubled?

Real processes on one machine: 2 servers, 3 replicas of 5,000 elements/s each that publish the same table in different
physical forms (20 % disorder, 22 % of the events adjusted, stables), and one reader of both servers that checks every
element. Under this load two to three faults come a second, drawn from a seed: SIGKILL of a replica (its supervisor
starts another at once), SIGSTOP for up to half a second, a connection reset, a direction of a link held, SIGKILL of a
server, and, as a control, nothing at all. The next fault comes when all processes have joined again, so that there is
redundancy to test. Some faults are two at once. Processes are forked from one that has imported everything: a machine
of two cores cannot import gRPC twice a second beside the load.

Counted: the longest time between two output batches, from the fault to the next one or for a second (``rig.stalls``).
Beside it, in the same run: one replica without a merge and a supervisor that starts it again; one durable server
(--store) that is killed and started again by its supervisor, both started as a user would; and, as root, all of it over
a line with delay, jitter and loss (``rig.wan``).
Targets: nothing lost, doubled or contradicted; replica killed: p99 <= 20 ms; server killed: p99 <= 50 ms; the single
durable server: <= 3 s.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

from bench.harness import BenchReport, Panel, begin, bench_parser, plot
from bench.rig import links
from bench.rig.fleet import READER, FleetSpec, RigFleet, import_all
from bench.rig.judge import StreamVerdict
from bench.rig.stalls import CONTROL, InjectedFault, add_distribution, add_rows, cpu_seconds, stalls_of, verdict
from bench.rig.wan import Line, wan
from bench.rig.wan import problem as wan_problem

REPLICA_MS, SERVER_MS, DURABLE_MS = 20.0, 50.0, 3_000.0
PAUSE_S = (0.20, 0.45)  # from a fault to the next, if all have joined again by then
STOP_S = (0.02, 0.5)
WHOLE_S_MAX = 20.0

REPLICA_KILLED, REPLICA_STOPPED = "replica killed", "replica stopped"
PAIR_KILLED = "two replicas killed"
CUT, STALLED = "replica's connection reset", "replica's link held"
READER_CUT, READER_STALLED = "reader's connection reset", "reader's link held"
SERVER_KILLED, SERVER_STOPPED = "server killed", "server stopped"
BOTH_KILLED = "replica and server killed"
WEIGHTS = {
    REPLICA_KILLED: 48,
    PAIR_KILLED: 4,
    REPLICA_STOPPED: 8,
    CUT: 8,
    STALLED: 6,
    READER_CUT: 4,
    READER_STALLED: 3,
    SERVER_KILLED: 10,
    SERVER_STOPPED: 4,
    BOTH_KILLED: 1,
    CONTROL: 4,
}
ALONE = "one replica without a merge, killed"
DURABLE = "a single durable server killed"
PAUSE_EXECUTED_S = (1.0, 1.5)  # where processes are started as a user would
LAGS_S = (0.0, 0.002, 0.004)  # replicas are never equally fast: the kill of the first costs its lead
EXECUTED_S = 5.0  # the window of a stall then


class Breaker:
    """Draws faults from a seed and injects them into a fleet."""

    def __init__(self, fleet: RigFleet, weights: dict[str, int], random: Random) -> None:
        self.fleet, self.weights, self.random = fleet, weights, random
        self.faults: list[InjectedFault] = []
        self._later: list[tuple[float, Callable[[], None]]] = []

    def run(self, count: int, pause_s: tuple[float, float], log: Callable[[str], None]) -> None:
        """Inject ``count`` faults. Raises RuntimeError if the fleet does not become whole again."""
        for at in range(1, count + 1):
            kind = self.random.choices(list(self.weights), list(self.weights.values()))[0]
            began_s = time.monotonic()
            victim = self.inject(kind)
            try:
                whole_s = self._recover(began_s, self.random.uniform(*pause_s))
            except RuntimeError as error:
                raise RuntimeError(f"fault {at}, {kind} {victim}: {error}") from error
            self.faults.append(InjectedFault(kind, victim, began_s, whole_s))
            if at % 100 == 0:
                log(f"{at} faults, output of {self.fleet.output.elements:,} elements")

    def inject(self, kind: str) -> str:
        """Inject one fault and return what it hit."""
        random, fleet = self.random, self.fleet
        replica, server = random.choice(fleet.spec.replicas), random.choice(fleet.spec.servers)
        seconds = random.uniform(*STOP_S)
        if kind in (REPLICA_KILLED, BOTH_KILLED):
            self._kill_replicas(replica)
        if kind == PAIR_KILLED:
            pair = random.sample(fleet.spec.replicas, 2)
            self._kill_replicas(*pair)
            return " and ".join(pair)
        if kind in (SERVER_KILLED, BOTH_KILLED):
            fleet.processes[server].kill()
            fleet.start_server(server)
            return server if kind == SERVER_KILLED else f"{replica} and {server}"
        if kind in (REPLICA_STOPPED, SERVER_STOPPED):
            process = fleet.processes[replica if kind == REPLICA_STOPPED else server]
            process.stop()
            self._later.append((time.monotonic() + seconds, process.go_on))
            return process.name
        if kind in (CUT, READER_CUT):
            link = f"{replica if kind == CUT else READER}>{server}"
            fleet.cut(link)
            return link
        if kind in (STALLED, READER_STALLED):
            link = f"{replica if kind == STALLED else READER}>{server}"
            fleet.stall(link, random.choice((links.UP, links.DOWN)), seconds)
            return link
        return replica

    def _kill_replicas(self, *names: str) -> None:
        for name in names:
            self.fleet.processes[name].kill()
        for name in names:
            self.fleet.start_replica(name)

    def _recover(self, began_s: float, pause_s: float) -> float:
        """Wait for the pause, and until all have joined again. Return how long that took."""
        fleet, whole_s = self.fleet, 0.0
        while True:
            fleet.read_messages(0.01)
            now = time.monotonic()
            for due, act in [later for later in self._later if later[0] <= now]:
                self._later.remove((due, act))
                act()
            if not self._later and not whole_s:
                fleet.ask_output()
                whole_s = now - began_s if fleet.is_whole else 0.0
            if whole_s and now - began_s >= pause_s:
                return whole_s
            if now - began_s > WHOLE_S_MAX:
                raise RuntimeError(f"not whole {WHOLE_S_MAX:.0f} s after a fault; {fleet.state()}")


def broken(
    spec: FleetSpec,
    weights: dict[str, int],
    faults: int,
    seed: int,
    pause_s: tuple[float, float],
    log: Callable[[str], None],
    line: Line | None = None,
) -> tuple[list[InjectedFault], StreamVerdict]:
    """Run the fleet under load with so many faults. ``line``: between the servers and all clients."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(_folder("lmerge-kills-")))
        far = stack.enter_context(wan(folder, line, seed)) if line is not None else None
        fleet = stack.enter_context(RigFleet(spec, folder, far))
        fleet.await_whole()
        fleet.read_messages(1.0)
        breaker = Breaker(fleet, weights, Random(seed))
        breaker.run(faults, pause_s, log)
        fleet.await_whole()
        return breaker.faults, fleet.finish()


def merged(report: BenchReport, panel: Panel, faults: int, seed: int) -> bool:
    """Run the main part: two servers, three replicas. Return whether the output was right."""
    before = cpu_seconds()
    found, seen = broken(FleetSpec(lags_s=LAGS_S), WEIGHTS, faults, seed, PAUSE_S, _log)
    after = cpu_seconds()
    report.note(f"{len(found):,} faults from seed {seed}: {seen.summary()}")
    stalls = stalls_of(seen.arrivals, found)
    for kind in (kind for kind in WEIGHTS if kind in stalls):
        add_rows(report, kind, stalls[kind])
        add_distribution(panel, kind, stalls[kind])
    killed = stalls.get(REPLICA_KILLED, [])
    victims = [fault.victim for fault in found if fault.kind == REPLICA_KILLED]
    for what, values in (
        ("replica killed, the fastest one", [stall for stall, victim in zip(killed, victims) if victim == "a"]),
        ("killed replica has joined again, after", [f.whole_s * 1e3 for f in found if f.kind == REPLICA_KILLED]),
        ("killed server is read again, after", [f.whole_s * 1e3 for f in found if f.kind == SERVER_KILLED]),
        ("age of an insert at the reader, all the time", [age for age in seen.ages_ms if age >= 0]),
    ):
        if values:
            add_rows(report, what, values)
    if killed:
        verdict(report, "a replica killed", killed, REPLICA_MS)
    if SERVER_KILLED in stalls:
        verdict(report, "a server of two killed", stalls[SERVER_KILLED], SERVER_MS)
    idle = (after[1] - before[1]) / max(after[0] - before[0], 1e-9)
    report.note(f"cores idle during the run: {idle:.0%}; load at its end {os.getloadavg()[1]:.1f}")
    return seen.is_good


def alone(report: BenchReport, panel: Panel, kills: int, seed: int) -> bool:
    """Run one replica without a merge, started again by its supervisor. Return whether the output was right.

    It is the best case of such a replica: it has no state to load, is started at once, and publishes what it has missed
    as fast as it can.
    """
    spec = FleetSpec(replicas=("a",), servers=("s1",), execute=("a",), resume=True)
    found, seen = broken(spec, {REPLICA_KILLED: 1}, kills, seed, PAUSE_EXECUTED_S, _log)
    report.note(f"one replica without a merge, {len(found)} kills: {seen.summary()}")
    stalls = stalls_of(seen.arrivals, found, EXECUTED_S)[REPLICA_KILLED]
    add_rows(report, ALONE, stalls)
    add_distribution(panel, ALONE, stalls)
    return seen.is_good


def durable(report: BenchReport, panel: Panel, kills: int, seed: int) -> bool:
    """Run one server with a store, killed and started again. Return whether the output was right."""
    with _folder("lmerge-store-") as store:
        spec = FleetSpec(servers=("s1",), server_options=("--store", store), execute=("s1",))
        found, seen = broken(spec, {SERVER_KILLED: 1}, kills, seed, PAUSE_EXECUTED_S, _log)
    report.note(f"one durable server, {len(found)} kills: {seen.summary()}")
    stalls = stalls_of(seen.arrivals, found, EXECUTED_S)[SERVER_KILLED]
    add_rows(report, DURABLE, stalls)
    add_distribution(panel, DURABLE, stalls)
    reached = max(stalls) <= DURABLE_MS and seen.is_good
    report.note(
        f"target a single durable server killed: largest <= {DURABLE_MS:g} ms, nothing lost: "
        f"{'reached' if reached else 'MISSED'} ({max(stalls):.0f} ms)"
    )
    return seen.is_good


def over_wan(report: BenchReport, panel: Panel, faults: int, seed: int) -> bool:
    """Run the main part with all clients behind a line with delay, jitter and loss. Return whether it was right."""
    if (why := wan_problem()) is not None:
        report.note(f"over a line with delay and loss: left out, {why}")
        return True
    line = Line()
    found, seen = broken(FleetSpec(lags_s=LAGS_S), WEIGHTS, faults, seed, PAUSE_S, _log, line)
    milliseconds = f"{line.delay_s * 1e3:g} to {(line.delay_s + line.jitter_s) * 1e3:g} ms"
    report.note(f"{milliseconds} one way, {line.loss:.0%} of the packets lost, {len(found):,} faults: {seen.summary()}")
    stalls = stalls_of(seen.arrivals, found)
    for kind in (REPLICA_KILLED, SERVER_KILLED, CONTROL):
        if kind in stalls:
            add_rows(report, f"over that line: {kind}", stalls[kind])
    add_distribution(panel, "any fault, over a slow and lossy line", [s for values in stalls.values() for s in values])
    return seen.is_good


def _folder(prefix: str) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)


PARTS = {"merged": merged, "alone": alone, "durable": durable, "wan": over_wan}
COUNTS = {"merged": 2_200, "alone": 20, "durable": 50, "wan": 150}


def _log(text: str) -> None:
    print(f"    {time.strftime('%H:%M:%S')} {text}", flush=True)


def main() -> int:
    """Run the parts. Return 0 if every output was right, whatever the times."""
    parser = bench_parser(__doc__, "kills", "few faults")
    parser.add_argument("--faults", type=int, help=f"faults in each part; default: {COUNTS}")
    parser.add_argument("--seed", type=int, default=4, help="from which the faults are drawn (%(default)s)")
    parser.add_argument(
        "--part", choices=PARTS, action="append", help="run only this part; repeatable; nothing is written"
    )
    options = parser.parse_args()
    import_all()
    report = begin((__doc__ or "").splitlines()[0])
    panel = Panel("a fault under load", "longest time without output, ms", "part of the faults beyond", log="xy")
    right = True
    for name in options.part or PARTS:
        count = options.faults or (COUNTS[name] if not options.quick else 40 if name in ("merged", "wan") else 5)
        right = PARTS[name](report, panel, count, options.seed) and right
    if not (options.quick or options.part or options.faults):
        report.save("kills")
        plot("kills", "Stall of the merged output", [panel], columns=1)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
