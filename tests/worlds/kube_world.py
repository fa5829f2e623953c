"""A real API server of Kubernetes for one test or for many: etcd and kube-apiserver as processes on free ports.

The programs are looked for in the folder LMERGE_KUBE_BIN, then in PATH. Where one is missing, the tests are skipped and
reported. There is no controller-manager and no kubelet: nothing changes an object but the tests and what they test.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from ssl import create_default_context

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from lmerge_controller.kubernetes.api import DEFINITIONS, QUERIES, Api, Json, Resource, connect
from lmerge_controller.kubernetes.api_errors import ApiProblem, ObjectExists
from lmerge_controller.kubernetes.crd import definition

START_S_MAX = 60.0
# Token -> (user, groups): an administrator, and a user who may do only what a test grants.
USERS = {"admin-token": ("admin", "system:masters"), "narrow-token": ("narrow", "")}
NAMESPACES = Resource("", "v1", "namespaces", "Namespace")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")


def program(name: str) -> str:
    """Return the path of a program of Kubernetes, or skip the test."""
    folder = os.environ.get("LMERGE_KUBE_BIN")
    found = (shutil.which(name, path=folder) if folder else None) or shutil.which(name)
    if found is None:
        if os.environ.get("LMERGE_REQUIRE_KUBE"):
            pytest.fail(f"no {name}, and LMERGE_REQUIRE_KUBE is set")
        pytest.skip(f"not run: no {name} in LMERGE_KUBE_BIN or PATH")
    return found


def free_port() -> int:
    """Return a port that is free now: etcd and the API server cannot report which one they took."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class KubeServer:
    """An API server with its etcd. ``kubeconfig`` is of an administrator. ``port`` stays the same over restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs = program("etcd"), program("kube-apiserver")
        self._stack = ExitStack()
        self._etcd_port, self._peer_port, self.port = free_port(), free_port(), free_port()
        self._api_server: subprocess.Popen[bytes] | None = None
        self.flags: list[str] = []
        (folder / "tokens.csv").write_text(
            "".join(f'{token},{user},{user},"{groups}"\n' for token, (user, groups) in USERS.items())
        )
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (folder / "sa.key").write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        )

    @property
    def kubeconfig(self) -> str:
        return self.kubeconfig_of("admin-token")

    def kubeconfig_of(self, token: str, port: int | None = None) -> str:
        """Return a kubeconfig of a user, with another port where a proxy is in between."""
        path = self.folder / f"{token}-{port or self.port}.yaml"
        cluster = {
            "server": f"https://127.0.0.1:{port or self.port}",
            "certificate-authority": str(self.folder / "certs" / "apiserver.crt"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
        }
        path.write_text(yaml.safe_dump(config))
        return str(path)

    def start(self) -> None:
        data = self.folder / "etcd"
        url, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._run(
            self._programs[0], "--data-dir", str(data), "--listen-client-urls", url, "--advertise-client-urls", url,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
            "--unsafe-no-fsync",
        )  # fmt: skip
        self.start_api_server()

    def start_api_server(self) -> None:
        key = str(self.folder / "sa.key")
        self._api_server = self._run(
            self._programs[1], "--etcd-servers", f"http://127.0.0.1:{self._etcd_port}",
            "--secure-port", str(self.port), "--bind-address", "127.0.0.1", "--cert-dir", str(self.folder / "certs"),
            "--token-auth-file", str(self.folder / "tokens.csv"), "--authorization-mode", "RBAC",
            "--service-account-key-file", key, "--service-account-signing-key-file", key,
            "--service-account-issuer", "https://kubernetes.default.svc", "--service-cluster-ip-range", "10.0.0.0/24",
            "--disable-admission-plugins", "ServiceAccount", "--allow-privileged=false", *self.flags,
        )  # fmt: skip
        self._wait_ready()

    def kill_api_server(self) -> None:
        assert self._api_server is not None
        self._api_server.kill()
        self._api_server.wait()

    def freeze_api_server(self) -> None:
        assert self._api_server is not None
        self._api_server.send_signal(signal.SIGSTOP)

    def thaw_api_server(self) -> None:
        assert self._api_server is not None
        self._api_server.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._stack.close()

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        log = self._stack.enter_context((self.folder / f"{Path(command[0]).name}.log").open("ab"))
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

        def end() -> None:
            process.kill()  # a stopped process, too
            process.wait()

        self._stack.callback(end)
        return process

    def _wait_ready(self) -> None:
        end = time.monotonic() + START_S_MAX
        assert self._api_server is not None
        while time.monotonic() < end:
            if self._api_server.poll() is not None:
                break
            try:
                context = create_default_context(cafile=str(self.folder / "certs" / "apiserver.crt"))
                with urllib.request.urlopen(f"https://127.0.0.1:{self.port}/readyz", timeout=5, context=context):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.005)
        raise AssertionError((self.folder / "kube-apiserver.log").read_text()[-3000:])


@contextmanager
def kube_server(folder: Path, *flags: str) -> Iterator[KubeServer]:
    """Run an API server with its etcd for a while."""
    server = KubeServer(folder)
    server.flags += flags
    try:
        server.start()
        yield server
    finally:
        server.stop()


async def make_namespace(api: Api, name: str) -> str:
    """Create a namespace if it does not exist, and return its name."""
    with suppress(ObjectExists):
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


async def install_definition(api: Api) -> None:
    """Install the definition of ReplicatedQuery, and wait until the API server serves it."""
    with suppress(ObjectExists):
        await api.create(DEFINITIONS, definition())
    while True:
        try:
            await api.page(QUERIES, "default")
        except ApiProblem:
            await asyncio.sleep(0.005)
        else:
            return


async def grant(api: Api, namespace: str, rules: list[Json]) -> None:
    """Allow the narrow user what ``rules`` allow, in a namespace."""
    meta = {"name": "narrow", "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    await api.create(ROLES, {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": rules})
    await api.create(
        BINDINGS,
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "narrow"},
            "subjects": [{"kind": "User", "name": "narrow", "apiGroup": rbac}],
        },
    )


async def api_of(server: KubeServer, token: str = "admin-token", port: int | None = None) -> Api:
    return await connect(server.kubeconfig_of(token, port))


async def until(condition: Callable[[], object], limit_s: float = 20.0) -> float:
    """Wait for a condition; return the seconds that it took."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < limit_s, "it did not happen"
        await asyncio.sleep(0.005)
    return time.monotonic() - start


def shown(found: object) -> str:
    """Return an object as JSON, for messages of assertions."""
    return json.dumps(found, indent=1, default=str)
