"""How long does the output pause when pods, nodes, links and the control plane of a real Kubernetes are broken?

On the cluster that KUBECONFIG names (two nodes) a release of the chart as it comes: two servers with volumes,
certificates and tokens, two controllers, and a ReplicatedQuery of three replicas over both nodes that publish 500
events/s in different physical forms. The drill's reader reads both servers from this machine, which must route to the
cluster's services; the drill's judge compares every event with the truth. Faults in an order drawn from a seed: a
replica's pod killed (no grace period), a server's pod killed, a node drained, a node cut off by its link for 3 to 20 s,
the servers upgraded one by one, and two controls: nothing for some seconds, and the kill of a pod that has nothing to
do with the stream, which shows what the start of a pod costs those that share its cores. At the end the API server and
the controllers are gone for minutes. The next fault comes when every replica counts at both servers again.

Counted: the longest time without output from the fault until all is whole again, and half a second more. What only a
command reaches is left out without its commands: --cut and --heal, --stop-api and --start-api.
Targets: nothing lost, twice or contradicted; p99 of a replica's pod killed <= 50 ms, a server's pod <= 100 ms, a node
drained or cut off <= 200 ms, servers upgraded one by one <= 200 ms; API server and controllers gone: nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from bench.harness import BenchReport, Panel, begin, bench_parser, plot
from bench.rig.kube_faults import (
    CONTROLS,
    CUT,
    DRAINED,
    OUTAGE,
    REPLICA_KILLED,
    SERVER_KILLED,
    UPGRADED,
    KubeBreaker,
    UserCommands,
)
from bench.rig.kube_release import BenchRelease, bench_release, command, listed
from bench.rig.stalls import InjectedFault, add_distribution, add_rows, cpu_seconds, verdict
from lmerge.core.elements import NEG_INF
from lmerge_controller.drill.journal import UndoJournal
from lmerge_controller.drill.judging.judge import DeliveredElement, ProbeFindings, ProbeJudge
from lmerge_controller.drill.judging.pauses import longest_pause_ms
from lmerge_controller.drill.judging.truth import ProbeTruth
from lmerge_controller.drill.judging.verdict import SETTLE_S
from lmerge_controller.drill.probe.fleet import ProbeFleet
from lmerge_controller.drill.probe.trace import read_trace
from lmerge_controller.drill.undo import undo_all

TARGETS_MS: Final = {REPLICA_KILLED: 50.0, SERVER_KILLED: 100.0, DRAINED: 200.0, CUT: 200.0, UPGRADED: 200.0}
# Of 199 faults; the last of 200 is the outage. The controls are none.
WEIGHTS: Final = {REPLICA_KILLED: 161, SERVER_KILLED: 24, DRAINED: 6, CUT: 6, UPGRADED: 2}
CONTROL_PART: Final = 0.08
REPLICAS: Final = 3
EVENTS_PER_S: Final = 500
RUN_ID: Final = "c1"
# From the description until the first replica publishes: the pods are there by then.
START_S: Final = 20.0


def drawn(faults: int, has_outage: bool, lacking: Sequence[str], random: Random) -> list[str]:
    """Return the kinds of so many faults in their order, with quiet times between them; the outage is the last."""
    weights = {kind: weight for kind, weight in WEIGHTS.items() if kind not in lacking}
    left = faults - has_outage
    counts = {kind: max(1, left * weight // sum(weights.values())) for kind, weight in weights.items()}
    counts[REPLICA_KILLED] += left - sum(counts.values())
    # A drained node has no replicas. The next kill gives it one back, so that a cut leaves one on each side.
    counts[REPLICA_KILLED] -= counts[DRAINED]
    blocks = [block_of(kind) for kind, count in counts.items() for _ in range(count)]
    blocks += [[control] for control in CONTROLS] * max(1, int(faults * CONTROL_PART))
    random.shuffle(blocks)
    kinds = [kind for block in blocks for kind in block]
    return [*kinds, *([OUTAGE] if has_outage else [])]


def block_of(kind: str) -> list[str]:
    """Return a fault with what must follow it."""
    return [kind, REPLICA_KILLED] if kind == DRAINED else [kind]


def pauses_of(arrivals_s: Sequence[float], faults: Sequence[InjectedFault], ended_s: float) -> dict[str, list[float]]:
    """Return the pauses in milliseconds by kind of fault. A window ends where the next one begins at the latest."""
    found: dict[str, list[float]] = {}
    for fault, following in zip(faults, [*faults[1:], None]):
        until_s = fault.at_s + fault.whole_s + SETTLE_S
        if following is not None:
            until_s = min(until_s, following.at_s)
        pause = longest_pause_ms(arrivals_s, fault.at_s, until_s, ended_s=ended_s)
        found.setdefault(fault.kind, []).append(pause)
    return found


def judged(truth: ProbeTruth, recording: Path) -> ProbeFindings:
    """Judge a stream that goes on: all events that have certainly ended by its last stable point, and no others."""
    batches = list(read_trace(recording))
    stable = max((one.vs for _, batch in batches for one in batch if one.kind == "stable"), default=truth.origin_us)
    expected = max(0, truth.due(stable) - 1 - truth.life_max)

    def counts(one: DeliveredElement) -> bool:
        number = truth.number_of(one.payload, one.vs) if one.payload else None
        return number is None or number < expected

    judge = ProbeJudge(truth, stable_point=NEG_INF)
    for at_s, batch in batches:
        judge.take([one for one in batch if counts(one)], at_s)
    return judge.findings(expected)


def broken(
    release: BenchRelease, kinds: Sequence[str], options: argparse.Namespace, folder: Path
) -> tuple[list[InjectedFault], ProbeFindings, int, float]:
    """Run the query under the faults. Return them, the findings, the gaps reported, and the end (monotonic)."""
    truth = ProbeTruth(int((time.time() + START_S) * 1e6), EVENTS_PER_S, seed=options.seed)
    release.start_query(truth, REPLICAS)
    release.start_bystander(options.image)
    with UndoJournal(folder / "faults.journal") as journal:
        fleet = ProbeFleet(RUN_ID, release.addresses, folder, journal, security=release.security)
        try:
            fleet.start_reader(NEG_INF, 0)
            commands = UserCommands(options.cut, options.heal, options.stop_api, options.start_api, options.lock)
            breaker = KubeBreaker(
                release,
                fleet,
                release.replica_names(REPLICAS),
                commands,
                journal,
                Random(options.seed),
                options.outage_minutes * 60,
            )
            breaker.await_whole("at the start")
            time.sleep(2.0)
            for at, kind in enumerate(kinds, 1):
                fault = breaker.inject(kind)
                _log(f"{at:>3} of {len(kinds)}: {kind}, {fault.victim}: whole after {fault.whole_s:.1f} s")
            time.sleep(2 * SETTLE_S)
            ended_s = time.monotonic()
            fleet.read_messages()
            gaps = fleet.reader.gaps
        finally:
            fleet.end()
            undo_all(journal, _log)
    return breaker.faults, judged(truth, fleet.recording), gaps, ended_s


def add_results(report: BenchReport, pauses: dict[str, list[float]], faults: Sequence[InjectedFault]) -> None:
    """Add rows and verdicts of each kind, and rows of the controls."""
    for kind in [kind for kind in (*WEIGHTS, OUTAGE, *CONTROLS) if kind in pauses]:
        add_rows(report, kind, pauses[kind])
        whole_s = [fault.whole_s for fault in faults if fault.kind == kind]
        if kind not in CONTROLS:
            report.add(f"{kind}: all whole again after", [median(whole_s)], "s")
        if kind in TARGETS_MS:
            verdict(report, kind, pauses[kind], TARGETS_MS[kind])


def _log(text: str) -> None:
    print(f"    {time.strftime('%H:%M:%S')} {text}", flush=True)


def _options() -> argparse.Namespace:
    parser = bench_parser(__doc__, "cluster_faults", "ten faults")
    parser.add_argument("--faults", type=int, default=200, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=14, help="from which the faults are drawn (%(default)s)")
    parser.add_argument("--only", action="append", choices=[*WEIGHTS, *CONTROLS], help="this kind alone; repeatable")
    parser.add_argument("--image", default="docker.io/local/lmerge:dev", help="that the nodes have (%(default)s)")
    parser.add_argument("--values", action="append", default=[], metavar="FILE", help="further values of the chart")
    parser.add_argument("--volumes", type=Path, metavar="DIR", help="that all nodes share, if there is no StorageClass")
    for name, text in (
        ("cut", "cuts a node off by its link"),
        ("heal", "undoes it"),
        ("stop-api", "kills the API server"),
        ("start-api", "starts it again"),
    ):
        parser.add_argument(f"--{name}", default="", metavar="COMMAND", help=f"for the shell: {text}")
    parser.add_argument("--outage-minutes", type=float, default=5.0, help="without API server (%(default)s)")
    parser.add_argument("--lock", default="", metavar="FILE", help="held by flock around faults of nodes")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep recording, faults and logs here")
    return parser.parse_args()


def main() -> int:
    """Run the faults. Return 0 if nothing was lost, twice or contradicted, whatever the times."""
    options = _options()
    if options.quick:
        options.faults, options.outage_minutes = 10, 0.0
    report = begin((__doc__ or "").splitlines()[0])
    commands = UserCommands(options.cut, options.heal, options.stop_api, options.start_api)
    lacking = {kind: why for kind in (CUT, OUTAGE) if (why := commands.lacks(kind))}
    for kind, why in lacking.items():
        report.note(f"left out: {kind}: {why}")
    has_outage = OUTAGE not in lacking and options.outage_minutes > 0 and not options.only
    random = Random(options.seed)
    kinds = (
        [kind for _ in range(options.faults) for kind in block_of(random.choice(options.only))]
        if options.only
        else drawn(options.faults, has_outage, list(lacking), random)
    )
    with tempfile.TemporaryDirectory(prefix="lmerge-cluster-") as made:
        folder = options.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        report.note(_cluster())
        with bench_release(options.image, options.values, options.volumes, folder) as release:
            before = cpu_seconds()
            faults, found, gaps, ended_s = broken(release, kinds, options, folder)
            after = cpu_seconds()
    pauses = pauses_of(found.arrivals_s, faults, ended_s)
    add_results(report, pauses, faults)
    counts = Counter(fault.kind for fault in faults if fault.kind not in CONTROLS)
    report.note(
        f"{counts.total()} faults from seed {options.seed}, {found.delivered:,} of {found.expected:,} events: "
        + ", ".join(f"{count} {name}" for name, count in found.counts)
        + f", {gaps} gaps"
    )
    for flaw in found.flaws:
        report.note(f"{flaw.kind}: {flaw.text}")
    report.note(f"cores idle during the run: {(after[1] - before[1]) / max(after[0] - before[0], 1e-9):.0%}")
    if options.keep:
        (options.keep / "faults.json").write_text(json.dumps([fault.__dict__ for fault in faults], indent=1))
    if not (options.only or options.quick):
        report.save("cluster_faults")
        panel = Panel(
            "a fault on the cluster", "longest time without output, ms", "part of the faults beyond", log="xy"
        )
        for kind, values in pauses.items():
            add_distribution(panel, kind, values)
        plot("cluster_faults", "Pause of the merged output", [panel], columns=1)
    return 0 if found.is_right and not gaps else 1


def _cluster() -> str:
    """Return the versions of the cluster in one line."""
    nodes = listed("node")
    about = nodes[0]["status"]["nodeInfo"]
    helm = command("helm", "version", "--template", "{{.Version}}")
    return (
        f"Kubernetes {about['kubeletVersion']}, {len(nodes)} nodes on this machine's kernel {about['kernelVersion']}, "
        f"{about['containerRuntimeVersion']}, helm {helm}"
    )


if __name__ == "__main__":
    sys.exit(main())
