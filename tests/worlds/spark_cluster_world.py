"""Helpers of the tests of Spark on a real cluster: the manifests, a folder that all nodes see, a feed, and a reader.

LMERGE_SPARK_IMAGE: an image of `deploy/spark/Dockerfile` that the nodes have or can pull. LMERGE_CLUSTER_VOLUMES: a
folder that this machine and all nodes see. The judge of what was read knows the rows, and no code of the merge.
"""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import msgpack
import yaml
from chart_world import ROOT
from kubernetes_world import IMAGE, TestNamespace, run

SPARK_IMAGE: Final = os.environ.get("LMERGE_SPARK_IMAGE", "")
SHARED: Final = os.environ.get("LMERGE_CLUSTER_VOLUMES", "")
MISSING_SPARK: Final = (
    ""
    if SPARK_IMAGE and SHARED
    else "LMERGE_SPARK_IMAGE names no image of deploy/spark/Dockerfile, or LMERGE_CLUSTER_VOLUMES no shared folder"
)
DEPLOY: Final = ROOT / "deploy" / "spark"
MERGE: Final = "departures"
WINDOW_S: Final = 5
US: Final = 1_000_000
# A session of Spark starts in 10 s on a free machine; two cores start four at once here.
WITHIN_S: Final = 600.0
QUICK: Final = "-XX:TieredStopAtLevel=1"  # half the work of a start is compiling
SMALL: Final = {
    "spark.executor.instances=2": "spark.executor.instances=1 --conf=spark.kubernetes.executor.request.cores=0.1",
    "spark.executor.memory=2g": "spark.executor.memory=512m",
    "spark.sql.shuffle.partitions=4": "spark.sql.shuffle.partitions=2 --conf=spark.driver.memory=512m"
    f" --conf=spark.driver.extraJavaOptions={QUICK} --conf=spark.executor.extraJavaOptions={QUICK}",
    "spark.driver.memory=1g": "spark.kubernetes.driver.request.cores=0.1",
    "joinWithinSeconds: 300": "joinWithinSeconds: 900",
    'cpu: "1"': "cpu: 100m",
    "memory: 2Gi": "memory: 1536Mi",
    "storageClassName: FILL-IN": f"storageClassName: {MERGE}",
    "REGISTRY/spark-lmerge:0.1.0": SPARK_IMAGE,
}


def manifest(name: str, namespace: TestNamespace) -> str:
    """Return a manifest of deploy/spark, filled in, with what a small machine can run."""
    text = (DEPLOY / name).read_text().replace(".streams.svc", f".{namespace.name}.svc")
    for known, instead in SMALL.items():
        if known.startswith("spark.") and "\n            - --conf=" in text:
            # Words of a list: each option is a line of its own.
            instead = instead.replace(" --conf=", "\n            - --conf=")
        text = text.replace(known, instead)
    return text


def only(text: str, *kinds: str) -> str:
    """Return the documents of these kinds."""
    return "---\n".join(part for part in text.split("---\n") if any(f"\nkind: {kind}\n" in part for kind in kinds))


@contextmanager
def shared_volume(namespace: TestNamespace) -> Iterator[Path]:
    """Provide a volume that pods of all nodes write to, as the class of the claim; yields its folder."""
    folder = Path(SHARED) / namespace.name
    for path in (folder, folder / "input"):
        path.mkdir(parents=True)
        path.chmod(0o777)  # pods write as another user
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace.name}-shared"},
        "spec": {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": MERGE,
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace.name, "name": "checkpoints"},
            "hostPath": {"path": str(folder)},
        },
    }
    run("kubectl", "apply", "-f", "-", text=yaml.safe_dump(volume))
    try:
        yield folder
    finally:
        run("kubectl", "delete", "persistentvolume", f"{namespace.name}-shared", "--wait=false")
        subprocess.run(["rm", "-rf", str(folder)], check=False)


