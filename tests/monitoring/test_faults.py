"""Each class of alert from a real fault to a real webhook, and its resolution when the fault is mended.

The servers, the replicas, Prometheus and Alertmanager are processes. The rules are those that operators load, with all
times 120 times shorter (``prometheus_world.FAST``).
"""

from __future__ import annotations

import asyncio
import datetime
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import pytest
from certificates import Authority
from cli_world import run
from fault_world import MERGE, Fleet
from kube_world import KubeServer, api_of, free_port, install_definition, kube_server, make_namespace
from prometheus_world import FAST, Daemon, Watched

from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.generated import lmerge_pb2_grpc as pb_grpc
from lmerge_controller.kubernetes.api import LEASES
from monitoring.alerting.alert import Pace

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes end with their parent"),
    pytest.mark.timeout(120),
]

Program = Callable[[str], str]


@asynccontextmanager
async def observed(program: Program, fleet: Fleet, replicas: str, pace: Pace = FAST) -> AsyncIterator[Watched]:
    """Start the replicas (a letter each) and Prometheus; wait until each replica counts and the output moves."""
    for name in replicas:
        fleet.replicate(name)
    async with Watched(program, fleet.folder / "watched", fleet.targets, pace=pace) as watched:
        if replicas:
            await watched.holds(f"min(sum by (instance) (lmerge_input_joined_bool)) == {len(replicas)}")
        yield watched


@asynccontextmanager
async def fault(watched: Watched, name: str, **labels: str) -> AsyncIterator[None]:
    """Expect that what the block does makes an alert fire which has not fired before."""
    assert [alert for alert in watched.received if alert.name == name] == []
    yield
    fired = await watched.fires(name, **labels)
    assert fired.annotations["runbook_url"].endswith(".html")
    assert [text for text in fired.annotations.values() if "{{" in text or "<no value>" in text] == []


async def test_a_killed_replica_takes_the_redundancy_and_its_return_restores_it(
    program: Program, tmp_path: Path
) -> None:
    with Fleet(tmp_path) as fleet:
        await fleet.serve()
        async with observed(program, fleet, "ab") as watched:
            async with fault(watched, "LmergeRedundancyLost", merge=MERGE, severity="critical"):
                fleet.replicas["a"].kill()
            fleet.replicate("a")
            await watched.is_resolved("LmergeRedundancyLost")


