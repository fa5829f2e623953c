"""Spark on a real cluster: drivers in client and in cluster mode, the controller, a cutover, and pods that are killed.

One stream of departures goes on from the first test to the last, while what publishes it changes. One reader reads it,
and its judge knows every row. Each test starts what it needs and is not there, so that each can be run alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from chart_world import CHART
from kubernetes_world import RELEASE, TestNamespace
from spark_cluster_world import (
    MERGE,
    MISSING_SPARK,
    WITHIN_S,
    DeparturesFeed,
    DeparturesReader,
    SparkPods,
    eventually,
    manifest,
    only,
    shared_volume,
)

pytestmark = [pytest.mark.skipif(bool(MISSING_SPARK), reason=MISSING_SPARK), pytest.mark.timeout(1800)]
# Two drivers with executors, and two servers, on a machine of two cores.
SERVERS = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


@pytest.fixture(scope="module")
def volume(namespace: TestNamespace) -> Iterator[Path]:
    with shared_volume(namespace) as folder:
        yield folder


@pytest.fixture(scope="module")
def pods(namespace: TestNamespace, volume: Path) -> SparkPods:
    """The servers of the chart's example for Spark, with its account, its claim and its form of pods."""
    values = yaml.safe_load((CHART / "examples" / "spark-replicas.yaml").read_text())
    own = yaml.safe_load(namespace.values.read_text())["servers"]
    values["servers"] |= own | {"resources": SERVERS}
    namespace.add_values(**values)
    namespace.install()
    namespace.kubectl("apply", "-f", "-", text=only(manifest("kubernetes.yaml", namespace), *SHARED_KINDS))
    return SparkPods(namespace)


SHARED_KINDS = ("ServiceAccount", "Role", "RoleBinding", "PersistentVolumeClaim", "ConfigMap", "Service")


@pytest.fixture(scope="module")
def feed(volume: Path) -> DeparturesFeed:
    """Rows come when all replicas have joined: a replica joins without any."""
    return DeparturesFeed(volume / "input")


@pytest.fixture(scope="module")
def reader(pods: SparkPods) -> Iterator[DeparturesReader]:
    reader = DeparturesReader(pods.namespace)
    yield reader
    reader.close()


def goes_on(feed: DeparturesFeed, reader: DeparturesReader) -> None:
    """Check that what is read is what the rows mean, up to four windows that come now."""
    reader.until(feed.grow(4))


def client_mode(pods: SparkPods, replicas: int) -> None:
    """Let so many drivers in client mode run."""
    text = only(manifest("kubernetes.yaml", pods.namespace), "StatefulSet")
    pods.namespace.kubectl("apply", "-f", "-", text=text.replace("replicas: 2", f"replicas: {replicas}"))
    names = [f"departures-{number}" for number in range(replicas)]
    eventually(lambda: pods.joined(*names), f"{', '.join(names)} are joined")


def test_drivers_in_client_mode_make_executors_that_publish(
    pods: SparkPods, feed: DeparturesFeed, reader: DeparturesReader
) -> None:
    client_mode(pods, 2)
    goes_on(feed, reader)
    for replica in ("departures-0", "departures-1"):
        (executor,) = pods.executors(replica)
        nodes = {pods.namespace.pod(name)["spec"]["nodeName"] for name in (replica, executor)}
        assert len(nodes) == 1
    drivers = [pods.namespace.pod(f"departures-{number}")["spec"]["nodeName"] for number in (0, 1)]
    assert drivers[0] != drivers[1]


def test_an_executor_that_is_killed_is_made_again(
    pods: SparkPods, feed: DeparturesFeed, reader: DeparturesReader
) -> None:
    client_mode(pods, 2)
    goes_on(feed, reader)
    before = pods.executors("departures-0")
    pods.kill(*before)
    goes_on(feed, reader)
    eventually(lambda: pods.executors("departures-0") - before, "another executor")


def test_a_driver_that_is_killed_continues_from_its_checkpoint(
    pods: SparkPods, feed: DeparturesFeed, reader: DeparturesReader
) -> None:
    """Each of the two in turn, so that the stream rests on the one that was started again."""
    client_mode(pods, 2)
    goes_on(feed, reader)
    for killed in ("departures-1", "departures-0"):
        executors = pods.executors(killed)
        pods.kill(killed)
        goes_on(feed, reader)
        eventually(lambda: not executors & pods.executors(killed), "executors end with their driver")  # noqa: B023
        eventually(lambda: pods.joined("departures-0", "departures-1"), "both replicas are joined again")