class DeparturesFeed:
    """The rows that all replicas read, in files, and the table that they mean."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._random = folder, random.Random(7)
        self._files = 0
        self.began_us = int(datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp()) * US
        self.windows = 0
        self.truth: Counter[tuple[str, int, int, int]] = Counter()

    def grow(self, windows: int) -> int:
        """Write rows of so many further windows; return a time before which all is final once they are read."""
        for _ in range(windows):
            start_us = self.began_us + self.windows * WINDOW_S * US
            rows = []
            for carrier in ("AA", "DL", "UA"):
                count = self._random.randint(1, 9)
                self.truth[carrier, count, start_us, start_us + WINDOW_S * US] += 1
                rows += [(start_us + self._random.randrange(WINDOW_S * US), carrier) for _ in range(count)]
            self._random.shuffle(rows)
            self._write(rows)
            self.windows += 1
        # The watermark is 2 s behind the last row, and the stable point up to a window behind the watermark.
        return self.began_us + (self.windows - 3) * WINDOW_S * US

    def end(self) -> int:
        """Write a row that is so late that all others become final; return the time before which they are."""
        until_us = self.began_us + self.windows * WINDOW_S * US
        self._write([(until_us + 60 * US, "the end")])
        return until_us

    def _write(self, rows: list[tuple[int, str]]) -> None:
        lines = [
            json.dumps({"ts": f"{datetime.fromtimestamp(t / US, timezone.utc):%Y-%m-%dT%H:%M:%S.%fZ}", "carrier": name})
            for t, name in rows
        ]
        self._files += 1
        hidden = self._folder / f".{self._files:06}.json"
        hidden.write_text("\n".join(lines) + "\n")
        hidden.chmod(0o644)
        hidden.rename(self._folder / f"{self._files:06}.json")


class DeparturesReader:
    """A subscriber in a pod, whose elements are judged as they come: nothing twice, nothing after it was final."""

    def __init__(self, namespace: TestNamespace) -> None:
        self.namespace = namespace
        self.stable = -1
        self.table: Counter[tuple[str, int, int, int]] = Counter()
        self.problems: list[str] = []
        self.elements = 0
        namespace.kubectl("apply", "-f", "-", text=yaml.safe_dump(self._pod()))
        namespace.kubectl("wait", "pod/reader", "--for=condition=Ready", "--timeout=120s")
        self._grew = threading.Condition()
        self._logs = subprocess.Popen(
            ["kubectl", "--namespace", namespace.name, "logs", "--follow", "reader"], stdout=subprocess.PIPE, text=True
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def close(self) -> None:
        self._logs.kill()
        self._reading.join()  # it reads to the end of the pipe
        self._logs.communicate()

    def until(self, stable: int) -> None:
        """Wait until the output is final before this time."""
        end_s = time.monotonic() + WITHIN_S
        with self._grew:
            while self.stable < stable and not self.problems:
                left_s = end_s - time.monotonic()
                assert left_s > 0, f"the output stops at {self.stable}, {(stable - self.stable) / US} s too early"
                self._grew.wait(left_s)
        assert self.problems == []

    def final(self, before: int) -> Counter[tuple[str, int, int, int]]:
        """Return the events that end before this time or at it."""
        with self._grew:
            return Counter({event: n for event, n in self.table.items() if n and event[3] <= before})

    def _read(self) -> None:
        assert self._logs.stdout is not None
        for line in self._logs.stdout:
            if not line.startswith("{"):  # a pod's log has standard error too
                continue
            with self._grew:
                self._take(json.loads(line))
                self._grew.notify_all()

    def _take(self, element: dict[str, Any]) -> None:
        self.elements += 1
        if element["op"] == "stable":
            self._check(element["vc"] > self.stable, element)
            self.stable = element["vc"]
            return
        carrier, count = msgpack.unpackb(base64.b64decode(element["payload"]["b64"]))
        event = (carrier, count, element["vs"])
        if element["op"] == "adjust":
            old = (*event, element["vold"])
            self._check(self.table[old] == 1 and min(element["vold"], element["ve"]) >= self.stable, element)
            self.table[old] -= 1
        else:
            self._check(element["vs"] >= self.stable, element)
        if element["ve"] > element["vs"]:
            new = (*event, element["ve"])
            self.table[new] += 1
            self._check(self.table[new] == 1, element)

    def _check(self, holds: bool, element: dict[str, Any]) -> None:
        if not holds:
            self.problems.append(f"element {self.elements} at stable {self.stable}: {element}")

    def _pod(self) -> dict[str, Any]:
        pod: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "client.yaml").read_text())
        pod["metadata"] = {"name": "reader"}
        pod["spec"]["restartPolicy"] = "Never"
        container = pod["spec"]["containers"][0]
        servers = next(variable["value"] for variable in container["env"] if variable["name"] == "LMERGE_SERVERS")
        servers = servers.replace(".streams.", f".{self.namespace.name}.")
        container |= {"image": IMAGE, "command": ["lmerge", "subscribe", MERGE, "--server", servers]}
        container["env"] += [{"name": "LMERGE_TOKEN_FILE", "value": "/etc/lmerge/subscriber/token"}]
        return pod


class SparkPods:
    """The pods of Spark in a namespace: found by their labels, and killed."""

    def __init__(self, namespace: TestNamespace) -> None:
        self.namespace = namespace

    def named(self, selector: str) -> set[str]:
        """Return the names of running pods with these labels."""
        text = self.namespace.kubectl("get", "pod", "-l", selector, "-o", "json")
        return {
            found["metadata"]["name"]
            for found in json.loads(text)["items"]
            if found["status"].get("phase") == "Running" and "deletionTimestamp" not in found["metadata"]
        }

    def executors(self, replica: str) -> set[str]:
        return self.named(f"spark-role=executor,spark-app-name={replica}")

    def drivers(self, replica: str) -> set[str]:
        return self.named(f"spark-role=driver,spark-app-name={replica}")

    def kill(self, *names: str) -> None:
        """Delete pods without grace: each of their processes is killed by SIGKILL."""
        assert names
        self.namespace.kubectl("delete", "pod", *names, "--grace-period=0", "--force")

    def joined(self, *replicas: str) -> bool:
        """Return whether these replicas are joined at both servers."""
        return all(set(replicas) <= self._joined(number) for number in (0, 1))

    def _joined(self, number: int) -> set[str]:
        # Before the first replica there is no merge; and a connection through the API server may end.
        command = f'lmerge status {MERGE} --json --server "$LMERGE_SELF" || echo "{{}}"'
        try:
            inputs = json.loads(self.namespace.on_server(command, number)).get("inputs", [])
        except AssertionError:
            return set()
        return {found["replica"] for found in inputs if found["state"] == "joined"}


def eventually(holds: Callable[[], object], what: str, within_s: float = WITHIN_S) -> None:
    """Look until it holds; a failure names what did not."""
    end_s = time.monotonic() + within_s
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < end_s, f"not within {within_s:.0f} s: {what}"
        pause.wait(5.0)  # a look starts processes, on the machine that starts Spark
