"""Links, kubelets, the API server and controllers fail, and the stream goes on: every event once.

A pod publishes and reads a known stream meanwhile, the program of `helm test`. What no API reaches is broken by
commands in the environment (tests/README.md); without them a test is reported as not run.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest
from kubernetes_world import (
    API_SERVER,
    KILL_POD,
    KUBELET,
    LINK,
    RELEASE,
    Outage,
    TestNamespace,
    await_that,
    is_api_there,
    kill_processes,
    silent_nodes,
)

# Kubernetes notices after 50 s that it hears nothing of a node; a stream has 100 events/s.
EVENTS = 9_000
EVENTS_OF_API_OUTAGE = 2_000
OUTAGE_S = 30.0
NOTICE_S = 120.0
NEW_LEADER_S = 5.0
LEASE = "lmerge-controller"
kills_pods = pytest.mark.skipif(not os.environ.get(KILL_POD), reason=f"not run: set {KILL_POD} to a command")


@pytest.fixture(scope="module")
def installed(namespace: TestNamespace) -> TestNamespace:
    namespace.install()
    return namespace


def leader(namespace: TestNamespace) -> str:
    """Return the identity of the leading controller: the name of its pod, and a mark of its process."""
    lease: dict[str, Any] = json.loads(namespace.kubectl("get", "lease", LEASE, "-o", "json"))
    return str(lease["spec"].get("holderIdentity") or "")


@pytest.mark.parametrize(
    "outage",
    [pytest.param(LINK, marks=LINK.is_given, id="link"), pytest.param(KUBELET, marks=KUBELET.is_given, id="kubelet")],
)
def test_a_node_that_kubernetes_loses_costs_nothing(installed: TestNamespace, outage: Outage) -> None:
    name = f"during-{outage.breaks.lower().replace('_', '-')}"
    installed.start_stream(name, EVENTS)
    with outage.lasts():
        await_that(lambda: bool(silent_nodes()), NOTICE_S, "a node is silent")
    await_that(lambda: not silent_nodes(), NOTICE_S, "all nodes are there again")
    assert f"passed: {EVENTS} events, each once" in installed.end_of_stream(name)
    installed.ready()


@API_SERVER.is_given
def test_a_stream_begins_to_end_without_an_api_server(installed: TestNamespace) -> None:
    installed.start_stream("during-api-outage", EVENTS_OF_API_OUTAGE)
    with API_SERVER.lasts():
        until_s = time.monotonic() + OUTAGE_S  # longer than what is left of the stream
        while time.monotonic() < until_s:
            assert not is_api_there()
    assert f"passed: {EVENTS_OF_API_OUTAGE} events, each once" in installed.end_of_stream("during-api-outage")
    installed.ready()


@kills_pods
def test_another_controller_leads_after_a_kill(installed: TestNamespace) -> None:
    await_that(lambda: bool(leader(installed)), 60.0, "a controller leads")
    before = leader(installed)
    installed.start_stream("during-controller-kill", EVENTS_OF_API_OUTAGE)
    kill_processes(installed.pod(before.partition("_")[0]))
    took_s = await_that(lambda: leader(installed) not in (before, ""), 60.0, "another controller leads")
    assert took_s <= NEW_LEADER_S
    assert "each once" in installed.end_of_stream("during-controller-kill")


@kills_pods
def test_a_server_whose_process_is_killed_costs_nothing(installed: TestNamespace) -> None:
    installed.start_stream("during-server-kill", EVENTS_OF_API_OUTAGE)
    server = installed.pod(f"{RELEASE}-server-1")
    kill_processes(server)
    assert "each once" in installed.end_of_stream("during-server-kill")
    installed.ready()
    (status,) = installed.pod(f"{RELEASE}-server-1")["status"]["containerStatuses"]
    assert status["restartCount"] == server["status"]["containerStatuses"][0]["restartCount"] + 1