def test_a_driver_in_cluster_mode_that_is_killed_is_submitted_again(
    pods: SparkPods, feed: DeparturesFeed, reader: DeparturesReader
) -> None:
    client_mode(pods, 1)
    pods.namespace.kubectl("apply", "-f", "-", text=manifest("cluster-mode.yaml", pods.namespace))
    eventually(lambda: pods.joined("departures-c"), "the third replica is joined")
    goes_on(feed, reader)
    drivers, executors = pods.drivers("departures-c"), pods.executors("departures-c")
    assert (len(drivers), len(executors)) == (1, 1)
    pods.kill(*drivers)
    goes_on(feed, reader)
    eventually(lambda: pods.drivers("departures-c") - drivers, "another driver")
    eventually(lambda: pods.joined("departures-c"), "the third replica is joined again")
    pods.namespace.kubectl("delete", "statefulset/departures", "--wait=true")
    goes_on(feed, reader)


def status_of_query(pods: SparkPods) -> dict[str, object]:
    found: dict[str, object] = json.loads(pods.namespace.kubectl("get", "rq", MERGE, "-o", "json")).get("status", {})
    return found


def controlled(pods: SparkPods, version: str) -> None:
    """Wait until the controller's replicas of a version are joined, and no others."""
    names = [f"departures-{version}-{index}" for index in (0, 1)]
    eventually(lambda: pods.joined(*names), f"{', '.join(names)} are joined")
    eventually(lambda: not pods.named(f"lmerge.dev/query={MERGE},lmerge.dev/version!={version}"), "others have left")


def test_the_controller_keeps_two_drivers_joined(
    pods: SparkPods, feed: DeparturesFeed, reader: DeparturesReader
) -> None:
    pods.namespace.kubectl("apply", "-f", "-", text=manifest("replicated-query.yaml", pods.namespace))
    controlled(pods, "update")
    pods.namespace.kubectl("delete", "deployment/departures-submit", "--ignore-not-found", "--wait=true")
    eventually(lambda: not pods.drivers("departures-c"), "the driver ends with the pod that submitted it")
    goes_on(feed, reader)
    (killed,) = pods.named("lmerge.dev/replica=departures-update-0")
    pods.kill(killed)
    goes_on(feed, reader)
    eventually(lambda: pods.named("lmerge.dev/replica=departures-update-0") - {killed}, "another driver")
    controlled(pods, "update")


def test_a_cutover_between_two_plans_of_spark(pods: SparkPods, feed: DeparturesFeed, reader: DeparturesReader) -> None:
    if not pods.namespace.kubectl("get", "rq", "-o", "name"):
        pods.namespace.kubectl("apply", "-f", "-", text=manifest("replicated-query.yaml", pods.namespace))
    controlled(pods, "update")
    pods.namespace.kubectl("patch", "rq", MERGE, "--type=merge", "--patch", '{"spec": {"active": "append"}}')

    def is_done() -> bool:
        goes_on(feed, reader)  # what is certified are intervals of the stream
        return status_of_query(pods).get("serving") == "append"

    eventually(is_done, "the other plan serves", within_s=2 * WITHIN_S)
    controlled(pods, "append")
    goes_on(feed, reader)


def test_nothing_was_lost_and_nothing_came_twice(
    pods: SparkPods, feed: DeparturesFeed, reader: DeparturesReader
) -> None:
    until = feed.end()
    reader.until(until)
    found = reader.final(until)
    assert found - feed.truth == {}, "more than the rows mean"
    assert feed.truth - found == {}, "lost"
    assert len(feed.truth) == 3 * feed.windows
    pods.namespace.kubectl("delete", "rq", MERGE, "--ignore-not-found", "--wait=true")
    pods.namespace.kubectl("delete", "statefulset,deployment", "-l", "!app.kubernetes.io/instance", "--wait=true")
    pods.namespace.kubectl("wait", "--for=delete", "pod", "-l", f"lmerge.dev/query={MERGE}", "--timeout=120s")
    eventually(lambda: not pods.named("spark-role=executor"), "executors end with their drivers")
    pods.namespace.kubectl("delete", "pod/reader", "--wait=true")
    pods.namespace.helm("uninstall", RELEASE, "--wait")
