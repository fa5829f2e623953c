"""How much memory does the controller take for many queries, how fast does it act, how fast is a leader replaced?

It needs an API server in KUBECONFIG with the definition of ReplicatedQuery (`charts/lmerge/crds`) and without nodes:
no pod runs, so the controller is measured and not the machine that would run a thousand of them. It works in a
namespace of its own, which it deletes. Two processes of `lmerge controller` run beside one merge server:

    memory     resident bytes of the leader when each query has its Deployments; target: 200 MB
    reaction   from a changed description to the Deployment that it asks for, as a client sees it; target: 1 s (p99)
    takeover   from SIGKILL of the leader to the first change that its successor makes; target: 5 s
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import psutil

from bench.harness import BenchReport, begin, bench_parser
from lmerge.service.server import Server
from lmerge.service.settings import Settings
from lmerge_controller.kubernetes.api import DEPLOYMENTS, LEASES, QUERIES, Api, Json, Resource, connect
from lmerge_controller.kubernetes.api_errors import ObjectMissing

NAMESPACES = Resource("", "v1", "namespaces", "Namespace")
SPACE = f"bench-controller-{os.getpid()}"
SETTLED_S = 300.0


def query(number: int, address: str) -> Json:
    version = {"name": "v1", "run": {"command": ["true"]}}
    spec = {"servers": {"addresses": [address]}, "versions": [version], "replicas": 1}
    meta = {"name": f"q{number}", "namespace": SPACE}
    return {"apiVersion": QUERIES.api_version, "kind": QUERIES.kind, "metadata": meta, "spec": spec}


async def until(read: Callable[[], Awaitable[object]]) -> float:
    """Wait until ``read`` returns something true; return the seconds."""
    start = time.monotonic()
    while True:
        with suppress(ObjectMissing):
            if await read():
                return time.monotonic() - start
        if time.monotonic() - start > SETTLED_S:
            raise TimeoutError("the controller did not act")
        await asyncio.sleep(0.01)


def start_controller(name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "lmerge", "controller", "--namespace", SPACE, "--http-port", "0"]
    return subprocess.Popen(command, env=os.environ | {"POD_NAME": name}, stderr=subprocess.DEVNULL)


async def deployments(api: Api) -> int:
    count, more = 0, ""
    while True:
        page = await api.page(DEPLOYMENTS, SPACE, more)
        count += len([one for one in page["items"] if one["spec"]["replicas"] == 1])
        more = page["metadata"].get("continue") or ""
        if not more:
            return count


async def grow(api: Api, number: int) -> float:
    """Ask for one replica more of a query; return the seconds until its Deployment is there with its pod."""
    name = f"q{number}"
    replicas = (await api.get(QUERIES, SPACE, name))["spec"]["replicas"]
    await api.merge_patch(QUERIES, SPACE, name, {"spec": {"replicas": replicas + 1}})

    async def is_there() -> bool:
        return bool((await api.get(DEPLOYMENTS, SPACE, f"{name}-v1-{replicas}"))["spec"]["replicas"])

    return await until(is_there)


async def measure(report: BenchReport, queries: int, changes: int) -> None:
    api = await connect(os.environ.get("KUBECONFIG"))
    server = Server(Settings(port=0, http_port=None))
    await server.start()
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    processes = {name: start_controller(name) for name in ("first", "second")}
    try:
        for number in range(queries):
            await api.create(QUERIES, query(number, f"127.0.0.1:{server.port}"))

        async def all_made() -> bool:
            return await deployments(api) == queries

        report.add("until all have their Deployments", [await until(all_made)], "s")
        leader = str((await api.get(LEASES, SPACE, "lmerge-controller"))["spec"]["holderIdentity"]).partition("_")[0]
        memory = psutil.Process(processes[leader].pid).memory_info().rss / 1e6
        report.add(f"memory of the leader, {queries} queries", [memory], "MB")
        taken = [await grow(api, number % queries) for number in range(changes)]
        report.add("reaction", taken, "s")
        report.note(f"reaction p99: {sorted(taken)[int(len(taken) * 0.99) - 1]:.3f} s; target 1 s")
        processes[leader].send_signal(signal.SIGKILL)
        report.add("takeover: SIGKILL to the successor's first change", [await grow(api, 0)], "s")
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
        found = await api.get(NAMESPACES, None, SPACE)
        await api.delete(NAMESPACES, None, SPACE, uid=found["metadata"]["uid"])
        await server.stop(0.0)
        await api.close()


def main() -> None:
    parser = bench_parser(__doc__, "controller", "20 queries, 20 changes")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=300)
    options = parser.parse_args()
    queries, changes = (20, 20) if options.quick else (options.queries, options.changes)
    report = begin((__doc__ or "").splitlines()[0])
    asyncio.run(measure(report, queries, changes))
    if not options.quick:
        report.save("controller")


if __name__ == "__main__":
    main()