async def test_a_killed_server_is_down_until_it_is_started_again(program: Program, tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        await fleet.serve("h1")
        down = await fleet.serve("h2")
        async with observed(program, fleet, "ab") as watched:
            async with fault(watched, "LmergeServerDown", instance=f"127.0.0.1:{down.http_port}"):
                down.daemon.kill()
            await fleet.serve("h2")
            await watched.is_resolved("LmergeServerDown")
            assert "LmergeStreamStalled" not in {alert.name for alert in watched.received}  # the other server went on


@pytest.mark.long
async def test_a_frozen_replica_lags_until_it_goes_on(program: Program, tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        await fleet.serve()
        async with observed(program, fleet, "ab") as watched:
            async with fault(watched, "LmergeReplicaLagging", input="a"):
                fleet.replicas["a"].send(signal.SIGSTOP)
            fleet.replicas["a"].send(signal.SIGCONT)
            await watched.is_resolved("LmergeReplicaLagging")
            assert {alert.labels["input"] for alert in watched.received if "Lagging" in alert.name} == {"a"}


@pytest.mark.long
async def test_the_stream_stalls_when_all_replicas_are_frozen(program: Program, tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        await fleet.serve()
        async with observed(program, fleet, "ab") as watched:
            async with fault(watched, "LmergeStreamStalled", merge=MERGE):
                for replica in fleet.replicas.values():
                    replica.send(signal.SIGSTOP)
            for replica in fleet.replicas.values():
                replica.send(signal.SIGCONT)
            await watched.is_resolved("LmergeStreamStalled")


@pytest.mark.long
async def test_a_replica_that_dies_again_and_again_flaps(program: Program, tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        await fleet.serve()
        slower = Pace(1 / 30, FAST.evaluation_s)  # a process needs about a second to start again
        async with observed(program, fleet, "ab", slower) as watched:
            async with fault(watched, "LmergeReplicaFlapping", merge=MERGE):
                for count in range(1, 7):
                    fleet.replicas["a"].kill()
                    await watched.holds(f"sum(lmerge_detached_inputs_total) == {count}")
                    fleet.replicate("a")
                    await watched.holds("sum(lmerge_attached_inputs) == 2")
            await watched.is_resolved("LmergeReplicaFlapping")


@pytest.mark.long
async def test_a_replica_that_differs_is_a_divergence(program: Program, tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        await fleet.serve("h1", "--certify-interval", "500000")
        async with observed(program, fleet, "ab") as watched:
            async with fault(watched, "LmergeDivergence", merge=MERGE):
                fleet.replicate("c", "--wrong-every", "10")
            fleet.replicas["c"].kill()
            await watched.is_resolved("LmergeDivergence")


@pytest.mark.long
async def test_a_replica_that_contradicts_the_majority_is_in_quarantine_until_it_is_released(
    program: Program, tmp_path: Path
) -> None:
    with Fleet(tmp_path) as fleet:
        await fleet.serve("h1", "--certify-interval", "500000", "--on-divergence", "quarantine")
        async with observed(program, fleet, "ab") as watched:
            async with fault(watched, "LmergeReplicaQuarantined", merge=MERGE):
                fleet.replicate("c", "--wrong-every", "10")
            released = await asyncio.to_thread(run, "release", MERGE, "c", "--server", fleet.addresses)
            assert released.returncode == 0, released.stderr
            await watched.is_resolved("LmergeReplicaQuarantined")


@pytest.mark.long
async def test_a_stretch_of_time_that_no_replica_has_is_a_gap(program: Program, tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        await fleet.serve()
        async with observed(program, fleet, "a") as watched:
            async with fault(watched, "LmergeGap", merge=MERGE):
                fleet.replicas["a"].kill()
                fleet.replicate("b", "--from", str(fleet.tick() + 100))
            await watched.is_resolved("LmergeGap")


@pytest.mark.long
async def test_a_subscriber_that_does_not_read_is_behind_and_is_cut_off(program: Program, tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        await fleet.serve()
        fleet.replicate("large", "--bytes", "200000")
        async with observed(program, fleet, "") as watched, grpc.aio.insecure_channel(fleet.addresses) as channel:
            await watched.holds("lmerge_attached_inputs == 1")
            async with (
                fault(watched, "LmergeSubscriberBehind", merge=MERGE, subscriber="slow"),
                fault(watched, "LmergeSubscriberCutOff", merge=MERGE),
            ):
                call = pb_grpc.LmergeStub(channel).Subscribe(pb.SubscribeRequest(merge=MERGE, subscriber="slow"))
            call.cancel()
            await watched.is_resolved("LmergeSubscriberBehind")
            await watched.is_resolved("LmergeSubscriberCutOff")


@pytest.mark.long
async def test_a_store_without_room_fails_until_there_is_room(program: Program, tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        server = await fleet.serve("h1", "--store", str(tmp_path / "store"))
        async with observed(program, fleet, "ab") as watched:
            pid = server.daemon.process.pid
            async with fault(watched, "LmergeStoreFailing", merge=MERGE):
                before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
            await watched.is_resolved("LmergeStoreFailing")


@pytest.mark.long
async def test_an_access_file_that_cannot_be_read_is_not_in_force(program: Program, tmp_path: Path) -> None:
    access, token = tmp_path / "access.json", tmp_path / "prometheus.token"
    make = ("token", "make", "prometheus", "--file", str(access), "--role", "status", "--merge", "*")
    made = run(*make, "--out", str(token))
    assert made.returncode == 0, made.stderr
    with Fleet(tmp_path) as fleet:
        await fleet.serve("h1", "--merge", MERGE, "--tokens", str(access))
        async with Watched(program, tmp_path / "watched", fleet.targets, token) as watched:
            await watched.holds('lmerge_security_file_broken_bool{file="access"} == 0')
            right = access.read_text()
            async with fault(watched, "LmergeSecurityFileBroken", file="access"):
                access.write_text(right + "}")
            access.write_text(right)
            await watched.is_resolved("LmergeSecurityFileBroken")


@pytest.mark.long
async def test_a_volume_that_fills_is_reported_before_it_is_full(program: Program, tmp_path: Path) -> None:
    with small_volume(tmp_path / "volume") as volume, Fleet(tmp_path) as fleet:
        await fleet.serve("h1", "--store", str(volume / "store"))
        async with observed(program, fleet, "ab") as watched:
            await watched.holds(f"min(lmerge_store_free_bytes) > {2**30}")
            async with fault(watched, "LmergeStoreFilling", severity="warning"):
                beside = volume / "beside"
                beside.write_bytes(bytes(200 * 2**20))
            beside.unlink()
            await watched.is_resolved("LmergeStoreFilling")


@pytest.mark.long
async def test_a_certificate_that_expires_soon_is_reported_until_it_is_renewed(
    program: Program, tmp_path: Path
) -> None:
    hour = datetime.timedelta(hours=1)
    authority = Authority(tmp_path)
    pair = authority.issue("server", hosts=("127.0.0.1",))
    with Fleet(tmp_path) as fleet:
        await fleet.serve("h1", "--merge", MERGE, "--tls-cert", pair.cert, "--tls-key", pair.key)
        async with Watched(
            program, tmp_path / "watched", fleet.targets, pace=FAST, authority=authority.path
        ) as watched:
            await watched.holds("min(lmerge_certificate_expiry_timestamp_seconds - time()) > 80000")
            async with fault(watched, "LmergeCertificateExpiring"):
                authority.issue("server", hosts=("127.0.0.1",), age=hour, lifetime=2 * hour)
            authority.issue("server", hosts=("127.0.0.1",))
            await watched.is_resolved("LmergeCertificateExpiring")


async def drilled(textfile: Path, *options: str) -> int:
    """Run a real drill in a sandbox of its own; return its exit code."""
    done = await asyncio.to_thread(run, "drill", "run", "kill-winner", "--textfile", str(textfile), *options)
    return done.returncode


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_a_drill_that_does_not_pass_is_reported_until_it_passes(program: Program, tmp_path: Path) -> None:
    async with Watched(program, tmp_path / "watched", {}) as watched:
        async with fault(watched, "LmergeDrillFailed", drill="kill-winner"):
            assert await drilled(watched.textfile, "--time-limit", "1") == 1
        assert await drilled(watched.textfile) == 0
        await watched.is_resolved("LmergeDrillFailed")


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_a_drill_that_does_not_run_again_is_overdue(program: Program, tmp_path: Path) -> None:
    day_in_two_seconds = Pace(1 / 50_000, FAST.evaluation_s)
    async with Watched(program, tmp_path / "watched", {}, pace=day_in_two_seconds) as watched:
        async with fault(watched, "LmergeDrillOverdue", drill="kill-winner"):
            await drilled(watched.textfile, "--time-limit", "1")
        await drilled(watched.textfile, "--time-limit", "1")
        await watched.is_resolved("LmergeDrillOverdue")


@asynccontextmanager
async def namespaces(kube: KubeServer, *names: str) -> AsyncIterator[None]:
    """Make namespaces with a Lease that is free, as the chart does, and install the definition."""
    api = await api_of(kube)
    try:
        await install_definition(api)
        for name in names:
            await make_namespace(api, name)
            meta = {"name": "lmerge-controller", "namespace": name}
            lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta, "spec": {}}
            await api.create(LEASES, lease)
        yield
    finally:
        await api.close()


@asynccontextmanager
async def controlling(kube: KubeServer, port: int, lease_namespace: str) -> AsyncIterator[Daemon]:
    """Run a controller of one namespace. Fails at once if it does not start, as where something has taken its port."""
    options = ("--namespace", "one", "--lease-namespace", lease_namespace, "--http-port", str(port))
    command = [sys.executable, "-m", "lmerge", "controller", *options, "--kubeconfig", kube.kubeconfig]
    daemon = Daemon(command, kube.folder / f"controller-{port}.log")
    try:
        await daemon.logged(r"operates one; (.*)/metrics")
        yield daemon
    finally:
        daemon.kill()


@pytest.mark.long
async def test_controllers_do_not_lead_while_the_api_server_is_frozen(program: Program, tmp_path: Path) -> None:
    ports = free_port(), free_port()
    targets = {"controller": [f"127.0.0.1:{port}" for port in ports]}
    with kube_server(tmp_path) as kube:
        async with (
            namespaces(kube, "one"),
            Watched(program, tmp_path / "watched", targets) as watched,
            controlling(kube, ports[0], "one"),
            controlling(kube, ports[1], "one"),
        ):
            await watched.holds("sum(lmerge_controller_leader_bool) == 1 and count(up == 1) == 3")
            async with fault(watched, "LmergeControllerWithoutLeader", job="controller"):
                kube.freeze_api_server()
            kube.thaw_api_server()
            await watched.is_resolved("LmergeControllerWithoutLeader")


@pytest.mark.long
async def test_controllers_that_were_killed_do_not_lead(program: Program, tmp_path: Path) -> None:
    port = free_port()
    targets = {"controller": [f"127.0.0.1:{port}"]}
    with kube_server(tmp_path) as kube:
        async with namespaces(kube, "one"), Watched(program, tmp_path / "watched", targets) as watched:
            async with controlling(kube, port, "one") as daemon:
                await watched.holds("lmerge_controller_leader_bool == 1")
                async with fault(watched, "LmergeControllerWithoutLeader", job="controller"):
                    daemon.kill()
            async with controlling(kube, port, "one"):
                await watched.is_resolved("LmergeControllerWithoutLeader")


@pytest.mark.long
async def test_two_controllers_with_different_leases_are_two_leaders(program: Program, tmp_path: Path) -> None:
    ports = free_port(), free_port()
    targets = {"controller": [f"127.0.0.1:{port}" for port in ports]}
    with kube_server(tmp_path) as kube:
        async with (
            namespaces(kube, "one", "two"),
            Watched(program, tmp_path / "watched", targets) as watched,
            controlling(kube, ports[0], "one"),
        ):
            await watched.holds("sum(lmerge_controller_leader_bool) == 1")
            async with (
                controlling(kube, ports[1], "two"),
                fault(watched, "LmergeControllerTwoLeaders", severity="critical"),
            ):
                pass
            await watched.is_resolved("LmergeControllerTwoLeaders")


@contextmanager
def small_volume(folder: Path) -> Iterator[Path]:
    """Mount a volume of 1.1 GiB in memory. Where that is not allowed, the test is reported as not run."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1100m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no volume can be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
